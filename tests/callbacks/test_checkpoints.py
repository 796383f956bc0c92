"""When best.ckpt and last.ckpt are saved, and that going on from one is exact."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from trilab import stopping
from trilab.callbacks.checkpoints import Checkpoints

from ..test_learner import QUIET, Heights, Raised, fit, learner

pytestmark = QUIET


class Saves(Checkpoints):
    """Notes which file was saved at which step."""

    def __init__(self, folder: Path, **every: Any) -> None:
        super().__init__(folder, **every)
        self.saved: list[tuple[int, str]] = []

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        save = trainer.save_checkpoint

        def noted(path: Path, *args: Any, **kwargs: Any) -> None:
            self.saved.append((trainer.global_step, Path(path).stem))
            save(path, *args, **kwargs)

        trainer.save_checkpoint = noted  # type: ignore[assignment, method-assign]


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize(
    ("every", "val_every", "last"),
    [(2, 3, [2, 4, 6, 7]), (3, 3, [3, 6, 7]), (3, 2, [3, 6, 7]), (1, 7, [1, 2, 3, 4, 5, 6, 7]), (100, 2, [7])],
)
def test_last_is_saved_every_so_many_steps_and_once_at_the_end(
    tmp_path: Path, every: int, val_every: int, last: list[int], accumulate: int
) -> None:
    keep = Saves(tmp_path, every=every, val_every=val_every)
    fit(learner(max_steps=7), [keep], val_every=val_every, accumulate=accumulate)
    assert [step for step, name in keep.saved if name == "last"] == last
    assert torch.load(tmp_path / "last.ckpt", weights_only=True)["global_step"] == 7


def test_best_is_saved_at_the_validations_that_are_better_than_all_before(tmp_path: Path) -> None:
    keep = Saves(tmp_path, every=100, val_every=1)
    fit(learner(Raised(), max_steps=6), [Heights(3, 2, 4, 2, 1, 5), keep], val_every=1)
    assert [step for step, name in keep.saved if name == "best"] == [1, 2, 5]
    best = torch.load(tmp_path / "best.ckpt", weights_only=True)
    assert best["global_step"] == best["trilab"]["step"] == best["trilab"]["best"]["step"] == 5


def test_where_both_fall_on_one_step_last_knows_of_the_validation(tmp_path: Path) -> None:
    class Stops(Callback):
        def on_train_batch_start(self, trainer: Trainer, *args: Any) -> None:
            if trainer.global_step == 5:
                raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        fit(learner(max_steps=7), [Stops(), Checkpoints(tmp_path, every=4, val_every=4)], val_every=4)
    found = torch.load(tmp_path / "last.ckpt", weights_only=True)
    assert found["global_step"] == found["trilab"]["best"]["step"] == 4


class StopsBefore(Callback):
    """Breaks the training off before its n-th micro-step."""

    def __init__(self, micro_step: int) -> None:
        self.left = micro_step

    def on_train_batch_start(self, *args: Any) -> None:
        self.left -= 1
        if not self.left:
            raise RuntimeError("on purpose")


@pytest.mark.parametrize("accumulate", [1, 2, 3])
def test_a_training_broken_off_twice_ends_with_the_same_bits(tmp_path: Path, accumulate: int) -> None:
    def train(folder: Path, *stops: Callback, resume: bool) -> dict[str, Any]:
        module = learner(max_steps=8, dropout=0.2)
        callbacks = [*stops, Checkpoints(folder, every=3, val_every=100)]
        fit(module, callbacks, accumulate=accumulate, val_every=100, resume=folder / "last.ckpt" if resume else None)
        return module.state_dict()

    whole = train(tmp_path / "whole", resume=False)
    with pytest.raises(RuntimeError, match="on purpose"):
        train(tmp_path / "part", StopsBefore(3 * accumulate + 2), resume=False)
    with pytest.raises(RuntimeError, match="on purpose"):  # step 4 done, none saved since
        train(tmp_path / "part", StopsBefore(accumulate + 1), resume=True)
    rest = train(tmp_path / "part", resume=True)
    assert all(torch.equal(whole[name], rest[name]) for name in whole)


def test_going_on_from_a_checkpoint_does_not_save_it_again(tmp_path: Path) -> None:
    fit(learner(max_steps=3), [Checkpoints(tmp_path, every=3, val_every=100)], accumulate=2)
    keep = Saves(tmp_path, every=3, val_every=100)
    fit(learner(max_steps=4), [keep], accumulate=2, resume=tmp_path / "last.ckpt")
    assert keep.saved == [(4, "last")]


def test_a_checkpoint_holds_no_path_so_a_run_s_folder_may_be_moved(tmp_path: Path) -> None:
    fit(learner(), [Checkpoints(tmp_path, every=100, val_every=100)])
    content = torch.load(tmp_path / "last.ckpt", weights_only=True)
    assert str(tmp_path) not in repr({key: content[key] for key in content if key != "state_dict"})
    assert not content["callbacks"]


class Asks(Callback):
    """Asks for an end, as a signal does, at the beginning of a micro-step."""

    def __init__(self, micro_step: int) -> None:
        self.left = micro_step

    def on_train_batch_start(self, *args: Any) -> None:
        self.left -= 1
        if not self.left:
            stopping.wish(signal.SIGTERM)


@pytest.fixture(autouse=True)
def _nobody_has_asked() -> Iterator[None]:
    yield
    stopping.unlisten()


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("val_every", [2, 3, 100])
@pytest.mark.parametrize("step", [1, 2, 3, 5])
def test_who_is_asked_to_stop_finishes_the_step_saves_and_goes_on_exactly(
    tmp_path: Path, step: int, val_every: int, accumulate: int
) -> None:
    def train(folder: Path, *asks: Callback, resume: bool) -> dict[str, Any]:
        module = learner(max_steps=6, dropout=0.2)
        callbacks = [*asks, Checkpoints(folder, every=100, val_every=val_every)]
        with stopping.patiently():
            fit(
                *(module, callbacks),
                accumulate=accumulate,
                val_every=val_every,
                resume=folder / "last.ckpt" if resume else None,
            )
        return module.state_dict() | {"val_loss": torch.tensor(module.val_loss), "best": torch.tensor(module.best_step)}

    whole = train(tmp_path / "whole", resume=False)
    with pytest.raises(stopping.Stopped) as stopped:
        train(tmp_path / "part", Asks((step - 1) * accumulate + 1), resume=False)
    assert stopped.value.exit_code == 143
    assert torch.load(tmp_path / "part" / "last.ckpt", weights_only=True)["trilab"]["step"] == step
    stopping.unlisten()
    rest = train(tmp_path / "part", resume=True)
    assert all(torch.equal(whole[name], rest[name]) for name in whole)


def test_the_latest_is_also_saved_when_minutes_have_passed(tmp_path: Path) -> None:
    keep = Saves(tmp_path, every=100, val_every=100, minutes=1e-9)
    fit(learner(max_steps=4), [keep])
    assert keep.saved == [(1, "last"), (2, "last"), (3, "last"), (4, "last")]
