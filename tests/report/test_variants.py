from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trilab.report.runs import read_runs
from trilab.report.variants import group

AddRun = Callable[..., Path]


def names(experiment: Path) -> list[tuple[str, list[int]]]:
    return sorted((variant.name, list(variant.val_losses)) for variant in group(read_runs(experiment)))


def test_runs_that_differ_in_the_seed_only_are_one_variant(experiment: Path, add_run: AddRun) -> None:
    for seed in (10, 9, 2):
        add_run("softmax", seed=seed)
    assert names(experiment) == [("softmax", [2, 9, 10])]


@pytest.mark.parametrize(
    "config",
    [
        {"logger": {"name": "wandb"}},
        {"callbacks": {"progress": False}},
        {"paths": {"outputs": "/elsewhere"}},
        {"force": True},
        {"ckpt": "last.ckpt"},
        {"experiment_name": "other"},
        {"data": {"path": "moved/notes.txt"}},
        {"optim": {"lr": 0.01}, "trainer": {"max_steps": 3000.0}},
    ],
)
def test_keys_that_cannot_change_a_result_do_not_part_runs(
    experiment: Path, add_run: AddRun, config: dict[str, Any]
) -> None:
    add_run("softmax", seed=0)
    add_run("softmax", seed=1, config=config)
    assert names(experiment) == [("softmax", [0, 1])]


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"threads": 2}, "threads=2"),
        ({"optim": {"lr": 0.02}}, "lr=0.02"),
        ({"model": {"n_embd": 64}}, "n_embd=64"),
        ({"model": {"norm": False}}, "norm=false"),
        ({"trainer": {"precision": "bf16-mixed"}}, "precision=bf16-mixed"),
    ],
)
def test_any_other_key_parts_runs_and_stands_in_the_name(
    experiment: Path, add_run: AddRun, config: dict[str, Any], said: str
) -> None:
    add_run("softmax", seed=0)
    add_run("softmax", seed=1, config=config)
    assert len(names(experiment)) == 2
    assert (f"softmax {said}", [1]) in names(experiment)


def test_another_text_under_the_same_path_is_another_variant(experiment: Path, add_run: AddRun) -> None:
    add_run("softmax", seed=0)
    add_run("softmax", seed=1, summary={"data": {"name": "notes.txt", "sha256": "f" * 64}})
    assert names(experiment) == [("softmax sha256=000000000000", [0]), ("softmax sha256=ffffffffffff", [1])]


def drawn(add_run: AddRun, name: str, sha256: str, **config: Any) -> None:
    """A run of softmax on a text."""
    add_run("softmax", folder=name, config=config, summary={"data": {"name": "copy", "sha256": sha256 * 64}})


def test_a_text_that_follows_from_what_its_source_was_given_is_not_named_by_its_sha256_too(
    experiment: Path, add_run: AddRun
) -> None:
    drawn(add_run, "near", "a", data={"gap": 0})
    drawn(add_run, "far", "b", data={"gap": 8})
    drawn(add_run, "far, quick", "b", data={"gap": 8}, optim={"lr": 0.02})
    assert [name for name, _ in names(experiment)] == [
        "softmax gap=0 lr=0.01",
        "softmax gap=8 lr=0.01",
        "softmax gap=8 lr=0.02",
    ]


@pytest.mark.parametrize("other", [{"optim": {"lr": 0.02}}, {"data": {"block_size": 16}}, {"data": {"val_share": 0.2}}])
def test_another_text_is_named_where_keys_of_something_else_differ_as_well(
    experiment: Path, add_run: AddRun, other: dict[str, Any]
) -> None:
    drawn(add_run, "one", "a")
    drawn(add_run, "other", "b", **other)
    assert {name.rpartition("sha256=")[2][:12] for name, _ in names(experiment)} == {"a" * 12, "b" * 12}


def test_texts_of_the_same_values_are_named_by_their_sha256_with_those_of_other_values(
    experiment: Path, add_run: AddRun
) -> None:
    for sha256, gap in (("a", 0), ("b", 0), ("c", 8)):
        drawn(add_run, sha256, sha256, data={"gap": gap})
    assert [name for name, _ in names(experiment)] == [
        "softmax gap=0 sha256=aaaaaaaaaaaa",
        "softmax gap=0 sha256=bbbbbbbbbbbb",
        "softmax gap=8 sha256=cccccccccccc",
    ]


def test_variants_of_one_label_are_told_apart_by_the_keys_in_which_they_differ(
    experiment: Path, add_run: AddRun
) -> None:
    add_run("none")
    for n_head in (1, 4):
        add_run("attention", config={"agg": {"n_head": n_head}}, folder=f"attention-{n_head}")
    assert [name for name, _ in names(experiment)] == ["attention n_head=1", "attention n_head=4", "none"]


def test_keys_with_the_same_last_part_are_written_whole(experiment: Path, add_run: AddRun) -> None:
    for n_head in (1, 4):
        config = {"agg": {"n_head": n_head}, "model": {"n_head": n_head}}
        add_run("attention", config=config, folder=f"attention-{n_head}")
    assert [name for name, _ in names(experiment)] == [
        "attention agg.n_head=1 model.n_head=1",
        "attention agg.n_head=4 model.n_head=4",
    ]


def test_a_key_that_only_one_of_them_has_tells_them_apart(experiment: Path, add_run: AddRun) -> None:
    add_run("softmax", folder="plain")
    add_run("softmax", config={"agg": {"scale": 2.0}}, folder="scaled")
    assert [name for name, _ in names(experiment)] == ["softmax", "softmax scale=2"]


def test_different_strategies_under_one_label_are_never_one_variant(experiment: Path, add_run: AddRun) -> None:
    add_run("softmax", seed=0, label="mine")
    add_run("cumsum", seed=1, label="mine")
    assert names(experiment) == [
        ("mine _target_=trilab.agg.cumsum.Cumsum", [1]),
        ("mine _target_=trilab.agg.softmax.Softmax", [0]),
    ]


def test_a_seed_trained_twice_counts_once(experiment: Path, add_run: AddRun) -> None:
    add_run("softmax", seed=0, val_loss=2.8, folder="a")
    add_run("softmax", seed=0, val_loss=2.9, folder="b")
    (variant,) = group(read_runs(experiment))
    assert variant.val_losses == {0: 2.8}
    assert [run.folder.name for run in variant.repeats] == ["b"]
