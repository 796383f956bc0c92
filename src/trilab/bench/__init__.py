"""`trilab bench`: what everything costs, as ratios that were taken in one run on one machine."""

import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from trilab.bench.measured import KINDS, Measured, load, merged, save
from trilab.bench.table import show
from trilab.bench.telling import Tell, telling
from trilab.errors import BadInput


def bench(
    kinds: Sequence[str],
    *,
    quick: bool,
    threads: int,
    device: str,
    also: Sequence[str],
    megabytes: int | None,
    json: Path | None,
    svg: Path | None,
    page: Path | None,
    console: Console,
) -> None:
    """Measure, and show what came of it.

    Args:
        kinds: of KINDS, or "all"; none: only show what the JSON file holds.
        quick: fewer and shorter turns, smaller sizes.
        threads: CPU threads of each way.
        device: "cpu" or "cuda".
        also: further ways to run train.py, see train.measure.
        megabytes: of each text that is read, see data.measure.
        json: what was measured goes there; what it held of other kinds is kept.
        svg: a folder for a picture of each kind.
        page: Markdown with every bar, and its pictures beside it.
        console: takes the tables.
    Raises:
        BadInput: a kind or a device that there is not, nothing to measure and nothing to show, a file that cannot be
            read or written.
    """
    if unknown := [kind for kind in kinds if kind not in (*KINDS, "all")]:
        raise BadInput(f"{unknown[0]} is nothing that can be measured: {', '.join(KINDS)}, or all.")
    wanted = KINDS if "all" in kinds else tuple(kind for kind in KINDS if kind in kinds)
    known = load(json) if json else []
    if not wanted and not known:
        raise BadInput(f"Nothing to measure: name some of {', '.join(KINDS)}, or all; or --json a file to show.")
    if device == "cuda":
        _refuse_without_card()
    found: list[Measured] = []
    with _ended_by_sigterm(), telling() as tell:
        for kind, measure in _measures(quick, threads, device, also, megabytes, tell).items():
            if kind in wanted:
                found.append(measure())
                if json:  # at once: what comes later may be broken off
                    save(json, merged(known, found))
    shown = found or known
    for one in shown:
        show(one, console)
    if svg:
        from trilab.bench.picture import write_pictures

        write_pictures(shown, svg)
    if page:
        from trilab.bench.page import write_page

        write_page(merged(known, found), page)


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """SIGTERM becomes an exception, so that trainings which were started here are ended too."""
    before = signal.signal(signal.SIGTERM, lambda signum, _: sys.exit(128 + signum))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _measures(
    quick: bool, threads: int, device: str, also: Sequence[str], megabytes: int | None, tell: Tell
) -> Mapping[str, Callable[[], Measured]]:
    from trilab.bench import agg, data, generate, startup, sweep, train

    return {
        "train": lambda: train.measure(quick=quick, threads=threads, device=device, also=also, tell=tell),
        "generate": lambda: generate.measure(quick=quick, threads=threads, device=device, tell=tell),
        "data": lambda: data.measure(quick=quick, threads=threads, tell=tell, megabytes=megabytes),
        "sweep": lambda: sweep.measure(quick=quick, threads=threads, tell=tell),
        "startup": lambda: startup.measure(quick=quick, threads=threads, tell=tell),
        # last, since memory is kept from then on
        "agg": lambda: agg.measure(quick=quick, threads=threads, device=device, tell=tell),
    }


def _refuse_without_card() -> None:
    import torch

    if not torch.cuda.is_available():
        raise BadInput("--device cuda: this machine has no GPU that torch can use. Leave --device out.")
