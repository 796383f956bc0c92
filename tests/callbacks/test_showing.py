"""When samples and pictures are taken, and that a training does not notice."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, Trainer
from PIL import Image

from trilab.agg.attention import SelfAttention
from trilab.callbacks.checkpoints import Checkpoints
from trilab.callbacks.samples import Samples
from trilab.callbacks.showing import Showing
from trilab.callbacks.weight_tables import WeightTables
from trilab.loggers import MetricsFile, Shows
from trilab.model import LanguageModel
from trilab.vocabulary import Vocabulary

from ..test_learner import QUIET, fit, learner
from .test_checkpoints import StopsBefore

pytestmark = QUIET


class Screen(MetricsFile, Shows):
    """A logger that keeps what it is shown."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "metrics.jsonl", 0)
        self.texts: list[tuple[int, list[tuple[int, str]]]] = []
        self.pictures: list[int] = []

    def show_texts(self, name: str, texts: Any, step: int) -> None:
        self.texts.append((step, list(texts)))

    def show_picture(self, name: str, picture: Image.Image, step: int) -> None:
        self.pictures.append(step)

    def show_line(self, name: str, line: Any, step: int) -> None: ...

    def log_summary(self, summary: Any) -> None: ...


class Looks(Showing):
    """Notes at which steps it was asked to show."""

    def __init__(self, every: int | None, val_every: int) -> None:
        super().__init__(every=every, val_every=val_every)
        self.steps: list[int] = []

    def show(self, model: LanguageModel, trainer: Trainer) -> None:
        self.steps.append(trainer.global_step)


@pytest.fixture
def screen(tmp_path: Path) -> Iterator[Screen]:
    logger = Screen(tmp_path)
    yield logger
    logger.close()


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize(
    ("every", "val_every", "steps"),
    [
        (None, 2, [9]),
        (100, 2, [9]),
        (4, 2, [4, 8, 9]),
        (3, 2, [4, 6, 9]),
        (1, 2, [2, 4, 6, 8, 9]),
        (3, 3, [3, 6, 9]),
    ],
)
def test_the_first_validation_from_each_multiple_on_is_where_it_shows(
    screen: Screen, every: int | None, val_every: int, steps: list[int], accumulate: int
) -> None:
    looks = Looks(every, val_every)
    fit(learner(max_steps=9), [looks], val_every=val_every, accumulate=accumulate, loggers=[screen])
    assert looks.steps == steps


def test_where_no_logger_can_show_anything_it_shows_at_the_end_only(tmp_path: Path) -> None:
    looks = Looks(1, 1)
    fit(learner(max_steps=3), [looks], val_every=1)
    assert looks.steps == [3]


def small(dropout: float = 0.0) -> LanguageModel:
    return LanguageModel(11, 8, SelfAttention, n_embd=8, dropout=dropout)


def showing(folder: Path) -> list[Callback]:
    sample = Samples(
        Vocabulary("abcdefghijk"), count=5, seed=3, path=folder / "sample.txt", console=None, every=2, val_every=2
    )
    tokens = torch.zeros(1, 8, dtype=torch.int64)
    return [sample, WeightTables(tokens, fresh=small, path=folder / "tables.npz", every=2, val_every=2)]


@pytest.mark.parametrize("accumulate", [1, 2])
def test_no_bit_of_a_training_depends_on_what_is_shown(tmp_path: Path, screen: Screen, accumulate: int) -> None:
    shown, silent = learner(max_steps=7, dropout=0.2), learner(max_steps=7, dropout=0.2)
    fit(shown, showing(tmp_path), val_every=2, accumulate=accumulate, loggers=[screen])
    fit(silent, val_every=2, accumulate=accumulate)
    assert [step for step, _ in screen.texts] == screen.pictures == [2, 4, 6, 7]
    assert all(torch.equal(shown.state_dict()[name], silent.state_dict()[name]) for name in silent.state_dict())


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_training_broken_off_has_shown_the_same_in_the_end_and_nothing_twice(
    tmp_path: Path, screen: Screen, accumulate: int
) -> None:
    def train(folder: Path, *stops: Callback, resume: bool, logger: Screen) -> None:
        folder.mkdir(exist_ok=True)
        fit(
            learner(max_steps=8, dropout=0.2),
            [*stops, *showing(folder), Checkpoints(folder, every=3, val_every=2)],
            val_every=2,
            accumulate=accumulate,
            resume=folder / "last.ckpt" if resume else None,
            loggers=[logger],
        )

    train(tmp_path / "whole", resume=False, logger=screen)
    (tmp_path / "part").mkdir()
    parts = [Screen(tmp_path / "part") for _ in range(2)]
    with pytest.raises(RuntimeError, match="on purpose"):  # step 5 is done, 3 is saved, 4 was shown
        train(tmp_path / "part", StopsBefore(5 * accumulate + 1), resume=False, logger=parts[0])
    train(tmp_path / "part", resume=True, logger=parts[1])
    for part in parts:
        part.close()
    assert [step for step, _ in parts[0].texts] == parts[0].pictures == [2, 4]
    assert [step for step, _ in parts[1].texts] == parts[1].pictures == [4, 6, 8]  # loggers pass over what they have
    assert parts[1].texts[-1] == screen.texts[-1]
    assert [step for step, _ in screen.texts[-1][1]] == [2, 4, 6, 8]
