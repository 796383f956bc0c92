"""Which way an operation takes: kernels or torch's own operations, called at once or through torch's dispatcher."""

from importlib.util import find_spec

import torch
from torch import Tensor
from torch.nn import Parameter

from trilab.ops.recurrence import library

TRITON = find_spec("triton") is not None


def has_kernels(x: Tensor) -> bool:
    """Whether there are kernels for tensors on the device of x, and they may be called."""
    if looked_into():
        return False
    if x.is_cpu:  # torch.compile need not look into how a library is made: what is registered can do without
        return torch.compiler.is_compiling() or library() is not None
    return x.is_cuda and TRITON


def looked_into() -> bool:
    """Whether torch's own operations are wanted: an exported program must run where trilab is not installed, and the
    transforms of torch.func look into what they transform.
    """
    return torch.compiler.is_exporting() or torch._C._are_functorch_transforms_active()


def at_once(*tensors: Tensor | None) -> bool:
    """Whether a kernel may be called straight away, with no way through torch's dispatcher (30 µs and more a call).

    Not while torch.compile looks on, nor a dispatch mode, as those that count operations; nor for tensors of other
    kinds, which may hold no numbers at all.
    """
    return (
        not torch.compiler.is_compiling()
        and not torch._C._len_torch_dispatch_stack()
        and all(tensor is None or type(tensor) in (Tensor, Parameter) for tensor in tensors)
    )
