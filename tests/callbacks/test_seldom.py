"""Callbacks that Lightning passes over."""

from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch import Callback

from trilab.callbacks.checkpoints import Checkpoints
from trilab.callbacks.progress import TrainingProgress
from trilab.callbacks.seldom import Seldom

from ..test_learner import QUIET, fit, learner

pytestmark = QUIET


def test_a_hook_that_is_not_defined_is_passed_over_and_one_that_is_comes_in_every_step() -> None:
    class Counts(Seldom):
        steps = 0

        def on_train_batch_end(self, *args: Any) -> None:
            self.steps += 1

    counts = Counts()
    fit(learner(max_steps=3), [counts])
    assert counts.steps == 3
    assert counts.on_train_batch_start is None


@pytest.mark.parametrize(
    "callback",
    [
        TrainingProgress(every=1, batch_chars=1, console=None),
        Checkpoints(Path("nowhere"), every=1, val_every=1),
    ],
    ids=["progress", "checkpoints"],
)
def test_ours_have_one_hook_in_each_step(callback: Callback) -> None:
    assert [name for name in vars(Seldom) if name.startswith("on_") and callable(getattr(callback, name))] == [
        "on_train_batch_end"
    ]
