"""What each strategy costs as texts grow, and how near the uniform mean and the decays come to a copy of memory."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from trilab.agg.base import Aggregation, lower_triangle
from trilab.bench.machine import machine
from trilab.bench.measured import Measured, Series
from trilab.bench.memory import Pass, keep_freed, peak
from trilab.bench.telling import Tell
from trilab.bench.turns import Turn, take_turns, timed
from trilab.compose import choosing, composed, strategy_names
from trilab.config import strategies
from trilab.ops.attention import attention, window_attention
from trilab.ops.scan import scan

FORWARD, BACKWARD, MEMORY, CEILINGS = "forward", "forward + backward", "peak memory", "ceilings"
COPY, CLONE, PRODUCT = "copy of x", "x.clone(): a copy to new memory", "product (T, T) @ (B, T, C)"
CUMSUM, FULL_TABLE = "torch.cumsum / arange", "table, by the full product"
RECURRENCE = "h_t = a_t · h_(t-1) + x_t"
WINDOW = 64
WINDOWED = f"attention window={WINDOW}"
KERNEL, TORCHS_KERNEL = "causal attention", "torch's causal attention"
UNDER_WINDOW = f" under a window of {WINDOW}"
NOTES = (
    "Inputs are (B, T, C) in float32, B · T fixed; each strategy by itself, without value and output projections.",
    "Causal attention is measured from queries, keys and values, (B, H, T, D); torch's knows a window as a mask.",
    "T^p: the cost of one row of T tokens, fitted in each round over the larger half of the T; quartiles in brackets.",
    "A copy of x is made into memory that is there already. Freed memory is kept: so is that of results, mostly.",
    f"{RECURRENCE}: a factor for each number of x, its gradient too.",
    "Peak memory: of forward + backward, beyond the input, in a process of its own on a CPU.",
)

# A strategy's size-free maker: (n_embd, block_size) → the strategy.
Make = partial[Aggregation]


@dataclass(frozen=True)
class Grid:
    """What is measured.

    Args:
        channels, n_head: C and H.
        tokens: B · T.
        times: T, rising.
        shapes: (B, T, C) at which means and decays are measured against a copy.
        product: (B, T, C) at which half a product is measured against a full one.
        heads: (B, H, T, D) at which attention is measured against torch's kernel.
        rounds: how often each has its turn.
        least: seconds of one turn, about.
        most: seconds of one call; what takes more is measured at no larger T.
        most_bytes: of memory of one call, likewise.
    """

    channels: int
    n_head: int
    tokens: int
    times: tuple[int, ...]
    shapes: tuple[tuple[int, int, int], ...]
    product: tuple[int, int, int]
    heads: tuple[tuple[int, int, int, int], ...]
    rounds: int
    least: float
    most: float
    most_bytes: float


SHAPES, HEADS = ((64, 256, 384), (2, 4096, 384)), ((12, 4, 64, 32), (8, 6, 256, 64), (2, 6, 1024, 64))
FULL = Grid(384, 6, 8192, (64, 128, 256, 512, 1024, 2048, 4096), SHAPES, (8, 1024, 384), HEADS, 7, 0.02, 1.0, 4e9)
QUICK = Grid(64, 2, 2048, (64, 256, 512), SHAPES, (8, 1024, 384), HEADS, 2, 0.001, 0.1, 1e9)


def measure(
    *, quick: bool, threads: int, device: str, tell: Tell, grid: Grid | None = None, names: Sequence[str] | None = None
) -> Measured:
    """Measure the ceilings, the shapes of the bars, then every strategy over T.

    Args:
        grid: None: as `quick` says.
        names: of strategies, with knobs; None: all of conf/agg, and attention with a window.
    """
    grid = grid or (QUICK if quick else FULL)
    torch.set_num_threads(threads)
    keep_freed()
    makes = {name: _make(name, grid.n_head) for name in names or (*strategy_names(), WINDOWED)}
    notes: list[str] = []
    found = _ceilings(grid, device, tell)
    for shape in grid.shapes:
        found += _against_a_copy(shape, grid, device, tell)
    found += _against_the_full_product(grid, device, tell)
    if device == "cpu":  # elsewhere they are one
        for heads in grid.heads:
            found += _against_torchs_kernel(heads, grid, device, tell)
    found += _over_time(makes, grid, threads, device, tell, notes)
    return Measured("agg", device, quick, machine(threads), COPY, tuple(found), (*NOTES, *notes))


def _make(name: str, n_head: int) -> Make:
    strategy, *knobs = name.split()
    config = composed(["model=gpt", *choosing(strategy, knobs), f"model.n_head={n_head}", "model.dropout=0"])
    return strategies(config)[0]


def _ceilings(grid: Grid, device: str, tell: Tell) -> list[Series]:
    """What memory and arithmetic can do at most, in gigabytes and 10^9 operations a second."""
    tell("agg: ceilings")
    x = torch.randn(64, 256, 384, device=device)
    into, a, b = torch.empty_like(x), *torch.randn(2, 1024, 1024, device=device)
    ways = {
        "copy": _timed(lambda: into.copy_(x), grid, device),
        "product": _timed(lambda: a @ b, grid, device),
    }
    taken = take_turns(ways, grid.rounds)
    copied, multiplied = 2 * x.nbytes / 1e9, 2 * 1024**3 / 1e9
    return [
        Series("memory", CEILINGS, "copy of 25 MB, read and written", "GB/s", tuple(copied / s for s in taken["copy"])),
        Series("arithmetic", CEILINGS, "(1024, 1024) @ (1024, 1024), float32", "GFLOP/s",
               tuple(multiplied / s for s in taken["product"])),
    ]  # fmt: skip


def _against_a_copy(shape: tuple[int, int, int], grid: Grid, device: str, tell: Tell) -> list[Series]:
    tell(f"agg: {case_of(shape)}")
    _, time, channels = shape
    x = torch.randn(shape, device=device)
    into, counts = torch.empty_like(x), torch.arange(1, time + 1, device=device)[:, None]
    ways: dict[tuple[str, str], Turn] = {
        (FORWARD, COPY): _timed(lambda: into.copy_(x), grid, device),
        (FORWARD, CLONE): _timed(x.clone, grid, device),
        (FORWARD, CUMSUM): _timed(lambda: x.cumsum(1) / counts, grid, device),
        (BACKWARD, CUMSUM): _timed(_backward(lambda given: given.cumsum(1) / counts, [], x), grid, device),
    }
    for name in ("cumsum", "ema"):
        ways |= _of(name, _make(name, grid.n_head)(channels, time).to(device), x, grid, device)
    factors = torch.rand_like(x).requires_grad_()
    ways |= _both(RECURRENCE, lambda given: scan(factors, given), [factors], x, grid, device)
    ways[BACKWARD, COPY] = ways[FORWARD, COPY]
    return _series(take_turns(_named(ways), grid.rounds), case_of(shape))


def _against_the_full_product(grid: Grid, device: str, tell: Tell) -> list[Series]:
    """A static table skips what lies above its diagonal; the base class's way to the same does not."""
    tell(f"agg: {case_of(grid.product)}")
    _, time, channels = grid.product
    x = torch.randn(grid.product, device=device)
    table = _make("table", grid.n_head)(channels, time).to(device)
    ways = _of("table", table, x, grid, device)
    whole = partial(Aggregation.mix, table)
    parameters = [p for p in table.parameters() if p.requires_grad]
    with torch.no_grad():
        ways[FORWARD, FULL_TABLE] = _timed(_without_gradients(lambda: whole(x, x)), grid, device)
    ways[BACKWARD, FULL_TABLE] = _timed(_backward(lambda given: whole(given, given), parameters, x), grid, device)
    return _series(take_turns(_named(ways), grid.rounds), case_of(grid.product))


def _against_torchs_kernel(shape: tuple[int, int, int, int], grid: Grid, device: str, tell: Tell) -> list[Series]:
    tell(f"agg: {case_of(shape)}")
    batch, heads, time, size = shape
    q, *others = (torch.randn(batch, time, heads, size, device=device).transpose(1, 2) for _ in range(3))
    k, v = (x.requires_grad_() for x in others)
    scale = size**-0.5
    band = lower_triangle(time, q.device).triu(1 - WINDOW)
    works: dict[str, Callable[[Tensor], Tensor]] = {
        KERNEL: lambda given: attention(given, k, v, scale=scale),
        TORCHS_KERNEL: lambda given: scaled_dot_product_attention(given, k, v, is_causal=True, scale=scale),
    }
    if time > WINDOW:
        works |= {
            KERNEL + UNDER_WINDOW: lambda given: window_attention(given, k, v, WINDOW, scale=scale),
            TORCHS_KERNEL + UNDER_WINDOW: lambda given: scaled_dot_product_attention(given, k, v, band, scale=scale),
        }
    ways: dict[tuple[str, str], Turn] = {}
    for name, work in works.items():
        ways |= _both(name, work, [k, v], q, grid, device)
    return _series(take_turns(_named(ways), grid.rounds), case_of(shape))


def _over_time(
    makes: dict[str, Make], grid: Grid, threads: int, device: str, tell: Tell, notes: list[str]
) -> list[Series]:
    found: list[Series] = []
    cut: dict[str, str] = {}
    for time in grid.times:
        tell(f"agg: T = {time}")
        shape = (max(1, grid.tokens // time), time, grid.channels)
        x = torch.randn(shape, device=device)
        into, square = torch.empty_like(x), torch.randn(time, time, device=device)
        ways: dict[tuple[str, str], Turn] = {
            (FORWARD, COPY): _timed(partial(into.copy_, x), grid, device),
            (FORWARD, PRODUCT): _timed(partial(torch.matmul, square, x), grid, device),
        }
        ways[BACKWARD, COPY] = ways[FORWARD, COPY]
        for name, make in makes.items():
            if name in cut:
                continue
            taken = peak(make, shape, threads=threads, device=device, most_seconds=4 * grid.most)
            if taken is None or taken.bytes > grid.most_bytes or taken.seconds > 2 * grid.most:  # the first is slower
                cut[name] = _why(name, time, grid, taken)
                continue
            found.append(Series(f"T = {time:,}", MEMORY, name, "MB", (max(taken.bytes, 1) / 1e6,), size=time))
            ways |= _of(name, make(grid.channels, time).to(device), x, grid, device)
        found += _series(take_turns(_named(ways), grid.rounds), f"T = {time:,}", size=time)
    notes += cut.values()
    return found


def _why(name: str, time: int, grid: Grid, taken: Pass | None) -> str:
    limit = f"{grid.most_bytes / 1e9:g} GB" if taken and taken.bytes > grid.most_bytes else f"{grid.most:g} s"
    return f"{name} is not measured from T = {time:,} on: there one call takes more than {limit}."


def _of(name: str, agg: Aggregation, x: Tensor, grid: Grid, device: str) -> dict[tuple[str, str], Turn]:
    return _both(name, agg, [p for p in agg.parameters() if p.requires_grad], x, grid, device)


def _both(
    name: str, work: Callable[[Tensor], Tensor], parameters: Sequence[Tensor], x: Tensor, grid: Grid, device: str
) -> dict[tuple[str, str], Turn]:
    return {
        (FORWARD, name): _timed(_without_gradients(lambda: work(x)), grid, device),
        (BACKWARD, name): _timed(_backward(work, parameters, x), grid, device),
    }


def _without_gradients(work: Callable[[], Tensor]) -> Callable[[], Tensor]:
    return torch.no_grad()(work)


def _backward(forward: Callable[[Tensor], Tensor], parameters: Sequence[Tensor], x: Tensor) -> Callable[[], object]:
    given, gradient = x.clone().requires_grad_(), torch.randn_like(x)
    return lambda: torch.autograd.grad(forward(given), [given, *parameters], gradient, allow_unused=True)


def _timed(work: Callable[[], object], grid: Grid, device: str) -> Turn:
    return timed(work, least=grid.least, wait=torch.cuda.synchronize if device == "cuda" else lambda: None)


def _named(ways: dict[tuple[str, str], Turn]) -> dict[str, Turn]:
    return {"\n".join(names): way for names, way in ways.items()}


def _series(taken: dict[str, list[float]], case: str, size: int | None = None) -> list[Series]:
    apart = {tuple(names.split("\n")): tuple(values) for names, values in taken.items()}
    return [Series(case, measure_, way, "s", values, size) for (measure_, way), values in apart.items()]


def case_of(shape: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, shape))})"
