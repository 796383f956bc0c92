"""Ways that take turns, and how long each of them took: what every measurement here is made of.

A machine's speed drifts, by heat, by clock rates, by who else works on it. So nothing is timed first and something
else afterwards: in every round each way has its turn, in a random but seeded order, and what counts are the ratios
within rounds.
"""

import gc
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

# One turn of a way: what it measured, in whatever unit.
Turn = Callable[[], float]


def take_turns(ways: Mapping[str, Turn], rounds: int, *, seed: int = 0) -> dict[str, list[float]]:
    """Have each way measured once a round.

    Args:
        ways: by name; each must have been warmed up.
        rounds: how many, at least 1.
        seed: of the order within the rounds.
    Returns:
        What each way measured, round by round.
    """
    draw = random.Random(seed)
    found: dict[str, list[float]] = {name: [] for name in ways}
    with _collected_between() as collect:
        for _ in range(rounds):
            collect()
            for name in draw.sample(list(ways), len(ways)):
                found[name].append(ways[name]())
    return found


def timed(work: Callable[[], object], *, least: float, wait: Callable[[], None] = lambda: None) -> Turn:
    """A turn that gives the seconds of one call, as the mean of so many that the clock's grain does not matter.

    Args:
        work: what is timed; it is called here too, until it is warm.
        least: seconds that one turn should last, about.
        wait: for a device that works beside this process: returns when it is done.
    """

    def seconds(number: int) -> float:
        began = time.perf_counter()
        for _ in range(number):
            work()
        wait()
        return (time.perf_counter() - began) / number

    seconds(1)
    number = max(1, round(least / max(seconds(1), 1e-9)))
    return lambda: seconds(number)


@contextmanager
def _collected_between() -> Iterator[Callable[[], object]]:
    """No garbage is collected but when asked to; what is there already is left out, since it would take too long."""
    was_on = gc.isenabled()
    gc.disable()
    gc.freeze()
    try:
        yield gc.collect
    finally:
        gc.unfreeze()
        if was_on:
            gc.enable()
