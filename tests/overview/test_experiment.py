"""An experiment's folder → how each of its runs stands."""

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from trilab.errors import BadInput
from trilab.overview.experiment import Experiment, Overview

from .conftest import NOW

AddRun = Callable[..., Path]
Plan = Callable[..., None]


def look(folder: Path, now: float | None = None) -> Overview:
    return Experiment(folder, host="here").look(time.time() if now is None else now)


def states(overview: Overview) -> dict[str, str]:
    return {standing.folder.name.rpartition("-")[0]: standing.state for standing in overview.standings}


def test_every_run_is_finished_running_failed_stopped_or_left(
    experiment: Path, add_run: AddRun, plan: Plan, living: int, dead: int
) -> None:
    error = {"type": "Diverged", "message": "the loss is nan\nat step 40"}
    add_run("a", losses={1000: 2.5}, ended="finished")
    add_run("b", losses={500: 2.5}, held={"pid": living, "host": "here", "sweep": None})
    add_run("c", losses={50: 2.5}, ended="failed", error=error)
    add_run("d", losses={500: 2.5}, held={"pid": dead, "host": "here", "sweep": None})
    add_run("e", losses={500: 2.5})
    lost = {"type": "OSError", "message": "No space left on device"}
    add_run("f", losses={1250: 2.5}, ended="interrupted", error=lost)
    for label in ("a", "g"):
        plan(label)
    overview = look(experiment)
    assert states(overview) == {
        "a-seed0": "finished",
        "b-seed0": "running",
        "c-seed0": "failed",
        "d-seed0": "stopped",
        "e-seed0": "stopped",
        "f-seed0": "stopped",
        "g-seed0": "left",
    }
    assert [standing.reason for standing in overview.standings] == [
        "",
        "",
        "Diverged: the loss is nan at step 40",
        "at step 500",
        "at step 500",
        "at step 1,250: OSError: No space left on device",
        "",
    ]
    assert overview.counts == {"finished": 1, "running": 1, "failed": 1, "stopped": 3, "left": 1}


def test_a_failed_run_that_is_tried_again_is_running_and_a_finished_one_that_is_passed_over_is_not(
    experiment: Path, add_run: AddRun, living: int
) -> None:
    held = {"pid": living, "host": "here", "sweep": None}
    add_run("a", losses={1000: 2.5}, ended="finished", held=held)
    add_run("b", losses={50: 2.5}, ended="failed", held=held)
    assert states(look(experiment)) == {"a-seed0": "finished", "b-seed0": "running"}


def test_a_planned_run_is_left_until_something_of_it_is_there(experiment: Path, plan: Plan, living: int) -> None:
    plan("sum", 3, max_steps=700)
    plan("sum", 3, max_steps=700)
    watched = Experiment(experiment, host="here")
    (left,) = watched.look(NOW).standings
    assert (left.state, left.label, left.seed, left.max_steps) == ("left", "sum", 3, 700)
    folder = experiment / f"sum-seed3-{'0' * 8}"
    folder.mkdir()
    assert [s.state for s in watched.look(NOW).standings] == ["left"]
    (folder / ".held_by").write_text(json.dumps({"pid": living, "host": "here", "sweep": None}), encoding="utf-8")
    (begun,) = watched.look(time.time()).standings
    assert (begun.state, begun.label, begun.seed, begun.max_steps) == ("running", "sum", 3, 700)


def test_a_seed_may_be_below_0_and_a_number_of_steps_may_not(experiment: Path, add_run: AddRun, plan: Plan) -> None:
    add_run("sum", -3, max_steps=-1000)
    plan("table", -3, max_steps=-1000)
    assert [(s.label, s.seed, s.max_steps) for s in look(experiment).standings] == [
        ("sum", -3, None),
        ("table", -3, None),
    ]


def test_a_plan_may_be_half_written_or_hold_anything(experiment: Path, plan: Plan) -> None:
    plan("sum")
    with (experiment / "planned.jsonl").open("ab") as file:
        file.write(b'[]\n\xff\n{"run": 3}\n{"run": "../../etc"}\n{"run": ".."}\n{"run": ""}\n')
        file.write(b'{"run": "odd", "label": ["x"], "seed": true, "max_steps": "many"}\n{"run": "hal')
    (odd, planned) = look(experiment).standings
    assert (odd.name, odd.seed, odd.max_steps) == ("odd", None, None)
    assert planned.label == "sum"


def test_what_changes_between_two_looks_is_seen(experiment: Path, add_run: AddRun, living: int) -> None:
    held = {"pid": living, "host": "here", "sweep": None}
    run = add_run("sum", losses={500: 2.5}, held=held)
    watched = Experiment(experiment, host="here")
    assert [(s.state, s.step) for s in watched.look(time.time()).standings] == [("running", 500)]
    add_run("sum", losses={500: 2.5, 1000: 2.25}, ended="finished", held=held)
    (run / ".held_by").unlink()
    (done,) = watched.look(time.time()).standings
    assert (done.state, done.step, done.val_losses) == ("finished", 1000, {500: 2.5, 1000: 2.25})
    shutil.rmtree(run)
    add_run("none", losses={50: 3.0})
    assert states(watched.look(time.time())) == {"none-seed0": "stopped"}


def test_a_broken_file_is_named_and_a_folder_of_something_else_is_no_run(experiment: Path, add_run: AddRun) -> None:
    (add_run("sum", losses={50: 2.5}) / "config.yaml").write_bytes(b"agg: [1, 2")
    (experiment / "notes").mkdir()
    (experiment / "report.csv").write_text("", encoding="utf-8")
    (standing,) = look(experiment).standings
    assert standing.state == "unreadable"
    assert standing.reason.startswith("config.yaml cannot be read")


def test_a_summary_alone_is_a_finished_run_with_its_result(experiment: Path, add_run: AddRun) -> None:
    run = add_run("sum", losses={1000: 2.5}, ended="finished")
    (run / "metrics.jsonl").unlink()
    (standing,) = look(experiment).standings
    assert (standing.step, standing.val_losses) == (1000, {1000: 2.5})


@pytest.mark.parametrize(
    ("inside", "said"),
    [
        (None, r"part03 does not exist\. There is no experiment in .*outputs yet"),
        ("nothing", r"part03 has no runs"),
        ("run", r"part03 is a single run\. Name its whole experiment: .*outputs\.$"),
        ("experiment", r"part03 holds experiments, not runs: deeper\. Name one of them"),
    ],
)
def test_a_folder_that_is_no_experiment_is_refused(experiment: Path, inside: str | None, said: str) -> None:
    if inside is None:
        experiment.rmdir()
    elif inside == "run":
        (experiment / "metrics.jsonl").write_text("", encoding="utf-8")
    elif inside == "experiment":
        (experiment / "deeper" / "run").mkdir(parents=True)
        (experiment / "deeper" / "run" / "log").write_text("", encoding="utf-8")
    with pytest.raises(BadInput, match=said):
        look(experiment)


def test_time_left_is_until_the_last_has_ended_if_as_many_go_on_running_at_once(
    experiment: Path, add_run: AddRun, plan: Plan, living: int
) -> None:
    held = {"pid": living, "host": "here", "sweep": None}
    add_run("a", losses={1000: 2.5}, ended="finished")
    add_run("b", losses={500: 2.5}, held=held, speed=25_600.0)  # 100 steps a second: 5 s
    add_run("c", losses={800: 2.5}, held=held, speed=12_800.0)  # 50 steps a second: 4 s
    overview = look(experiment)
    assert overview.standings[1].steps_per_second == 100
    assert overview.seconds_left == pytest.approx(5)
    plan("c", 1, max_steps=1000)  # as fast as c: 20 s, after the first 4
    assert look(experiment).seconds_left == pytest.approx(4 + 20)
    plan("d", max_steps=3000)  # as fast as a, b and c on average, 40/3 ms a step: 40 s, after the first 5
    assert look(experiment).seconds_left == pytest.approx(5 + 40)


def test_time_left_is_not_known_while_nothing_runs_or_has_a_speed(
    experiment: Path, add_run: AddRun, plan: Plan, living: int
) -> None:
    plan("sum", 1)
    add_run("sum", losses={500: 2.5})
    assert look(experiment).seconds_left is None
    shutil.rmtree(experiment / f"sum-seed0-{'0' * 8}")
    add_run("sum", held={"pid": living, "host": "here", "sweep": None})
    assert look(experiment).seconds_left is None


def test_it_is_over_when_nothing_is_running_and_nothing_will_begin_by_itself(
    experiment: Path, add_run: AddRun, plan: Plan, living: int, dead: int
) -> None:
    plan("a")
    assert not look(experiment).over  # a cluster may have it in its queue
    run = add_run("a", losses={500: 2.5}, held={"pid": dead, "host": "here", "sweep": living})
    assert not look(experiment).over  # its sweep lives and may be about to begin another
    add_run("a", losses={1000: 2.5}, ended="finished")
    (run / ".held_by").unlink()
    assert look(experiment).over


def test_it_is_over_when_the_sweep_that_had_more_to_do_is_dead(
    experiment: Path, add_run: AddRun, plan: Plan, dead: int
) -> None:
    plan("a")
    plan("b")
    os.utime(experiment / "planned.jsonl", (NOW - 9e8, NOW - 9e8))
    run = add_run("a", losses={500: 2.5}, held={"pid": dead, "host": "here", "sweep": dead})
    watched = Experiment(experiment, host="here")
    assert watched.look(time.time()).over
    (run / ".held_by").unlink()
    assert watched.look(time.time()).over  # it is remembered
    plan("c")  # by a sweep that has not begun yet
    os.utime(experiment / "planned.jsonl", (time.time() + 60, time.time() + 60))
    assert not watched.look(time.time()).over


def test_looking_writes_nothing(experiment: Path, add_run: AddRun, plan: Plan, living: int) -> None:
    plan("a")
    add_run("b", losses={500: 2.5}, held={"pid": living, "host": "here", "sweep": living})
    before = sorted((path, path.lstat().st_mtime_ns) for path in experiment.rglob("*"))
    look(experiment)
    assert sorted((path, path.lstat().st_mtime_ns) for path in experiment.rglob("*")) == before


def test_a_hundred_runs_with_long_histories_are_read_in_half_a_second(experiment: Path, add_run: AddRun) -> None:
    for number in range(100):
        add_run("sum", number, losses={50 * k: 2.5 for k in range(20, 181, 8)}, max_steps=9000)

    def seconds(watched: Experiment) -> float:
        began = time.process_time()
        assert len(watched.look(NOW).standings) == 100
        return time.process_time() - began

    fresh = [Experiment(experiment, host="here") for _ in range(2)]
    first = min(seconds(watched) for watched in fresh)
    again = min(seconds(watched) for watched in fresh)
    assert first < 0.5
    assert again < first / 6  # what has not changed is not read again
