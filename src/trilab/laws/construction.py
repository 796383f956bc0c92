"""What a constructor draws, and what a checkpoint holds of it. These laws take a way to build the subject."""

import io
import random
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from trilab.agg.base import Aggregation
from trilab.laws.trials import Subject, cast, draw_input, redraw, seeded
from trilab.laws.verdict import Finding, Verdict, judge

# seed → a new one. A model is given the seed; an aggregation by itself draws from torch's global random state, which
# the laws set: `lambda seed: LanguageModel(65, 8, MyAgg, seed=seed)`, `lambda _: MyAgg(32, 8)`.
Make = Callable[[int], Subject]


def seed(make: Make) -> Verdict:
    """The same seed gives the same initial values and outputs, bit for bit, whatever the other random states are.

    Those of Python and NumPy, and torch's own for a model. In evaluation mode nothing is drawn: the same input gives
    the same outputs, call after call. The figure counts what differs.
    """

    def findings() -> Iterator[Finding]:
        one = _made(make, 0, torch_state=0, others=1)
        two = _made(make, 0, torch_state=0 if isinstance(one, Aggregation) else 1, others=2)
        values, again = one.state_dict(), two.state_dict()
        different = [
            name
            for name in sorted(values.keys() | again.keys())
            if name not in values or name not in again or not torch.equal(values[name], again[name])
        ]
        yield Finding(len(different), 0, f"other values under the same seed: {', '.join(different)}")
        given = _input(one)
        yield Finding(int((one(given) != one(given)).sum()), 0, "other outputs from the same input, in evaluation mode")
        yield _same_outputs(one, two, "other outputs under the same seed")

    with torch.no_grad():
        return judge("seed", findings())


def state_dict(make: Make) -> Verdict:
    """What is saved makes a new one, built under another seed, give the same outputs bit for bit.

    Through torch.save and torch.load(weights_only=True), strict. Parameters are redrawn before, as training would
    move them. The figure counts outputs that differ.
    """

    def findings() -> Iterator[Finding]:
        saved = _made(make, 0, torch_state=0, others=1)
        redraw(saved, 1.0, 2)
        file = io.BytesIO()
        torch.save(saved.state_dict(), file)
        file.seek(0)
        loaded = _made(make, 1, torch_state=1, others=2)
        loaded.load_state_dict(torch.load(file, weights_only=True), strict=True)
        yield _same_outputs(saved, loaded, "other outputs after save and load")

    with torch.no_grad():
        return judge("state_dict", findings())


def _made(make: Make, seed: int, *, torch_state: int, others: int) -> Subject:
    """Built with torch's, and with Python's and NumPy's, random state set so; afterwards they are as before."""
    python, numpy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(torch_state)
            random.seed(others)
            np.random.seed(others)
            return make(seed).eval()
    finally:
        random.setstate(python)
        np.random.set_state(numpy)


def _input(subject: Subject) -> Tensor:
    return cast(draw_input(subject, 2, subject.block_size, 1.0, 0), torch.get_default_dtype())


def _same_outputs(one: Subject, two: Subject, what: str) -> Finding:
    y, z = (seeded(subject, _input(subject), 0) for subject in (one, two))
    return Finding(int((y != z).sum()), 0, what)
