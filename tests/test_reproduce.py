"""`trilab reproduce`: a row of report.json trained again, and what it says of the result."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from trilab.report import report
from trilab.report.runs import read_run
from trilab.reproduce import RecordedRow, Repeated, compared, read_row, same_over_seeds

from .conftest import Outcome

Train = Callable[..., Outcome]


@pytest.fixture
def recorded(train: Train) -> Path:
    """report.json of a softmax run that was really trained, with seed 0, and of one with seed 1 that was made up."""
    keys = ("agg=softmax", "seed=0", "experiment_name=part03", "callbacks.sample_chars=0", "check.causality=off")
    run = train(*keys).run
    add_run(run.parent / "softmax-seed1", 1, 2.5)
    for name in ("config.yaml", "summary.json"):
        kept = (run / name).read_text().replace("seed: 0", "seed: 1").replace('"seed": 0', '"seed": 1')
        (run.parent / "softmax-seed1" / name).write_text(kept)
    return written(run.parent)


def add_run(folder: Path, seed: int, val_loss: float, **summary: object) -> Path:
    """A finished run of softmax as plain files."""
    folder.mkdir()
    config = {"seed": seed, "optim": {"lr": 0.01}}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    results = {"status": "finished", "label": "softmax", "seed": seed, "val_loss": val_loss, **summary}
    (folder / "summary.json").write_text(json.dumps(results))
    return folder


def written(folder: Path) -> Path:
    """report.json of an experiment's folder."""
    report(folder)
    return folder / "report.json"


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def test_a_row_trained_again_on_the_same_machine_is_bit_equal(recorded: Path, trilab: Train) -> None:
    before = {path: path.read_bytes() for path in recorded.parent.rglob("*") if path.is_file()}
    done = trilab("reproduce", recorded, "--row", "softmax", "--seed", "0")
    assert done.code == 0, done.err
    assert "softmax seed=0: bit-equal: val_loss " in done.out
    assert "all weights of last.ckpt" in done.out
    assert before == {path: path.read_bytes() for path in recorded.parent.rglob("*") if path.is_file()}


def test_every_seed_of_the_row_is_trained_where_outputs_says_and_a_second_time_it_is_only_compared(
    recorded: Path, trilab: Train, tmp_path: Path
) -> None:
    arguments = ("reproduce", recorded, "--row", "softmax", "--outputs", tmp_path / "else")
    done = trilab(*arguments)
    assert done.code == 1  # what stands there for seed 1 are the results of seed 0
    assert "softmax seed=0: bit-equal" in done.out
    assert "softmax seed=1: different" in done.out
    summaries = sorted((tmp_path / "else" / "part03-reproduced").glob("*/summary.json"))
    assert ["--seed 0" in summaries[0].read_text(), "--seed 1" in summaries[1].read_text()] == [True, True]
    written_before = [path.stat().st_mtime_ns for path in summaries]
    assert trilab(*arguments).out.count("compared as it is") == 2
    assert [path.stat().st_mtime_ns for path in summaries] == written_before


def test_a_run_that_was_made_otherwise_is_different_and_what_is_unlike_is_named(recorded: Path, trilab: Train) -> None:
    def of_another_torch(summary: dict[str, Any]) -> None:
        summary["val_loss"] += 0.5
        summary["versions"]["torch"] = "2.0.0"

    (run,) = recorded.parent.glob("softmax-seed0-*")
    edit(run / "summary.json", of_another_torch)
    done = trilab("reproduce", written(recorded.parent), "--row", "softmax", "--seed", "0")
    assert done.code == 1
    assert "softmax seed=0: different: val_loss was " in done.out
    assert "-0.500000" in done.out
    assert "versions.torch was 2.0.0 and is " in done.out


def test_a_text_that_is_gone_is_bad_input_and_leaves_nothing(recorded: Path, trilab: Train) -> None:
    (run,) = recorded.parent.glob("softmax-seed0-*")
    config = yaml.safe_load((run / "config.yaml").read_text())
    config["data"]["path"] = "gone.txt"
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    done = trilab("reproduce", recorded, "--row", "softmax", "--seed", "0")
    assert done.code == 2
    assert "gone.txt" in done.err
    assert not list(recorded.parents[1].glob("part03-reproduced/*/*"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--row", "ema"), "has no row 'ema'. Its rows: 'softmax'."),
        (("--row", "softmax", "--seed", "7"), "has no seed 7. Its seeds: 0, 1."),
    ],
)
def test_rows_and_seeds_that_are_not_there_are_answered_with_those_that_are(
    experiment: Path, trilab: Train, arguments: tuple[str, ...], said: str
) -> None:
    for seed in (0, 1):
        add_run(experiment / f"softmax-seed{seed}", seed, 2.5)
    done = trilab("reproduce", written(experiment), *arguments)
    assert done.code == 2
    assert said in done.err


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "is no report.json"),
        ("[1]", "it has no rows"),
        ('{"rows": [{"name": "a"}], "version": 0}', "has version 0; this trilab reads version 1"),
        ('{"rows": [{"name": "a"}], "version": 1}', "the row 'a' is not as trilab report writes it"),
    ],
)
def test_a_file_that_is_no_report_is_refused(tmp_path: Path, trilab: Train, content: str, said: str) -> None:
    (tmp_path / "report.json").write_text(content)
    done = trilab("reproduce", "report.json", "--row", "a")
    assert done.code == 2
    assert said in done.err
    assert trilab("reproduce", "nowhere.json", "--row", "a").code == 2


def test_a_run_that_is_gone_is_told_with_the_command_that_it_had(experiment: Path, trilab: Train) -> None:
    run = add_run(experiment / "softmax-seed0", 0, 2.5, command="python train.py agg=softmax")
    record = written(experiment)
    (run / "config.yaml").unlink()
    done = trilab("reproduce", record, "--row", "softmax")
    assert done.code == 2
    assert "is gone" in done.err
    assert "Its command was: python train.py agg=softmax" in done.err


def test_a_folder_that_the_report_does_not_tell_of_any_more_is_refused(experiment: Path, trilab: Train) -> None:
    run = add_run(experiment / "softmax-seed0", 0, 2.5)
    record = written(experiment)
    edit(run / "summary.json", lambda summary: summary.update(val_loss=2.75))
    assert "its val_loss was 2.5 and is 2.75" in trilab("reproduce", record, "--row", "softmax").err
    config = yaml.safe_load((run / "config.yaml").read_text())
    (run / "config.yaml").write_text(yaml.safe_dump(config | {"optim": {"lr": 0.5}}))
    assert "optim.lr was 0.01 and is now 0.5" in trilab("reproduce", record, "--row", "softmax").err


def test_a_reproduction_never_replaces_another_run(recorded: Path, trilab: Train) -> None:
    (run,) = recorded.parent.glob("softmax-seed0-*")
    other = recorded.parents[1] / "part03-reproduced" / run.name
    other.mkdir(parents=True)
    config = yaml.safe_load((run / "config.yaml").read_text())
    (other / "config.yaml").write_text(yaml.safe_dump(config | {"seed": 5}))
    done = trilab("reproduce", recorded, "--row", "softmax", "--seed", "0")
    assert done.code == 2
    assert "holds another run: seed was 5 and is now 0" in done.err
    assert yaml.safe_load((other / "config.yaml").read_text())["seed"] == 5


@pytest.fixture
def pair(experiment: Path) -> Callable[[float], tuple[RecordedRow, Any, Any]]:
    """A row of three seeds that spread by 0.01, its first run, and one that ended so much off."""
    for seed, loss in enumerate((2.50, 2.51, 2.52)):
        add_run(experiment / f"softmax-seed{seed}", seed, loss)
    row = read_row(written(experiment), "softmax", None)

    def made(off: float) -> tuple[RecordedRow, Any, Any]:
        now = add_run(experiment.parent / f"off-by-{off}", 0, 2.50 + off)
        return row, row.runs[0], read_run(now)

    return made


def test_noise_is_what_another_seed_comes_to(pair: Callable[[float], tuple[RecordedRow, Any, Any]]) -> None:
    row, then, near = pair(0.06)
    assert row.noise == pytest.approx(4.302653 * 2**0.5 * 0.01, rel=1e-5)  # t(0.975, 2) from a table
    assert compared(then, near, row).verdict == "within noise"
    row, then, far = pair(0.07)
    assert compared(then, far, row).verdict == "different"


def test_with_fewer_than_three_seeds_the_margin_is_noise(
    pair: Callable[[float], tuple[RecordedRow, Any, Any]],
) -> None:
    row, then, near = pair(0.004)
    two = RecordedRow(row.name, row.measure, {0: 2.50, 1: 2.51}, 0.005, row.runs)
    assert compared(then, near, two).verdict == "within noise"
    assert compared(then, pair(0.006)[2], two).verdict == "different"


def test_differences_that_all_lean_to_one_side_are_no_noise(experiment: Path) -> None:
    for seed, loss in enumerate((2.50, 2.51, 2.52)):
        add_run(experiment / f"softmax-seed{seed}", seed, loss)
    row = read_row(written(experiment), "softmax", None)
    lean, scatter = ((0.020, 0.021, 0.022), (0.020, -0.021, 0.002))
    for differences, is_noise in ((lean, False), (scatter, True)):
        again = {seed: Repeated("within noise", "", row.losses[seed] + differences[seed], ()) for seed in row.losses}
        assert same_over_seeds(row, again, Console(quiet=True)) is is_noise


def test_equal_losses_are_not_bit_equal_where_metrics_differ_but_by_the_clock_they_may(
    pair: Callable[[float], tuple[RecordedRow, Any, Any]],
) -> None:
    row, then, now = pair(0.0)
    line = {"step": 50, "train/loss": 2.5, "chars_per_second": 100.0}
    (then.folder / "metrics.jsonl").write_text(json.dumps(line))
    (now.folder / "metrics.jsonl").write_text(json.dumps(line | {"chars_per_second": 90.0}))
    assert compared(then, now, row).verdict == "bit-equal"
    (now.folder / "metrics.jsonl").write_text(json.dumps(line | {"train/loss": 2.6}))
    assert compared(then, now, row).verdict == "within noise"
    assert "first at step 50 of metrics.jsonl" in compared(then, now, row).said
