"""What Lightning is fed: the same windows on any number of processes, every validation target once."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from trilab import datamodule
from trilab.corpus import Corpus
from trilab.datamodule import CharData
from trilab.errors import BadInput

TEXT = "".join(chr(97 + (i * i + i // 7) % 23) for i in range(1000))


def build(
    *, global_step: int = 0, rank: int = 0, world_size: int = 1, answers: bool = False, **settings: Any
) -> CharData:
    """Data as one process of a training sees it; the vowels may be answers."""
    sizes = {"block_size": 8, "batch_size": 12, "val_share": 0.2, "test_share": 0.1, "val_chars": 32}
    steps = {"max_steps": 5, "accumulate": 1, "seed": 3, "world_size": world_size}
    corpus = Corpus.of("text", TEXT, "text.txt")
    if answers:
        corpus = replace(corpus, answers=np.array([c in "aeiou" for c in TEXT]))
    data = CharData(corpus, **{**sizes, **steps, **settings})
    trainer: Any = SimpleNamespace(global_step=global_step, global_rank=rank, world_size=world_size)
    data.trainer = trainer
    return data


def batches(data: CharData, kind: str) -> list[tuple[Tensor, Tensor]]:
    loader = data.train_dataloader() if kind == "train" else data.val_dataloader()
    cut = [data.transfer_batch_to_device(batch, torch.device("cpu"), 0) for batch in loader]
    return [(windows.inputs, windows.targets) for windows in cut]


def trained(world_size: int, accumulate: int) -> list[Tensor]:
    """The inputs of each step, put together from all processes and micro-steps, in their order."""
    ranks = [
        batches(build(rank=rank, world_size=world_size, accumulate=accumulate), "train") for rank in range(world_size)
    ]
    assert {len(found) for found in ranks} == {5 * accumulate}
    return [
        torch.cat(
            [ranks[rank][step * accumulate + micro][0] for micro in range(accumulate) for rank in range(world_size)]
        )
        for step in range(5)
    ]


@pytest.mark.parametrize(("world_size", "accumulate"), [(1, 2), (1, 12), (2, 1), (3, 1), (2, 3), (3, 2), (12, 1)])
def test_any_number_of_processes_and_micro_steps_reads_the_same_windows(world_size: int, accumulate: int) -> None:
    alone, together = trained(1, 1), trained(world_size, accumulate)
    assert all(torch.equal(one, other) for one, other in zip(alone, together, strict=True))


def test_the_vocabulary_is_the_whole_text_s_and_windows_are_cut_from_the_training_split_only() -> None:
    data = build(max_steps=200)
    assert data.corpus.vocabulary.characters == "".join(sorted(set(TEXT)))
    for inputs, targets in batches(data, "train"):
        assert inputs.shape == targets.shape == (12, 8)
        assert inputs.dtype == targets.dtype == torch.int64
        for row, following in zip(inputs.tolist(), targets.tolist(), strict=True):
            window = data.corpus.vocabulary.decode([*row, following[-1]])
            assert row[1:] == following[:-1]
            assert window in TEXT[:700]


def test_two_steps_read_different_windows_and_one_seed_the_same() -> None:
    first, again, other = (batches(build(seed=seed), "train") for seed in (0, 0, 1))
    assert all(torch.equal(a[0], b[0]) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0][0], first[1][0])
    assert not torch.equal(first[0][0], other[0][0])


@pytest.mark.parametrize("accumulate", [1, 3])
def test_a_resumed_training_reads_on_where_it_stopped(accumulate: int) -> None:
    whole = batches(build(accumulate=accumulate), "train")
    rest = batches(build(accumulate=accumulate, global_step=2), "train")
    assert len(rest) == 3 * accumulate
    assert all(torch.equal(a[0], b[0]) for a, b in zip(whole[2 * accumulate :], rest, strict=True))


@pytest.mark.parametrize("world_size", [1, 2, 3, 50])
@pytest.mark.parametrize("block_size", [1, 7, 8, 99])
def test_validation_covers_every_target_once_on_any_number_of_processes(world_size: int, block_size: int) -> None:
    split = TEXT[700:900]
    covered: list[int] = []
    for rank in range(world_size):
        data = build(rank=rank, world_size=world_size, batch_size=300, block_size=block_size)
        for read, (inputs, targets) in zip(data.val_dataloader(), batches(data, "validate"), strict=True):
            assert len(inputs) == len(read.starts)
            assert len(targets) == (len(read.starts) if read.counted else 0)
            for start, row, following in zip(read.starts.tolist(), inputs.tolist(), targets.tolist(), strict=False):
                covered += range(start + 1, start + 1 + read.length)
                assert data.corpus.vocabulary.decode(row) == TEXT[start : start + read.length]
                assert data.corpus.vocabulary.decode(following) == TEXT[start + 1 : start + 1 + read.length]
    assert sorted(covered) == list(range(701, 700 + len(split)))


@pytest.mark.parametrize("world_size", [1, 2, 50])
@pytest.mark.parametrize("block_size", [5, 8])
def test_answers_come_with_their_targets_and_those_of_uncounted_windows_do_not_count(
    world_size: int, block_size: int
) -> None:
    covered: list[str] = []
    for rank in range(world_size):
        data = build(answers=True, rank=rank, world_size=world_size, batch_size=300, block_size=block_size)
        for read in data.val_dataloader():
            windows = data.transfer_batch_to_device(read, torch.device("cpu"), 0)
            assert windows.answers is not None
            assert windows.answers.shape == windows.targets.shape
            covered += data.corpus.vocabulary.decode(windows.targets[windows.answers].tolist())
    assert sorted(covered) == sorted(c for c in TEXT[701:900] if c in "aeiou")


def test_a_text_that_asks_nothing_has_no_answers() -> None:
    data = build()
    (first, *_) = data.train_dataloader()
    assert data.transfer_batch_to_device(first, torch.device("cpu"), 0).answers is None


def test_one_process_validates_in_the_order_of_the_text() -> None:
    text = "".join(
        build().corpus.vocabulary.decode(row) for _, targets in batches(build(), "validate") for row in targets.tolist()
    )
    assert text == TEXT[701:900]


@pytest.mark.parametrize(("val_chars", "windows"), [(1, 1), (8, 1), (32, 4), (39, 4), (10_000, 24)])
def test_a_validation_batch_holds_about_val_chars(val_chars: int, windows: int) -> None:
    inputs, _ = batches(build(val_chars=val_chars), "validate")[0]
    assert inputs.shape == (windows, 8)


def test_the_characters_of_a_step_are_those_of_all_processes_and_micro_steps() -> None:
    assert build(accumulate=3, world_size=2, rank=1).batch_chars == 12 * 8


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"batch_size": 10, "accumulate": 3}, "data.batch_size=10 cannot be dealt evenly to 1 processes times 3"),
        ({"batch_size": 10, "world_size": 4}, "multiple of 4"),
        ({"batch_size": 693}, "data.batch_size=693 is more than the 692 windows"),
        ({"block_size": 150}, "test split of text.txt has 100"),
        ({"block_size": 250}, "validation split of text.txt has 200"),
    ],
)
def test_what_cannot_be_cut_or_dealt_is_refused_before_training(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput) as caught:
        build(**settings)
    assert said in str(caught.value)


def test_a_text_too_long_for_a_device_stays_where_it_is_and_its_windows_travel(monkeypatch: pytest.MonkeyPatch) -> None:
    data = build()
    batch, device = data.validation[0], torch.device("meta")
    monkeypatch.setattr(datamodule, "ON_DEVICE", len(TEXT) - 1)
    assert data.transfer_batch_to_device(batch, device, 0).inputs.device == device
    assert data.tokens.device == torch.device("cpu")
    monkeypatch.setattr(datamodule, "ON_DEVICE", len(TEXT))
    assert data.transfer_batch_to_device(batch, device, 0).inputs.device == device
    assert data.tokens.device == device
