"""What the report says of each variant, and on what terms."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trilab.errors import BadInput
from trilab.report import Report, Row, make_report
from trilab.report.record import as_plain, json_text

AddRun = Callable[..., Path]
POSITIONS = [3.0, 2.0, 1.0]


def row(report: Report, name: str) -> Row:
    [found] = (row for row in report.rows if row.name == name)
    return found


@pytest.fixture
def family(add_run: AddRun) -> None:
    """none about 2.5, attention 0.1 below it, ema 0.0001 below it, two names for one mean above it; three seeds."""
    for seed, noise in enumerate((0.0, 0.004, -0.003)):
        own = {"loss_by_position": [loss + seed for loss in POSITIONS], "flops_per_char": 100.0, "steps": 10}
        sizes = {"data": {"block_size": 8, "batch_size": 2}}
        add_run("none", seed, 2.5 + noise, summary=own | {"test_loss": 2.6 + noise}, config=sizes)
        add_run("attention", seed, 2.4 + noise * 1.1, summary={"test_loss": 2.7 + noise})
        add_run("ema", seed, 2.4999 + noise * 1.01, summary={"best_val_loss": 2.3 + noise})
        add_run("softmax", seed, 2.8 + 2 * noise)
        add_run("matmul", seed, 2.8 + 2 * noise)


@pytest.mark.usefixtures("family")
def test_every_row_has_a_verdict_against_the_baseline(experiment: Path) -> None:
    made = make_report(experiment)
    verdicts = {row.name: row.comparison and row.comparison.verdict for row in made.rows}
    assert verdicts == {"attention": "better", "ema": "equal", "none": None, "matmul": "worse", "softmax": "worse"}
    difference = row(made, "attention").difference
    assert difference is not None
    assert difference.low is not None
    assert difference.high is not None
    assert difference.low < -0.1 < difference.high


@pytest.mark.usefixtures("family")
def test_rows_of_the_same_bits_are_named_once_each_and_nobody_is_its_own_twin(experiment: Path) -> None:
    twins = {row.name: row.twin for row in make_report(experiment).rows}
    assert {name: twin for name, twin in twins.items() if twin} == {"softmax": "matmul"}


@pytest.mark.usefixtures("family")
def test_a_margin_of_its_own_decides_what_is_equal(experiment: Path) -> None:
    comparison = row(make_report(experiment, margin=0.5), "attention").comparison
    assert comparison is not None
    assert comparison.verdict == "equal"


@pytest.mark.usefixtures("family")
def test_by_another_measure_rows_without_it_are_named_and_left_out(experiment: Path) -> None:
    made = make_report(experiment, measure="test_loss")
    assert [row.name for row in made.rows] == ["none", "attention"]
    comparison = row(made, "attention").comparison
    assert comparison is not None
    assert (comparison.verdict, round(comparison.difference.mean or 0, 6)) == ("worse", 0.1)
    assert "ema: not compared, a run of it has no test_loss." in made.notes


@pytest.mark.usefixtures("family")
def test_costs_and_losses_by_position_are_means_over_the_seeds(experiment: Path) -> None:
    none, ema = row(make_report(experiment), "none"), row(make_report(experiment), "ema")
    assert none.loss_by_position == (4.0, 3.0, 2.0)
    assert none.training_flops == 100 * 10 * 2 * 8
    assert (ema.loss_by_position, ema.training_flops) == (None, None)


@pytest.mark.parametrize("positions", [None, "many", [1.0, None], [1.0, "2"], [[1.0]], []])
def test_a_loss_by_position_that_is_none_is_left_out(experiment: Path, add_run: AddRun, positions: object) -> None:
    add_run("none", summary={"loss_by_position": positions})
    assert row(make_report(experiment), "none").loss_by_position is None


def test_with_one_seed_the_interval_is_over_stretches_of_text_and_decides_nothing(
    experiment: Path, add_run: AddRun
) -> None:
    characters = [100] * 10
    add_run("none", summary={"loss_by_block": {"nats": [250.0 + i for i in range(10)], "characters": characters}})
    blocks = {"nats": [200.0 + i + i % 3 for i in range(10)], "characters": characters}
    add_run("table", val_loss=2.0, summary={"loss_by_block": blocks})
    comparison = row(make_report(experiment), "table").comparison
    assert comparison is not None
    assert (comparison.over, comparison.verdict) == ("text", "undecided")
    assert comparison.difference.low is not None
    assert -0.6 < comparison.difference.low < -0.45


@pytest.mark.parametrize("blocks", [{"nats": [1.0], "characters": [0]}, {"nats": [1.0]}, [1], {"nats": "a"}])
def test_stretches_that_are_none_leave_the_interval_out(experiment: Path, add_run: AddRun, blocks: object) -> None:
    add_run("none", summary={"loss_by_block": blocks})
    add_run("table", summary={"loss_by_block": blocks})
    comparison = row(make_report(experiment), "table").comparison
    assert comparison is not None
    assert comparison.difference.low is None


def test_the_experiment_s_own_terms_hold_unless_others_are_given(experiment: Path, add_run: AddRun) -> None:
    terms = {"baseline": "table", "measure": "best_val_loss", "margin": 0.1, "choose": None}
    for agg in ("none", "table"):
        add_run(agg, config={"report": terms}, summary={"best_val_loss": 2.0})
    made = make_report(experiment)
    assert (made.terms.measure, made.terms.margin) == ("best_val_loss", 0.1)
    assert made.baseline is not None
    assert made.baseline.name == "table"
    assert make_report(experiment, baseline="none", margin=0.2).terms.margin == 0.2


@pytest.mark.parametrize(
    "terms", [None, [], {"measure": "luck"}, {"margin": -1}, {"margin": "x"}, {"baseline": 3}, {"choose": 4}]
)
def test_terms_that_cannot_be_understood_are_the_usual_ones(experiment: Path, add_run: AddRun, terms: object) -> None:
    add_run("none", config={"report": terms})
    assert (made := make_report(experiment).terms) == type(made)()


@pytest.mark.parametrize(("given", "named"), [({"measure": "luck"}, "luck"), ({"margin": 0}, "margin=0")])
def test_terms_that_there_are_not_are_refused(
    experiment: Path, add_run: AddRun, given: dict[str, Any], named: str
) -> None:
    add_run("none")
    with pytest.raises(BadInput, match=named):
        make_report(experiment, **given)


def test_reference_lines_are_read_once_each_and_broken_ones_passed_over(experiment: Path, add_run: AddRun) -> None:
    lines = {"uniform": 4.0, "unigram": 3.5, "windowed": {"2": 2.5}, "full": {"2": 2.4, "3": None}, "source": None}
    for seed in (0, 1):
        add_run("none", seed, summary={"references": lines})
    add_run("table", summary={"references": [1, 2]})
    found = [(line.name, line.loss, line.whole_context) for line in make_report(experiment).references]
    assert found == [
        ("uniform", 4.0, False),
        ("1-gram", 3.5, False),
        ("2-gram", 2.5, False),
        ("2-gram, whole past", 2.4, True),
    ]


def test_what_runs_were_made_with_is_counted_and_told_where_it_differs(experiment: Path, add_run: AddRun) -> None:
    for seed, torch in enumerate(("2.11", "2.13", "2.13")):
        add_run("none", seed, summary={"versions": {"torch": torch}, "git": "abc", "package": f"of {torch}"})
    made = make_report(experiment)
    assert dict(made.provenance.values["versions.torch"]) == {"2.13": 2, "2.11": 1}
    assert set(made.provenance.mixed) == {"versions.torch", "package"}
    assert any("the same code" in note for note in made.notes)


def test_planned_runs_that_have_not_begun_are_missing(experiment: Path, add_run: AddRun) -> None:
    add_run("none")
    plans = [{"run": "none-seed0"}, {"run": "ema-seed0"}, {"run": "../up"}, 3]
    (experiment / "planned.jsonl").write_text("\n".join(json.dumps(plan) for plan in plans) + '\n{"run": "ha')
    assert make_report(experiment).missing == ("ema-seed0",)


@pytest.mark.usefixtures("family")
def test_report_json_says_what_the_rows_say_in_full_precision(experiment: Path) -> None:
    made = make_report(experiment)
    read = json.loads(json_text(made))
    assert read == json.loads(json.dumps(as_plain(made)))
    ours, told = row(made, "attention"), next(each for each in read["rows"] if each["name"] == "attention")
    assert ours.difference is not None
    assert told["comparisons"]["val_loss"]["low"] == ours.difference.low
    assert told["losses"]["val_loss"]["by_seed"] == {str(seed): ours.headline.by_seed[seed] for seed in (0, 1, 2)}
    assert [run["run"] for run in told["runs"]] == [run.folder.name for run in ours.runs]


def test_a_report_of_anything_is_text_that_any_program_can_read(experiment: Path, add_run: AddRun) -> None:
    add_run("none", summary={"label": "\udcff </script>", "command": "python \udcff train.py", "git": "\x00"})
    assert json.loads(json_text(make_report(experiment)).encode())["rows"]


def test_runs_that_read_other_characters_are_not_compared_and_it_is_said(experiment: Path, add_run: AddRun) -> None:
    for seed, noise in enumerate((0.0, 0.001, -0.001)):
        add_run("none", seed, 2.5 + noise)
        add_run("ema", seed, 2.4 + 1.1 * noise, summary={"data": {"name": "b", "sha256": "1" * 64}})
        add_run("sum", seed, 2.4 + 1.1 * noise, config={"data": {"block_size": 8, "val_share": 0.02}})
    made = make_report(experiment)
    assert all(row.comparison is None for row in made.rows)
    assert len([note for note in made.notes if "validated on other characters" in note]) == 2


def test_a_healthy_sweep_has_nothing_to_be_told(experiment: Path, add_run: AddRun) -> None:
    for seed, noise in enumerate((0.0, 0.001, -0.001)):
        for agg, loss in (("none", 2.5), ("ema", 2.4)):
            # a class of the user's own is code that other rows do not have
            add_run(agg, seed, loss + noise * loss, summary={"code": f"with {agg}", "package": "p", "git": "g"})
    assert make_report(experiment).notes == ()


def test_seeds_of_one_row_that_other_code_trained_are_told(experiment: Path, add_run: AddRun) -> None:
    for seed in range(2):
        add_run("none", seed, summary={"code": f"at {seed}", "package": "p"})
    assert any("the same code" in note for note in make_report(experiment).notes)


def test_the_one_seed_that_two_rows_share_gives_an_interval_over_text(experiment: Path, add_run: AddRun) -> None:
    for seed in range(3):
        nats = [250.0 + i % 4 + seed for i in range(10)]
        add_run("none", seed, summary={"loss_by_block": {"nats": nats, "characters": [100] * 10}})
    add_run("ema", 1, summary={"loss_by_block": {"nats": [240.0 + i % 3 for i in range(10)], "characters": [100] * 10}})
    comparison = row(make_report(experiment), "ema").comparison
    assert comparison is not None
    assert (comparison.over, comparison.difference.seeds) == ("text", (1,))


def test_lines_of_several_windows_and_texts_have_names_of_their_own(experiment: Path, add_run: AddRun) -> None:
    for seed, size in enumerate((8, 16)):
        lines = {"uniform": 4.0, "windowed": {"3": 2.5 - seed / 10}}
        add_run("none", seed, config={"data": {"block_size": size}}, summary={"references": lines})
    names = {line.name for line in make_report(experiment).references}
    assert names == {"uniform", "3-gram, windows of 8", "3-gram, windows of 16"}


def test_choosing_by_what_is_compared_is_told(experiment: Path, add_run: AddRun) -> None:
    for lr in (0.1, 0.2):
        add_run("none", 0, 2.5 + lr, folder=f"none-{lr}", config={"optim": {"lr": lr}}, summary={"test_loss": 2.0})
    assert any("flatters" in note for note in make_report(experiment, choose="optim.lr").notes)
    judged = make_report(experiment, choose="optim.lr", measure="test_loss")
    assert not any("flatters" in note for note in judged.notes)


@pytest.mark.usefixtures("family")
def test_a_measure_or_baseline_asked_for_that_no_run_has_is_refused(experiment: Path, add_run: AddRun) -> None:
    with pytest.raises(BadInput, match="--baseline nobody: No differences: there is no finished run"):
        make_report(experiment, baseline="nobody")
    for seed in range(3):
        path = experiment / f"none-seed{seed}" / "summary.json"
        path.write_text(json.dumps({k: v for k, v in json.loads(path.read_text()).items() if k != "test_loss"}))
        path = experiment / f"attention-seed{seed}" / "summary.json"
        path.write_text(json.dumps({k: v for k, v in json.loads(path.read_text()).items() if k != "test_loss"}))
    with pytest.raises(BadInput, match="--measure test_loss: no run has it"):
        make_report(experiment, measure="test_loss")
