"""Which run is meant: a folder, a checkpoint, or what W&B calls it."""

import json
from pathlib import Path

import pytest

from trilab.errors import BadInput
from trilab.named_run import checkpoint_of, find_run


@pytest.fixture
def outputs(tmp_path: Path) -> Path:
    """Two experiments: one with three runs, of which two were logged to W&B, and one with a run."""
    made(tmp_path, "part03", "none-seed0-11111111", ["aaaaaaaa"])
    made(tmp_path, "part03", "softmax-seed0-22222222", ["bbbbbbbb", "cccccccc"])
    made(tmp_path, "part03", "window-seed0-33333333", [])
    made(tmp_path, "other", "none-seed0-44444444", ["dddddddd"])
    memory = tmp_path / "outputs" / "part03" / "wandb.json"  # of the report of the whole sweep
    memory.write_text(json.dumps({"parts": [{"id": "rrrrrrrr", "mode": "online", "from_step": 0}]}))
    return tmp_path / "outputs"


def made(folder: Path, experiment: str, name: str, ids: list[str]) -> Path:
    run = folder / "outputs" / experiment / name
    (run / "checkpoints").mkdir(parents=True)
    (run / "config.yaml").write_text("seed: 0\n")
    (run / "checkpoints" / "best.ckpt").write_bytes(b"")
    if ids:
        parts = [{"id": each, "mode": "offline", "from_step": 0} for each in ids]
        (run / "wandb.json").write_text(json.dumps({"parts": parts}))
    return run


def refusal(name: str | Path, outputs: Path) -> str:
    with pytest.raises(BadInput) as refused:
        find_run(str(name), outputs)
    said = str(refused.value)
    assert "\n" not in said
    return said


def test_a_folder_and_a_checkpoint_are_themselves(outputs: Path) -> None:
    run = outputs / "part03" / "none-seed0-11111111"
    assert find_run(str(run), outputs) == run
    assert find_run(f"{run}/", outputs) == run
    assert find_run(str(run / "checkpoints" / "best.ckpt"), outputs) == run / "checkpoints" / "best.ckpt"


@pytest.mark.parametrize(
    "name",
    [
        "cccccccc",
        "me/trilab/cccccccc",
        "trilab/cccccccc",
        "me/trilab/runs/cccccccc",
        "https://wandb.ai/me/trilab/runs/cccccccc?nw=x",
        "https://wandb.ai/me/trilab/runs/cccccccc/",
        "https://wandb.ai/me/trilab/runs/cccccccc/overview",
        "https://wandb.ai/me/trilab/runs/cccccccc/files/checkpoints?nw=x#top",
        "https://wandb.ai/me/runs/runs/cccccccc/logs/",
        "wandb.ai/me/trilab/runs/cccccccc?nw=x",
        "me/trilab/cccccccc/",
        "/me/trilab/runs/cccccccc/overview/",
        "me/runs/cccccccc",
    ],
)
def test_what_wandb_calls_a_run_is_found_by_the_id_of_any_of_its_parts(outputs: Path, name: str) -> None:
    assert find_run(name, outputs) == outputs / "part03" / "softmax-seed0-22222222"


def test_a_path_that_is_there_is_no_name_on_wandb(
    outputs: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "aaaaaaaa" / "checkpoints").mkdir(parents=True)
    assert find_run("aaaaaaaa", outputs) == Path("aaaaaaaa")


@pytest.mark.parametrize("name", ["me/trilab/runs", "?", "https://", "http://[", "runs/", "#/runs/cccccccc"])
def test_what_has_no_id_in_it_is_refused_as_any_unknown_name(outputs: Path, name: str) -> None:
    assert f"{name}: there is no such file or folder" in refusal(name, outputs)


def test_of_a_run_the_best_checkpoint_is_meant_or_the_latest_where_none_was_validated(
    outputs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = outputs / "part03" / "none-seed0-11111111"
    best, last = run / "checkpoints" / "best.ckpt", run / "checkpoints" / "last.ckpt"
    last.write_bytes(b"")
    assert checkpoint_of(run) == best
    assert checkpoint_of(last) == last
    assert capsys.readouterr() == ("", "")
    best.unlink()
    assert checkpoint_of(run) == last
    said = f"{run} has no best.ckpt, since it has not been validated yet: last.ckpt is taken.\n"
    assert capsys.readouterr() == ("", said)
    last.unlink()
    assert checkpoint_of(run) == best  # which is then told to be missing


def test_an_experiment_lists_its_runs_and_a_folder_of_experiments_lists_these(outputs: Path) -> None:
    said = refusal(outputs / "part03", outputs)
    assert said.startswith(f"{outputs / 'part03'} is an experiment. Name one of its runs: ")
    for run in ("none-seed0-11111111", "softmax-seed0-22222222", "window-seed0-33333333"):
        assert str(outputs / "part03" / run) in said
    assert f"Name a run of one of them: {outputs / 'other'}, {outputs / 'part03'}." in refusal(outputs, outputs)


def test_a_long_list_is_cut(outputs: Path) -> None:
    for seed in range(20):
        made(outputs.parent, "many", f"none-seed{seed:02}-55555555", [])
    said = refusal(outputs / "many", outputs)
    assert said.count("none-seed") == 8
    assert said.endswith(" and 12 more.")


def test_a_run_before_its_first_checkpoint_and_what_is_no_run_are_told_apart(outputs: Path, tmp_path: Path) -> None:
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "config.yaml").write_text("")
    assert "is a run that has no checkpoint yet" in refusal(tmp_path / "begun", outputs)
    (tmp_path / "empty").mkdir()
    assert "is no run: a run's folder has checkpoints/ in it" in refusal(tmp_path / "empty", outputs)


def test_an_unknown_name_says_where_was_looked(outputs: Path, tmp_path: Path) -> None:
    said = refusal("me/trilab/eeeeeeee", outputs)
    assert f"below {outputs} no run that W&B knows as eeeeeeee (wandb.json files read: 4;" in said
    assert f"no folder {tmp_path / 'elsewhere'}" in refusal("eeeeeeee", tmp_path / "elsewhere")
    assert "name of the run is empty" in refusal("", outputs)
    assert "cannot be looked for: File name too long" in refusal("a" * 10_000, outputs)


def test_the_report_of_a_sweep_is_no_model(outputs: Path) -> None:
    assert f"rrrrrrrr is the id of {outputs / 'part03'} on W&B, which has no checkpoint" in refusal("rrrrrrrr", outputs)


def test_an_id_of_several_runs_is_refused_with_their_folders(outputs: Path) -> None:
    one, two = (made(outputs.parent, "copies", name, ["ffffffff"]) for name in ("a-seed0-1", "b-seed0-1"))
    assert f"ffffffff is the id of several runs: {one}, {two}." in refusal("ffffffff", outputs)


@pytest.mark.parametrize("content", ["", "[]", '{"parts": 3}', '{"parts": [3]}', '{"parts": [{"id": []}]}', "\udcff"])
def test_a_broken_wandb_json_hides_no_other_run(outputs: Path, content: str) -> None:
    broken = outputs / "part03" / "window-seed0-33333333" / "wandb.json"
    broken.write_bytes(content.encode("utf-8", "surrogateescape"))
    assert find_run("cccccccc", outputs) == outputs / "part03" / "softmax-seed0-22222222"
