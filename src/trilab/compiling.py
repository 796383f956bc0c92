"""A model → the same by torch.compile, where that can be had."""

import logging
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

MODES = ("default", "reduce-overhead", "max-autotune")

log = logging.getLogger("trilab")


def compiled(model: nn.Module, mode: str, inputs: Tensor) -> Callable[[Tensor], Tensor]:
    """What a training step calls: forward compiled for inputs of this shape, or where that fails forward as it is.

    It is tried at once, gradients included, in the precision that is set around this call: so a compiler that is
    missing, or an operation that cannot be compiled, is one line, and the training goes on as it would without.

    Args:
        model: in training mode, on its device.
        mode: one of MODES, as torch.compile knows them.
        inputs: (B, T) of one micro-step.
    """
    log.info("trainer.compile=%s: compiling, which may take minutes the first time.", mode)
    began = time.monotonic()
    forward: Callable[[Tensor], Tensor] = torch.compile(model.forward, mode=mode, dynamic=False)
    try:
        forward(inputs)  # the way back is compiled with it
    except Exception as error:  # of whatever part of torch, or of a compiler; what is the model's own fault comes again
        said = next((line for line in str(error).splitlines() if line.strip()), "")
        log.warning("trainer.compile=%s fails: %s: %.200s. Trains without it.", mode, type(error).__name__, said)
        return model.forward  # no module: whoever keeps it does not own the weights once more
    log.info("Compiled in %.0f s.", time.monotonic() - began)
    return forward
