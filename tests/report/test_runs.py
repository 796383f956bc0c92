import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from trilab.errors import BadInput
from trilab.report import make_report, report
from trilab.report.page import page_html
from trilab.report.runs import number, one_line, read_run, read_runs

AddRun = Callable[..., Path]


def test_a_finished_run_has_its_label_seed_and_val_loss(add_run: AddRun) -> None:
    run = read_run(add_run("attention", seed=7, val_loss=2.397, label="one head"))
    assert (run.status, run.label, run.seed, run.val_loss, run.reason) == ("finished", "one head", 7, 2.397, "")


def test_a_run_without_a_label_is_called_after_its_strategy(add_run: AddRun) -> None:
    assert read_run(add_run("softmax", summary={"label": None})).label == "softmax"


def test_a_failed_run_gives_its_error_in_one_line(add_run: AddRun) -> None:
    error = {"type": "BadInput", "message": "val loss is nan\n  at step 40", "traceback": "Traceback…\n"}
    run = read_run(add_run("sum", summary={"status": "failed", "error": error}))
    assert (run.status, run.reason) == ("failed", "BadInput: val loss is nan at step 40")


@pytest.mark.parametrize("error", [None, "out of memory", {}, []])
def test_a_failed_run_without_a_proper_error_is_still_a_failed_run(add_run: AddRun, error: object) -> None:
    run = read_run(add_run("sum", summary={"status": "failed", "error": error}))
    assert (run.status, run.reason) == ("failed", "no error was recorded")


def test_an_interrupted_run_is_unfinished_and_tells_what_it_was_lost_to(add_run: AddRun) -> None:
    error = {"type": "OSError", "message": "[Errno 28] No space left on device", "traceback": "Traceback…\n"}
    run = read_run(add_run("sum", summary={"status": "interrupted", "error": error}))
    assert (run.status, run.reason) == ("unfinished", "OSError: [Errno 28] No space left on device")


def test_an_interrupted_run_without_an_error_tells_how_far_it_came(add_run: AddRun) -> None:
    folder = add_run("sum", summary={"status": "interrupted", "error": None})
    (folder / "metrics.jsonl").write_text('{"step": 1200}\n', encoding="utf-8")
    assert read_run(folder).reason == "at step 1,200 of 3,000"


def test_an_unfinished_run_is_called_after_its_label_or_its_folder(add_run: AddRun) -> None:
    labelled = add_run("sum", label="all of it", folder="all_of_it-seed0-0123abcd")
    plain = add_run("sum", folder="sum-seed12-0123abcd")
    for folder in (labelled, plain):
        (folder / "summary.json").unlink()
    assert [read_run(folder).label for folder in (labelled, plain)] == ["all of it", "sum"]


def test_a_run_without_a_summary_is_unfinished_at_its_last_whole_line(add_run: AddRun) -> None:
    folder = add_run("softmax")
    (folder / "summary.json").unlink()
    (folder / "metrics.jsonl").write_text(
        '{"step": 50}\n{"step": 1200, "val/loss": 2.9}\n{"step": 125', encoding="utf-8"
    )
    run = read_run(folder)
    assert (run.status, run.reason) == ("unfinished", "at step 1,200 of 3,000")


def test_the_last_step_of_a_long_history_is_found(add_run: AddRun) -> None:
    folder = add_run("softmax")
    (folder / "summary.json").unlink()
    lines = (json.dumps({"step": step, "train/loss": 2.5}) for step in range(20_000))
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert read_run(folder).reason == "at step 19,999 of 3,000"


@pytest.mark.parametrize("name", ["metrics.jsonl", "log"])
def test_a_run_killed_before_it_wrote_anything_else_is_unfinished(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"")
    run = read_run(tmp_path)
    assert (run.status, run.reason) == ("unfinished", "no step logged yet")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("config.yaml", b"", "config.yaml holds no keys"),
        ("config.yaml", b"agg: [1, 2", "config.yaml cannot be read"),
        ("config.yaml", b"just text", "config.yaml holds no keys"),
        ("config.yaml", b"seed: 0\xff", "config.yaml cannot be read"),
        ("config.yaml", b"a: &a {b: *a}", "config.yaml cannot be read"),
        ("config.yaml", b"!!python/object/apply:os.getcwd []", "config.yaml cannot be read"),
        ("config.yaml", b"[" * 5000, "config.yaml cannot be read"),
        ("config.yaml", b"agg: {size: 3}", "config.yaml has seed None, not a whole number"),
        ("config.yaml", b"seed: true", "config.yaml has seed True, not a whole number"),
        ("summary.json", b"", "summary.json cannot be read"),
        ("summary.json", b'{"agg": "softmax", "val_lo', "summary.json cannot be read"),
        ("summary.json", b"[1, 2]", "summary.json holds no keys"),
        ("summary.json", b"\xff\xfe\x00", "summary.json cannot be read"),
        ("summary.json", b"[" * 100_000, "summary.json cannot be read"),
        ("summary.json", b"{}", "summary.json has status None, neither finished nor failed"),
        ("summary.json", b'{"status": "finished"}', "summary.json has val_loss None, not a finite number"),
        (
            "summary.json",
            b'{"status": "finished", "val_loss": NaN}',
            "summary.json has val_loss nan, not a finite number",
        ),
        ("summary.json", b'{"status": "finished", "val_loss": "2.5"}', "summary.json has val_loss '2.5', not a finite"),
    ],
)
def test_a_broken_file_is_named_and_does_not_stop_the_others(
    experiment: Path, add_run: AddRun, name: str, content: bytes, said: str
) -> None:
    add_run("none")
    (add_run("softmax") / name).write_bytes(content)
    whole, broken = read_runs(experiment)
    assert whole.status == "finished"
    assert broken.status == "unreadable"
    assert broken.reason.startswith(said)
    assert "\n" not in broken.reason


def test_a_summary_without_its_config_cannot_be_compared(add_run: AddRun) -> None:
    folder = add_run("softmax")
    (folder / "config.yaml").unlink()
    run = read_run(folder)
    assert (run.status, run.reason) == ("unreadable", "it has no config.yaml")


def test_a_folder_in_a_file_s_place_is_named(add_run: AddRun) -> None:
    folder = add_run("softmax")
    (folder / "summary.json").unlink()
    (folder / "summary.json").mkdir()
    assert read_run(folder).reason == "summary.json cannot be read: Is a directory"


def test_foreign_folders_are_named_and_hidden_ones_and_files_passed_over(experiment: Path, add_run: AddRun) -> None:
    add_run("none")
    (experiment / "notes").mkdir()
    (experiment / ".submitit").mkdir()
    (experiment / "multirun.yaml").write_text("hydra: {}", encoding="utf-8")
    assert [(run.folder.name, run.status) for run in read_runs(experiment)] == [
        ("none-seed0", "finished"),
        ("notes", "unreadable"),
    ]


def test_a_folder_that_does_not_exist_is_refused_with_the_experiments_beside_it(
    experiment: Path, add_run: AddRun
) -> None:
    add_run("none")
    (experiment.parent / "wandb").mkdir()
    with pytest.raises(BadInput, match=r"part3 does not exist\. Experiments in .*outputs: part03\.$"):
        read_runs(experiment.parent / "part3")


def test_a_folder_without_runs_is_refused(experiment: Path) -> None:
    (experiment / "notes").mkdir()
    with pytest.raises(BadInput, match=r"part03 has no runs .* There is no experiment in .*outputs yet"):
        read_runs(experiment)


def test_a_run_given_for_an_experiment_is_told_the_experiment(experiment: Path, add_run: AddRun) -> None:
    with pytest.raises(BadInput, match=r"none-seed0 is a single run\..*part03\.$"):
        read_runs(add_run("none"))


def test_a_file_given_for_a_folder_is_refused(experiment: Path) -> None:
    (experiment / "report.csv").write_text("agg\n", encoding="utf-8")
    with pytest.raises(BadInput, match=r"report\.csv cannot be listed: Not a directory"):
        read_runs(experiment / "report.csv")


@pytest.mark.parametrize("value", [None, True, "2.5", float("nan"), float("inf"), 10**400, [2.5]])
def test_what_is_no_finite_number_is_none(value: object) -> None:
    assert number(value) is None


def test_control_characters_and_line_ends_never_leave_a_file() -> None:
    assert one_line("a\x1b[31mb\r\n c\ud800") == "a\ufffd[31mb c\ufffd"


def test_a_hundred_runs_are_read_within_three_seconds(experiment: Path, add_run: AddRun) -> None:
    for seed in range(100):
        add_run("softmax", seed=seed)
    began = time.perf_counter()
    assert len(read_runs(experiment)) == 100
    assert time.perf_counter() - began < 3


@pytest.mark.parametrize("name", ["config.yaml", "summary.json", "metrics.jsonl", "sample.txt", "tables.npz"])
def test_a_pipe_in_a_file_s_place_is_not_waited_for(experiment: Path, add_run: AddRun, name: str) -> None:
    add_run("none")
    run = add_run("ema")
    (run / name).unlink(missing_ok=True)
    os.mkfifo(run / name)
    made = make_report(experiment)
    assert page_html(made)
    assert "none" in {row.name for row in made.rows}


def test_a_run_on_a_file_whose_name_is_no_utf_8_is_read_and_reported(experiment: Path, add_run: AddRun) -> None:
    folder = add_run("none", seed=0, val_loss=2.5)
    config = yaml.safe_load((folder / "config.yaml").read_text()) | {"data": {"path": os.fsdecode(b"caf\xe9.txt")}}
    (folder / "config.yaml").write_text(yaml.safe_dump(config, allow_unicode=True))
    assert "\\uDCE9" in (folder / "config.yaml").read_text()
    [run] = read_runs(experiment)
    assert (run.status, run.config["data"]["path"]) == ("finished", "caf?.txt")
    report(experiment)
    assert (experiment / "report.html").is_file()
