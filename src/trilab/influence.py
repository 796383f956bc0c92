"""How much each output moves with each input: the picture that every strategy has, with a table of weights or without.

An entry above the diagonal that is not zero is a look into the future.
"""

import math
from collections.abc import Callable

import torch
from rich.text import Text
from torch import Tensor

SHADES = " ·░▒▓█"
FUTURE = "X"
# A part of the largest entry. Below it lies the rounding of transforms (an FFT of float64 leaves 1e-16).
ROUNDING = 1e-12
SAME = 1e-6  # of a shade: float32 numbers on its edge


def influence(f: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Root mean square of the Jacobian over output channels: M_ts = ‖∂y_t / ∂x_s‖_F / √C, averaged over the batch.

    For y = A @ v with one head and v = x this is |A|; several heads give their root mean square. T·C backward passes up
    to 16 channels, above that 4·T with random signs in place of the unit vectors, which estimate the same norm.

    Args:
        f: (B, T, C) → (B, T, C), with float64 parameters.
        x: (B, T, C) float64.
    Returns:
        (T, T) float64, row t for output t, column s for input s, on the device of x. Where autograd finds no way from
        y to x, as through comparisons alone, the `response` to -2 x takes its place.
    """
    x = x.detach().requires_grad_()
    with torch.enable_grad():
        y = f(x)
    rows, time, channels = y.shape
    if not y.requires_grad:
        return response(f, x.detach(), -2 * x.detach())
    exact = channels <= 16
    probes = channels**0.5 * torch.eye(channels).to(y) if exact else _signs((4, channels)).to(y)
    squares = y.new_zeros(time, rows, time)
    for t in range(time):
        for probe in probes:
            cotangent = torch.zeros_like(y)
            cotangent[:, t] = probe
            (slope,) = torch.autograd.grad(y, x, cotangent, retain_graph=True, materialize_grads=True)  # (B, T, C)
            squares[t] += slope.square().sum(-1)
    return (squares / (len(probes) * channels)).sqrt().mean(1)


@torch.no_grad()
def response(f: Callable[[Tensor], Tensor], x: Tensor, other: Tensor) -> Tensor:
    """How far output t moves when input s alone is replaced: M_ts = ‖Δy_t‖ / ‖Δx_s‖, averaged over the batch.

    For y = A @ x with fixed A this is |A|, as the Jacobian is. It also sees steps, which have no slope. T + 1 calls.

    Args:
        f: (B, T, C) → (B, T, C), or token ids (B, T) → (B, T, V), for which Δx counts as 1.
        x, other: what is replaced, and by what; of one shape.
    Returns:
        (T, T), dtype and device of f's outputs.
    """
    before = f(x)
    columns = []
    for s in range(x.shape[1]):
        changed = x.clone()
        changed[:, s] = other[:, s]
        moved = (f(changed) - before).norm(dim=-1)  # (B, T)
        if x.is_floating_point():
            moved = moved / (other[:, s] - x[:, s]).norm(dim=-1, keepdim=True)
        columns.append(moved.mean(0))
    return torch.stack(columns, 1)


def future(matrix: Tensor) -> Tensor:
    """(T, T) booleans: which entries above the diagonal are more than rounding, or not a number."""
    size = matrix.abs()
    return ~(size <= ROUNDING * _largest(size)) & torch.ones_like(size, dtype=torch.bool).triu(1)


def draw(matrix: Tensor, *, cells: int = 24, log: bool = False) -> Text:
    """A map for the terminal: rows are outputs, columns inputs, darker is more, XX is the future.

    Larger tables are pooled: a cell shows the largest of its entries, and XX if one of them lies in the future. The
    text is as plain as it is coloured: `draw(matrix).plain` goes into a log.

    Args:
        matrix: (T, T), as `influence` gives it.
        cells: most cells a side.
        log: a shade for each power of ten below the largest, else for each fifth of it.
    """
    size = matrix.detach().abs().cpu()
    time = len(size)
    width = -(-time // cells)  # positions a cell
    leaks = future(size)
    largest = _largest(size)
    starts = range(0, time, width)
    margin = len(f"output {starts[-1]} ")
    text = Text(no_wrap=True)
    text.append(f"{'input':<{margin}}{_column_labels(starts)}\n")
    for t in starts:
        text.append(f"{'output ' if t == 0 else ''}{t} ".rjust(margin))
        for s in starts:
            cell = slice(t, t + width), slice(s, s + width)
            if leaks[cell].any():
                text.append(2 * FUTURE, style="bold red")
            else:
                text.append(2 * _shade(size[cell].nan_to_num(largest, largest).max().item() / largest, log))
        text.append("\n")
    least = 10.0 ** (2 - len(SHADES)) if log else 1 / (len(SHADES) - 1)
    text.append(f"{SHADES[-1]} up to {largest:.3g}, {SHADES[1]} below {least * largest:.3g}")
    if width > 1:
        text.append(f"; a cell is the largest of {width} × {width}")
    if leaks.any():
        text.append("\n")
        text.append(2 * FUTURE, style="bold red")
        text.append(" moves with a later input")
    return text


def _shade(share: float, log: bool) -> str:
    """The glyph of this part of the largest entry; what is more than rounding is never blank."""
    if share <= ROUNDING:
        return SHADES[0]
    steps = len(SHADES) - 1
    level = steps + math.log10(share) if log else steps * share
    return SHADES[min(max(math.ceil(level - SAME), 1), steps)]


def _column_labels(starts: range) -> str:
    """The first input of every cell, or of every few where the numbers need the room."""
    room = 2
    stride = -(-(len(str(starts[-1])) + 1) // room)
    return "".join(f"{start:<{room * stride}}" for start in starts[::stride]).rstrip()


def _signs(shape: tuple[int, ...]) -> Tensor:
    """+1 and -1 at random, the same ones each time; the global random state stays as it is."""
    generator = torch.Generator().manual_seed(0)
    return torch.randint(2, shape, generator=generator).double() * 2 - 1


def _largest(size: Tensor) -> float:
    """Of the finite entries; 1 where there is nothing to compare with."""
    return size.nan_to_num(0.0, 0.0, 0.0).max().item() or 1.0
