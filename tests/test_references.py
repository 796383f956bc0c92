import json
import math
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from trilab.corpora import tiny_shakespeare
from trilab.errors import BadInput
from trilab.references import KneserNey, References, reference_losses, references_for
from trilab.report.runs import subfolders
from trilab.vocabulary import Vocabulary
from trilab.windows import ValidationBatches, gather, split

SHA = "0" * 64


def random_text(n: int, V: int, seed: int) -> np.ndarray:
    """Tokens of very different frequencies, so that many n-grams occur once, twice, often and never."""
    generator = np.random.default_rng(seed)
    return generator.choice(V, size=n, p=generator.dirichlet(np.full(V, 0.5)))


@pytest.fixture(scope="module")
def shakespeare() -> tuple[np.ndarray, np.ndarray, int]:
    text = tiny_shakespeare.read(str(Path(__file__).parents[1] / "data" / "tiny_shakespeare.txt")).text
    vocabulary = Vocabulary.of(text)
    train, val, _ = split(torch.from_numpy(vocabulary.encode(text)), block_size=256, origin="Tiny Shakespeare")
    return train.numpy(), val.numpy(), len(vocabulary)


# The slow truth


@cache
def counted(train: tuple[int, ...], order: int, raw: bool) -> Counter[tuple[int, ...]]:
    if raw:
        return Counter(train[i : i + order] for i in range(len(train) - order + 1))
    return Counter(gram[1:] for gram in set(counted(train, order + 1, True)))


def truth(train: tuple[int, ...], context: tuple[int, ...], token: int, V: int, raw: bool = True) -> float:
    """P(token | context) of the order that the context's length gives, written down as the formula."""
    shorter = truth(train, context[1:], token, V, raw=False) if context else 1 / V
    counts = counted(train, len(context) + 1, raw)
    after = {gram[-1]: count for gram, count in counts.items() if gram[:-1] == context}
    if not after:
        return shorter
    n1, n2 = (sum(count == n for count in counts.values()) for n in (1, 2))
    discount = n1 / (n1 + 2 * n2) if n1 else 0.5
    return (max(after.get(token, 0) - discount, 0) + discount * len(after) * shorter) / sum(after.values())


def true_losses(train: np.ndarray, val: np.ndarray, V: int, T: int, order: int) -> tuple[float, float]:
    """Windowed and full, the former over the windows that models are validated on."""
    text, split = tuple(train.tolist()), tuple(val.tolist())
    full = [math.log(truth(text, split[max(i - order + 1, 0) : i], split[i], V)) for i in range(1, len(split))]
    windowed = []
    for batch in ValidationBatches(len(val), T, windows_per_batch=3):
        for inputs, targets in zip(*gather(torch.from_numpy(val), batch.starts, batch.length), strict=True):
            read = tuple(inputs.tolist())
            for t, target in enumerate(targets.tolist()):
                windowed.append(math.log(truth(text, read[max(t - order + 2, 0) : t + 1], target, V)))
    assert len(windowed) == len(full)
    return -sum(windowed) / len(windowed), -sum(full) / len(full)


@pytest.mark.parametrize(
    ("n_train", "n_val", "V", "T"),
    [
        (400, 101, 3, 8),
        (400, 98, 3, 7),
        (300, 77, 12, 1),
        (300, 77, 12, 3),
        (300, 60, 12, 500),
        (250, 61, 60, 16),
        (37, 20, 2, 4),
        (9, 30, 4, 5),
        (3, 8, 5, 4),  # shorter than the longest n-grams
        (1, 8, 5, 4),
        (200, 2, 4, 4),
    ],
)
def test_losses_are_those_of_the_formula_and_of_the_windows_that_models_read(n_train, n_val, V, T):
    train, val = random_text(n_train, V, seed=n_train), random_text(n_val, V, seed=n_val)
    found = reference_losses(train, val, vocab_size=V, block_size=T, max_order=5)
    for order in range(2, 6):
        windowed, full = true_losses(train, val, V, T, order)
        assert found.windowed[order] == pytest.approx(windowed, rel=1e-12)
        assert found.full[order] == pytest.approx(full, rel=1e-12)


def test_characters_that_training_never_saw_cost_something_finite_as_the_formula_says():
    train, val = random_text(200, 6, seed=1), np.array([8, 0, 8, 8, 1, 9, 2, 0, 9, 9, 7])
    found = reference_losses(train, val, vocab_size=10, block_size=4, max_order=4)
    for order in range(2, 5):
        assert (found.windowed[order], found.full[order]) == pytest.approx(true_losses(train, val, 10, 4, order))
    assert math.isfinite(found.unigram)


def test_a_vocabulary_of_a_million_overflows_nothing():
    V = 10**6
    train, val = (V - 1 - random_text(n, 40, seed=n) for n in (300, 50))
    found = reference_losses(train, val, vocab_size=V, block_size=8)
    for order in (2, 6):
        assert (found.windowed[order], found.full[order]) == pytest.approx(true_losses(train, val, V, 8, order))


# Distributions


@pytest.mark.parametrize("length", range(8))
def test_after_any_context_the_probabilities_sum_to_1_and_are_those_of_the_formula(length):
    V, train = 7, random_text(150, 6, seed=3)  # token 6 is never seen
    model = KneserNey(train, vocab_size=V, max_order=4)
    text = tuple(train.tolist())
    contexts = [train[20 : 20 + length], *(random_text(length, V, seed) for seed in range(5)), np.full(length, 6)]
    for context in contexts:
        found = model.after(context)
        assert found.shape == (V,)
        assert found.min() > 0
        assert found.sum() == pytest.approx(1, abs=1e-12)
        read = tuple(context.tolist())[max(length - 3, 0) :]
        assert found == pytest.approx([truth(text, read, token, V) for token in range(V)], rel=1e-12)


def test_what_stands_only_at_the_beginning_of_the_text_continues_nothing():
    train = np.array([3, 0, 1, 0, 2, 0, 1, 1])  # nothing precedes 3
    model = KneserNey(train, vocab_size=4, max_order=3)
    for context in ([0], [3], [1, 0], [3, 0], [2, 3]):
        expected = [truth(tuple(train.tolist()), tuple(context), token, 4) for token in range(4)]
        assert model.after(np.array(context)) == pytest.approx(expected, rel=1e-12)
        assert sum(expected) == pytest.approx(1, abs=1e-12)
        assert min(expected) > 0


def test_a_text_too_short_for_an_order_has_no_probabilities_of_it():
    found = KneserNey(random_text(50, 3, seed=0), vocab_size=3, max_order=4).probabilities(np.array([0, 1, 2]))
    assert np.isnan(found).tolist() == [
        [False, False, False],
        [True, False, False],
        [True, True, False],
        [True, True, True],
    ]


def test_many_texts_at_once_have_the_probabilities_of_each():
    model = KneserNey(random_text(200, 5, seed=0), vocab_size=5, max_order=3)
    texts = random_text(2 * 3 * 11, 5, seed=1).reshape(2, 3, 11)
    found = model.probabilities(texts)
    assert found.shape == (3, 2, 3, 11)
    assert np.array_equal(found[:, 1, 2], model.probabilities(texts[1, 2]), equal_nan=True)


def test_one_pair_over_and_over_is_as_good_as_certain():
    train = np.tile([0, 1], 500)  # 01 500 times, 10 499 times: nothing occurs once, so D = 1/2
    after_0 = KneserNey(train, vocab_size=2, max_order=2).after(np.array([0]))
    assert after_0 == pytest.approx([0.0005, 0.9995], rel=1e-12)  # 499.5 / 500 + 0.5 / 500 · 1/2
    found = reference_losses(train, train[:100], vocab_size=2, block_size=8)
    assert all(loss < 0.001 for loss in (*found.windowed.values(), *found.full.values()))


def test_a_single_character_over_and_over_costs_nothing_at_all():
    train = np.zeros(50, dtype=np.int64)
    found = reference_losses(train, train, vocab_size=1, block_size=8)
    assert found.uniform == found.unigram == 0
    assert found.full == pytest.approx(dict.fromkeys(range(2, 7), 0.0))


# Windows


def test_with_windows_of_one_character_every_order_is_the_second():
    train, val = random_text(500, 6, seed=0), random_text(90, 6, seed=1)
    found = reference_losses(train, val, vocab_size=6, block_size=1)
    assert set(found.windowed.values()) == {found.full[2]}
    assert len(set(found.full.values())) == 5


@pytest.mark.parametrize("T", [89, 90, 1_000])
def test_where_the_split_is_one_window_the_windowed_loss_is_the_full_one(T):
    train, val = random_text(500, 6, seed=0), random_text(90, 6, seed=1)
    found = reference_losses(train, val, vocab_size=6, block_size=T)
    assert found.windowed == found.full
    assert reference_losses(train, val, vocab_size=6, block_size=44).windowed != found.full


# What the figures are


def test_uniform_and_unigram_are_what_their_formulas_say():
    found = reference_losses(np.array([0, 0, 1]), np.array([1, 0, 2]), vocab_size=4, block_size=2)
    assert found.uniform == math.log(4)
    assert found.unigram == pytest.approx(-(math.log(3 / 7) + math.log(1 / 7)) / 2)


def test_on_tiny_shakespeare_more_past_always_helps_and_the_figures_are_as_measured(shakespeare):
    train, val, V = shakespeare
    found = reference_losses(train, val, vocab_size=V, block_size=32)
    assert (len(train), len(val), V) == (1_003_854, 111_540, 65)
    assert found.unigram == pytest.approx(3.3473, abs=1e-4)
    assert list(found.full.values()) == pytest.approx([2.4844, 2.0449, 1.7290, 1.5789, 1.5580], abs=1e-4)
    assert list(found.windowed.values()) == pytest.approx([2.4844, 2.0582, 1.7623, 1.6252, 1.6076], abs=1e-4)
    for losses in (found.full, found.windowed):
        ladder = [found.uniform, found.unigram, *losses.values()]
        assert ladder == sorted(ladder, reverse=True)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int32, np.int64])
def test_the_integer_type_makes_no_difference_and_nothing_is_written_to_the_text(dtype):
    train, val = random_text(500, 200, seed=0).astype(dtype), random_text(90, 200, seed=1).astype(dtype)
    before = train.copy(), val.copy()
    train.flags.writeable = val.flags.writeable = False
    expected = reference_losses(before[0].astype(np.int64), before[1].astype(np.int64), vocab_size=200, block_size=8)
    assert reference_losses(train, val, vocab_size=200, block_size=8) == expected
    assert np.array_equal(train, before[0])
    assert np.array_equal(val, before[1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"block_size": 0}, "data.block_size=0 must be at least 1."),
        ({"max_order": 1}, "max_order=1 must be at least 2."),
        ({"vocab_size": 0}, "vocab_size=0 must be at least 1."),
        ({"val": np.array([0])}, "The validation split has 1 characters; references need at least 2."),
        ({"val": np.array([0, 5])}, "Token 5 is not in the vocabulary of 5: 0 … 4."),
        ({"train": np.array([0, -1])}, "Token -1 is not in the vocabulary of 5: 0 … 4."),
    ],
)
def test_what_cannot_be_counted_is_named(change, message):
    given = {"train": np.array([0, 1]), "val": np.array([0, 1]), "vocab_size": 5, "block_size": 2} | change
    with pytest.raises(BadInput) as caught:
        reference_losses(given.pop("train"), given.pop("val"), **given)
    assert str(caught.value) == message


def test_a_summary_has_the_orders_as_text_and_the_source_where_it_is_known():
    found = References(uniform=3.0, unigram=2.0, windowed={2: 1.5}, full={2: 1.0})
    written = {"uniform": 3.0, "unigram": 2.0, "windowed": {"2": 1.5}, "full": {"2": 1.0}, "source": None}
    assert found.as_dict() == json.loads(json.dumps(found.as_dict())) == written
    assert replace(found, source=0.5).as_dict() == written | {"source": 0.5}


def test_torch_is_not_needed():
    done = subprocess.run([sys.executable, "-c", "import sys, trilab.references; sys.exit('torch' in sys.modules)"])
    assert done.returncode == 0


# Kept for the next run


def kept_for(experiment: Path, **change) -> References:
    given = {
        "text_sha256": SHA,
        "train": random_text(300, 5, seed=0),
        "val": random_text(60, 5, seed=1),
        "begins": 300,
        "vocab_size": 5,
        "block_size": 8,
    }
    return references_for(experiment, **(given | change))


def files(experiment: Path) -> list[Path]:
    return sorted(path for path in experiment.rglob("*") if path.is_file())


def test_runs_of_an_experiment_compute_the_references_once(tmp_path):
    first = kept_for(tmp_path)
    (file,) = files(tmp_path)
    assert kept_for(tmp_path) == first
    file.write_text(file.read_text().replace(str(first.uniform), "1.25"))
    assert kept_for(tmp_path) == replace(first, uniform=1.25)  # so it was read


@pytest.mark.parametrize(
    "change",
    [
        {"text_sha256": "1" * 64},
        {"train": random_text(299, 5, seed=0)},
        {"val": random_text(59, 5, seed=1)},
        {"val": random_text(60, 5, seed=2), "begins": 360},  # the test split, as long as the validation split
        {"vocab_size": 6},
        {"block_size": 9},
    ],
)
def test_runs_that_read_something_else_have_references_of_their_own(tmp_path, change):
    first = kept_for(tmp_path)
    assert kept_for(tmp_path, **change) != first or "text_sha256" in change
    assert len(files(tmp_path)) == 2
    assert kept_for(tmp_path) == first


@pytest.mark.parametrize(
    "damage",
    [
        lambda whole: b"",
        lambda whole: whole[: len(whole) // 2],
        lambda whole: b"\xff\xfe" + whole,
        lambda whole: b"null",
        lambda whole: b"[]",
        lambda whole: b"{}",
        lambda whole: whole.replace(b'"6"', b'"7"'),
        lambda whole: whole.replace(b"1.6094379124341003", b"NaN"),
        lambda whole: whole.replace(b"1.6094379124341003", b'"1.6"'),
        lambda whole: whole.replace(b"1.6094379124341003", b"1" + b"0" * 400),
    ],
)
def test_a_damaged_file_is_computed_and_written_again(tmp_path, damage):
    first = kept_for(tmp_path)
    (file,) = files(tmp_path)
    whole = file.read_bytes()
    assert damage(whole) != whole
    file.write_bytes(damage(whole))
    assert kept_for(tmp_path) == first
    assert file.read_bytes() == whole


def test_where_nothing_can_be_written_the_references_are_only_returned(tmp_path):
    (tmp_path / "file").write_text("")
    assert kept_for(tmp_path / "file") == kept_for(tmp_path / "folder")
    assert (tmp_path / "file").read_text() == ""


def test_runs_that_end_at_the_same_time_leave_one_whole_file(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: kept_for(tmp_path), range(24)))
    assert len(files(tmp_path)) == 1
    assert all(references == kept_for(tmp_path) for references in found)


def test_what_is_kept_is_no_run_of_the_experiment(tmp_path):
    kept_for(tmp_path)
    assert files(tmp_path)
    assert subfolders(tmp_path) == []
