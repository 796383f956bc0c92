"""The most memory that one forward and backward pass takes beside its input; memory kept for the next pass."""

import ctypes
import multiprocessing
import platform
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection

import torch

from trilab.agg.base import Aggregation

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload([__name__])  # torch is imported once; nothing has been allocated there

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # of mallopt(3)


def keep_freed() -> None:
    """Have this process keep the memory that it frees, for whatever asks next; only where the C library is GNU's.

    By its own rules it hands a large block back to the system, or it does not, depending on what else was freed. The
    system then clears every page of the next block, which takes a multiple of a sum's time. A training soon has blocks
    of all the sizes that it asks for, step by step.
    """
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(_MMAP_MAX, 0)
        libc.mallopt(_TRIM_THRESHOLD, 2**31 - 1)


@dataclass(frozen=True)
class Pass:
    """What one forward and backward pass took."""

    bytes: float
    seconds: float


def peak(
    make: partial[Aggregation], shape: tuple[int, int, int], *, threads: int, device: str, most_seconds: float
) -> Pass | None:
    """Measure one pass, the second of its process; on a CPU in a process of its own, whose peak the system keeps.

    Args:
        make: (n_embd, block_size) → the strategy; importable.
        shape: (B, T, C) of the input.
        most_seconds: after which it is given up.
    Returns:
        None where it was given up, or its process killed.
    """
    if device == "cuda":
        return _pass(make, shape, device, _on_card, lambda: None)
    ours, theirs = _CONTEXT.Pipe(duplex=False)
    process = _CONTEXT.Process(target=_alone, args=(make, shape, threads, theirs))
    process.start()
    theirs.close()
    try:
        ours.recv()  # it is warm
        return ours.recv() if ours.poll(most_seconds) else None
    except EOFError:
        return None
    finally:
        process.kill()
        process.join()
        ours.close()


def _alone(make: partial[Aggregation], shape: tuple[int, int, int], threads: int, results: Connection) -> None:
    torch.set_num_threads(threads)
    results.send(_pass(make, shape, "cpu", _of_process, lambda: results.send(None)))


def _pass(
    make: partial[Aggregation],
    shape: tuple[int, int, int],
    device: str,
    most: Callable[[bool], float],
    ready: Callable[[], None],
) -> Pass:
    agg = make(shape[2], shape[1]).to(device)
    parameters = [p for p in agg.parameters() if p.requires_grad]

    def once(x: torch.Tensor) -> None:
        torch.autograd.grad(agg(x), [x, *parameters], torch.ones_like(x), allow_unused=True)

    once(torch.randn(1, min(shape[1], 8), shape[2], device=device, requires_grad=True))  # loads what it needs
    x = torch.randn(shape, device=device, requires_grad=True)
    ready()
    before = most(True)
    began = time.perf_counter()
    once(x)
    after = most(False)
    return Pass(after - before, time.perf_counter() - began)


def _of_process(_: bool) -> float:
    """The most bytes that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _on_card(before: bool) -> float:
    """The most bytes that torch has held on the card since `before` was asked."""
    torch.cuda.synchronize()
    if before:
        torch.cuda.reset_peak_memory_stats()
        return float(torch.cuda.memory_allocated())
    return float(torch.cuda.max_memory_allocated())
