"""Reference lines are on the text that the rows are judged on; answers are told of where there are any."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from trilab.report import Report, make_report, show
from trilab.report.page import page_html
from trilab.report.record import as_plain, verdicts
from trilab.report.table import csv_text

AddRun = Callable[..., Path]


def lines(shift: float, source: float | None = None) -> dict[str, Any]:
    return {
        "uniform": 3.0 + shift,
        "unigram": 2.9 + shift,
        "windowed": {"2": 2.45 + shift},
        "full": {"2": 2.45 + shift},
        "source": source,
    }


def losses(report: Report) -> dict[str, float]:
    return {line.name: line.loss for line in report.references if not line.whole_context}


def shown(report: Report, width: int = 500) -> str:
    console = Console(file=io.StringIO(), width=width)
    show(report, console)
    written = console.file
    assert isinstance(written, io.StringIO)
    return written.getvalue()


@pytest.fixture
def judged_twice(add_run: AddRun) -> None:
    """Two rows with lines on the validation and on the test split."""
    for name, loss in (("none", 2.5), ("ema", 2.4)):
        both = {"references": lines(0.0, 1.5), "references_test": lines(0.02, 1.52)}
        run = add_run(name, 0, loss, summary={"test_loss": loss + 0.02, **both})
        rows = ({"step": step, "val/loss": loss + 1 / step} for step in (100, 200))
        (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.usefixtures("judged_twice")
@pytest.mark.parametrize(
    ("measure", "shift"), [("val_loss", 0.0), ("best_val_loss", 0.0), ("test_loss", 0.02)], ids=str
)
def test_the_lines_are_on_the_split_that_the_rows_are_judged_on(
    experiment: Path, add_run: AddRun, measure: str, shift: float
) -> None:
    for name in ("none", "ema"):
        (file,) = experiment.glob(f"{name}*/summary.json")
        file.write_text(json.dumps(json.loads(file.read_text()) | {"best_val_loss": 2.3}))
    made = make_report(experiment, measure=measure)
    expected = {"uniform": 3.0, "1-gram": 2.9, "2-gram": 2.45, "true source": 1.5}
    assert losses(made) == {name: pytest.approx(loss + shift) for name, loss in expected.items()}


@pytest.mark.usefixtures("judged_twice")
def test_learning_curves_are_of_the_validation_split_and_so_are_their_lines(experiment: Path) -> None:
    made = make_report(experiment, measure="test_loss")
    assert {line.name: line.loss for line in made.val_references}["2-gram"] == 2.45
    curves = page_html(made).split('id="learning"')[1].split("</section>")[0]
    assert "2-gram: 2.4500" in curves
    assert "2-gram: 2.4700" not in curves


def test_runs_that_have_no_lines_of_the_test_split_are_shown_none(experiment: Path, add_run: AddRun) -> None:
    add_run("none", summary={"test_loss": 2.6, "references": lines(0.0, 1.5)})
    made = make_report(experiment, measure="test_loss")
    assert made.references == ()
    assert len(made.val_references) == 5


@pytest.mark.usefixtures("judged_twice")
def test_the_true_source_stands_in_table_page_and_json_and_is_explained(experiment: Path) -> None:
    made = make_report(experiment)
    table = shown(made)
    assert [line.split()[-1] for line in table.splitlines() if line.startswith("true source")] == ["1.5000"]
    assert "true source: what wrote the text" in table
    page = page_html(made)
    assert 'data-reference="true source"' in page
    assert "its own loss on these very characters" in page
    assert {"name": "true source", "loss": 1.5, "text": "notes.txt", "whole_context": False} in as_plain(made)[
        "references"
    ]


def test_where_the_source_is_all_that_is_known_nothing_is_said_of_n_grams(experiment: Path, add_run: AddRun) -> None:
    add_run("none", summary={"references": {"source": 1.25}})
    made = make_report(experiment)
    assert losses(made) == {"true source": 1.25}
    assert "n-gram" not in shown(made)


# Several texts


def on(add_run: AddRun, folder: str, sha256: str, source: float, name: str = "copy", **data: Any) -> None:
    """A run on a text, whose source loses so much."""
    told = {"data": {"name": name, "sha256": sha256 * 64}, "references": {"source": source}}
    add_run("none", folder=folder, config={"data": data}, summary=told)


def test_texts_of_one_name_are_told_apart_by_what_their_source_was_given(experiment: Path, add_run: AddRun) -> None:
    on(add_run, "near", "a", 1.3, gap=0, symbols=16)
    on(add_run, "far", "b", 0.9, gap=8, symbols=16)
    assert losses(make_report(experiment)) == {"true source (copy, gap=0)": 1.3, "true source (copy, gap=8)": 0.9}


def test_texts_of_one_name_and_the_same_loss_have_a_line_each(experiment: Path, add_run: AddRun) -> None:
    on(add_run, "one", "a", 1.3, data_seed=0)
    on(add_run, "other", "b", 1.3, data_seed=1)
    assert losses(make_report(experiment)).keys() == {
        "true source (copy, data_seed=0)",
        "true source (copy, data_seed=1)",
    }


def test_texts_that_differ_in_their_content_alone_are_told_apart_by_its_sha256(
    experiment: Path, add_run: AddRun
) -> None:
    on(add_run, "one", "a", 1.3, "notes.txt", path="a/notes.txt")
    on(add_run, "other", "b", 0.9, "notes.txt", path="b/notes.txt", block_size=16)
    assert losses(make_report(experiment)) == {
        "true source (notes.txt, sha256=aaaaaaaaaaaa)": 1.3,
        "true source (notes.txt, sha256=bbbbbbbbbbbb)": 0.9,
    }


def test_a_text_that_no_other_shares_its_name_with_needs_no_more(experiment: Path, add_run: AddRun) -> None:
    on(add_run, "near", "a", 1.3, gap=0)
    on(add_run, "far", "b", 0.9, gap=8)
    on(add_run, "recall", "c", 0.8, "recall", pairs=4)
    assert losses(make_report(experiment)) == {
        "true source (copy, gap=0)": 1.3,
        "true source (copy, gap=8)": 0.9,
        "true source (recall)": 0.8,
    }


def test_lines_on_another_part_of_one_text_say_so(experiment: Path, add_run: AddRun) -> None:
    on(add_run, "small", "a", 1.3, val_share=0.1)
    on(add_run, "large", "a", 1.31, val_share=0.2)
    assert losses(make_report(experiment)) == {
        "true source (copy, val_share=0.1)": 1.3,
        "true source (copy, val_share=0.2)": 1.31,
    }


def test_one_text_has_one_line_however_it_came_about_and_is_read(experiment: Path, add_run: AddRun) -> None:
    on(add_run, "one", "a", 1.3, characters=64_000)
    on(add_run, "other", "a", 1.3, characters=64_001, block_size=16, batch_size=4)
    assert losses(make_report(experiment)) == {"true source": 1.3}
    on(add_run, "far", "b", 0.9, characters=64_000, gap=8)
    both = {"true source (copy)": 1.3, "true source (copy, characters=64000, gap=8)": 0.9}
    assert losses(make_report(experiment)) == both


def answering(add_run: AddRun) -> None:
    for seed, noise in enumerate((0.0, 0.002, -0.001)):
        for name, loss, right in (("none", 2.0, 0.125), ("ema", 0.5, 0.75)):
            told = {"answer_loss": loss + noise, "answer_accuracy": right, "references": lines(0.0, 1.5)}
            add_run(name, seed, 1.5 + loss / 4 + noise, summary=told)


def test_answers_have_columns_in_the_table_the_page_json_and_csv(experiment: Path, add_run: AddRun) -> None:
    answering(add_run)
    made = make_report(experiment)
    table = shown(made)
    assert "right" in table.splitlines()[1]
    assert "75.0%" in table
    assert "right: share of the answers that are guessed right" in table
    page = page_html(made)
    assert 'data-key="answer_accuracy"' in page
    assert 'data-key="answer_loss"' in page
    assert "75.0 %" in page
    assert "<dt>answers</dt>" in page
    told = {row["name"]: row for row in as_plain(made)["rows"]}
    assert told["ema"]["answer_accuracy"] == 0.75
    assert told["ema"]["losses"]["answer_loss"]["by_seed"]["1"] == 0.502
    rows = {row["agg"]: row for row in csv.DictReader(io.StringIO(csv_text(made.rows)))}
    assert rows["none"]["answer_accuracy"] == "0.125"
    assert float(rows["none"]["answer_loss_mean"]) == pytest.approx(2.0 + 0.001 / 3)


def test_rows_can_be_judged_by_their_answers_and_no_line_is_drawn_then(experiment: Path, add_run: AddRun) -> None:
    answering(add_run)
    made = make_report(experiment, measure="answer_loss")
    verdicts = {row.name: row.comparison and row.comparison.verdict for row in made.rows}
    assert verdicts == {"ema": "better", "none": None}
    assert made.references == ()
    assert "final validation loss of the answers alone" in shown(made)


def test_without_answers_nothing_is_said_of_them(experiment: Path, add_run: AddRun) -> None:
    add_run("none", summary={"references": lines(0.0)})
    made = make_report(experiment)
    assert "answer" not in shown(made)
    page = page_html(made)
    assert 'data-key="answer' not in page
    assert "<dt>answers" not in page
    assert not any("answer" in key for key in as_plain(made)["rows"][0])
    assert "answer" not in csv_text(made.rows)


@pytest.mark.usefixtures("judged_twice")
def test_the_lines_stand_below_the_verdicts_that_go_to_wandb(experiment: Path) -> None:
    table = verdicts(made := make_report(experiment))
    assert [row["strategy"] for row in table[:2]] == [row.name for row in made.rows]
    assert {row["strategy"]: row["val_loss"] for row in table[2:]} == losses(made)
    assert len({tuple(row) for row in table}) == 1
    assert all(row["verdict"] is None for row in table[2:])
