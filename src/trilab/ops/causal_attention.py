"""causal_attention.c, compiled: softmax attention over the past on a CPU, values and gradients."""

import ctypes
from functools import cache
from typing import Any

import torch
from torch import Tensor

from trilab.ops import tiles
from trilab.ops.paths import at_once, looked_into
from trilab.ops.tiles import LANES

# Of all pairs of queries and keys: for fewer, the way to the kernel takes longer than torch's, and than the kernel,
# whose panels are half empty then.
LEAST_PRODUCTS = 2**15 * LANES
# Of the keys that some queries go through: beyond, they lie in no cache near the processor, and torch's kernel, which
# takes more queries at a time, is faster.
MOST_NUMBERS = 2**18
PAIRS_A_THREAD = 2**13  # of queries and keys: for fewer, starting a thread costs more than it saves
QUERIES = 24  # as there


class _Heads(ctypes.Structure):
    """`struct tensor`: (B, H, T, D) with the D side by side."""

    _fields_ = (("at", ctypes.c_void_p), ("batch", ctypes.c_long), ("head", ctypes.c_long), ("time", ctypes.c_long))


class _Job(ctypes.Structure):
    """`struct job`."""

    _fields_ = (
        *((name, ctypes.c_long) for name in ("heads", "time", "size", "window")),
        ("scale", ctypes.c_float),
        *((name, _Heads) for name in ("q", "k", "v", "y", "into", "to_q", "to_k", "to_v")),
        *((name, ctypes.c_void_p) for name in ("logs", "scratch")),
        ("scratch_size", ctypes.c_long),
    )


def serves(q: Tensor, k: Tensor, v: Tensor, window: int) -> bool:
    """Whether `causal_attention` may be called, and is faster than torch's own operations.

    Not under a dispatch mode, as those that count operations: of torch's own they know how many there are.
    """
    batch, heads, time, size = q.shape
    numbers = min(time, window + QUERIES) * size
    return (
        q.is_cpu
        and (torch.compiler.is_compiling() or at_once(q, k, v))
        and not looked_into()
        and q.dtype == k.dtype == v.dtype == torch.float32
        and q.shape == k.shape == v.shape
        and size % LANES == 0
        and numbers <= MOST_NUMBERS
        and batch * heads * time * numbers >= LEAST_PRODUCTS
        and batch * heads >= _threads()  # torch's kernel splits heads, too
        and _is_there()
    )


# torch.compile need not look into how a library is made, nor follow the threads' number


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _is_there() -> bool:
    return library() is not None


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _threads() -> int:
    return torch.get_num_threads()


def causal_attention(q: Tensor, k: Tensor, v: Tensor, window: int, *, scale: float) -> Tensor:
    """y_t = Σ_s softmax_s(scale · q_t · k_s) v_s over the last `window` positions s ≤ t.

    Pairs that are not seen are not computed, but for some next to those that are. O(T·D) memory, gradients too; the
    gradients' own gradients are torch's, by a table of all pairs.

    Args:
        q, k, v: (B, H, T, D), float32, on a CPU, D a multiple of LANES.
        window: positions seen, this one included, at least 1.
        scale: of the products of queries and keys.
    Returns:
        (B, H, T, D), which lies in memory as (B, T, H, D).
    """
    y: Tensor
    if not at_once(q, k, v):
        y, _ = registered_causal_attention(q, k, v, window, scale)
    elif torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
        y = _CausalAttention.apply(q, k, v, window, scale)  # type: ignore[no-untyped-call]
    else:
        y, _ = _forward(q, k, v, window, scale)
    return y


def causal_attention_by_table(q: Tensor, k: Tensor, v: Tensor, window: int, *, scale: float) -> Tensor:
    """The slow truth of `causal_attention`."""
    seen = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool, device=q.device).tril().triu(1 - window)
    return (scale * q @ k.mT).masked_fill(~seen, -torch.inf).softmax(-1) @ v


@cache
def library() -> ctypes.CDLL | None:
    """The kernels, or None; see `trilab.ops.tiles.library`."""
    kernels = tiles.library("causal_attention.c", "Attention goes by torch's own operations, which are slower")
    if kernels is not None:
        kernels.scratch_size.argtypes, kernels.scratch_size.restype = (ctypes.c_long, ctypes.c_long), ctypes.c_long
        for function in (kernels.forward, kernels.backward):
            function.argtypes, function.restype = (ctypes.c_long, ctypes.POINTER(_Job), ctypes.c_long), None
    return kernels


@torch.library.custom_op("trilab::causal_attention", mutates_args=(), device_types="cpu")
def registered_causal_attention(q: Tensor, k: Tensor, v: Tensor, window: int, scale: float) -> tuple[Tensor, Tensor]:
    """`_forward` as an operation that torch.compile knows."""
    return _forward(q, k, v, window, scale)


@torch.library.custom_op("trilab::causal_attention_backward", mutates_args=(), device_types="cpu")
def registered_causal_attention_backward(
    q: Tensor, k: Tensor, v: Tensor, y: Tensor, into: Tensor, logs: Tensor, window: int, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """`_backward`, likewise."""
    return _backward(q, k, v, y, into, logs, window, scale)


@registered_causal_attention.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, window: int, scale: float) -> tuple[Tensor, Tensor]:
    return _beside(q), q.new_empty(q.shape[:3])


@registered_causal_attention_backward.register_fake
def _(
    q: Tensor, k: Tensor, v: Tensor, y: Tensor, into: Tensor, logs: Tensor, window: int, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    return _beside(q), _beside(k), _beside(v)


def _keep(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor, int, float], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, ctx.window, ctx.scale = inputs
    ctx.save_for_backward(q, k, v, *output)
    ctx.mark_non_differentiable(output[1])


def _gradients(ctx: Any, into: Tensor, *of_logs: Tensor | None) -> tuple[Tensor | None, ...]:
    q, k, v, y, logs = ctx.saved_tensors
    if torch.is_grad_enabled():  # gradients of the gradients are wanted
        y = causal_attention_by_table(q, k, v, ctx.window, scale=ctx.scale)
        return *torch.autograd.grad(y, (q, k, v), into, create_graph=True), None, None
    if at_once(q, k, v, y, into, logs):
        gradients = _backward(q, k, v, y, into, logs, ctx.window, ctx.scale)
    else:
        gradients = registered_causal_attention_backward(q, k, v, y, into, logs, ctx.window, ctx.scale)
    return *gradients, None, None


registered_causal_attention.register_autograd(_gradients, setup_context=_keep)


class _CausalAttention(torch.autograd.Function):
    """The same gradients for calls that need no dispatcher."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, window: int, scale: float) -> Tensor:
        y, logs = _forward(q, k, v, window, scale)
        _keep(ctx, (q, k, v, window, scale), (y, logs))
        return y

    @staticmethod
    def backward(ctx: Any, into: Tensor) -> tuple[Tensor | None, ...]:
        return _gradients(ctx, into)


def _forward(q: Tensor, k: Tensor, v: Tensor, window: int, scale: float) -> tuple[Tensor, Tensor]:
    """y, and (B, H, T), the log2 of the sum that each row of weights was divided by."""
    y, logs = _beside(q), q.new_empty(q.shape[:3])
    _call("forward", window, scale, logs, q=q, k=k, v=v, y=y)
    return y, logs


def _backward(
    q: Tensor, k: Tensor, v: Tensor, y: Tensor, into: Tensor, logs: Tensor, window: int, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of q, k and v, for `into` arriving at y."""
    gradients = _beside(q), _beside(k), _beside(v)
    to_q, to_k, to_v = gradients
    _call("backward", window, scale, logs, q=q, k=k, v=v, y=y, into=into, to_q=to_q, to_k=to_k, to_v=to_v)
    return gradients


def _beside(x: Tensor) -> Tensor:
    """(B, H, T, D) without values, the heads of one position side by side: so its heads are merged without a copy."""
    batch, heads, time, size = x.shape
    return x.new_empty(batch, time, heads, size).transpose(1, 2)


def _call(name: str, window: int, scale: float, logs: Tensor, **tensors: Tensor) -> None:
    kernels = library()
    assert kernels is not None, "who calls this has asked whether there are kernels"
    batch, heads, time, size = tensors["q"].shape
    pairs = batch * heads * time * min(time, window)
    threads = max(1, min(torch.get_num_threads(), pairs // PAIRS_A_THREAD, batch * heads))
    scratch = logs.new_empty(threads, kernels.scratch_size(time, size))
    given = {name: x if x.stride(3) == 1 else x.contiguous() for name, x in tensors.items()}  # kept until the end
    job = _Job(
        *(heads, time, size, min(window, time), scale),
        logs=logs.data_ptr(),
        scratch=scratch.data_ptr(),
        scratch_size=scratch.shape[1],
        **{name: _Heads(x.data_ptr(), *x.stride()[:3]) for name, x in given.items()},
    )
    getattr(kernels, name)(batch, ctypes.byref(job), threads)
