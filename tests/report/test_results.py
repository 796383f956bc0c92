"""Tables and pictures in a Markdown page, made from an experiment's folder."""

import json
import re
import sys
import xml.etree.ElementTree
from collections.abc import Callable
from pathlib import Path

import pytest

from trilab.errors import BadInput
from trilab.report import make_report
from trilab.report.results import fill, main

from ..conftest import ROOT, exit_code

AddRun = Callable[..., Path]


@pytest.fixture
def page(experiment: Path, add_run: AddRun) -> Path:
    """A page with a place for an experiment of three rows, two seeds each, and a reference line."""
    known = {"references": {"uniform": 4.17}, "steps": 3000, "flops_per_char": 20000.0, "seconds": 11.6}
    for seed, losses in enumerate(((2.50, 2.83, 2.41), (2.52, 2.84, 2.42))):
        for name, loss in zip(("none", "softmax", "attention"), losses, strict=True):
            run = add_run(name, seed=seed, val_loss=loss, summary=known)
            lines = [{"step": step, "val/loss": loss + 100 / step} for step in (1000, 2000, 3000)]
            (run / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))
    path = experiment.parents[1] / "results.md"
    path.write_text("# Before\n<!-- begin part03 curves -->\nstale\n<!-- end part03 -->\nafter\n", encoding="utf-8")
    return path


def cells(page: Path, name: str) -> list[str]:
    """The row of that name in the page's table."""
    (line,) = (line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith(f"| {name} |"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_table_says_what_the_report_says_and_the_rest_of_the_page_stays(page: Path, experiment: Path) -> None:
    fill(page, experiment.parent)
    written = page.read_text(encoding="utf-8")
    assert written.startswith("# Before\n<!-- begin part03 curves -->\n")
    assert written.endswith("<!-- end part03 -->\nafter\n")
    assert "stale" not in written
    for row in make_report(experiment).rows:
        told = cells(page, row.name)
        assert told[1:3] == ["2", f"{row.headline.mean:.4f}"]
        assert told[7:9] == ["4,257", "3,000"]
        if row.comparison and row.difference and row.difference.mean:
            assert told[4] == f"{row.difference.mean:+.4f}"
            assert told[6].startswith(row.comparison.verdict)
    assert cells(page, "*uniform*")[2] == "*4.1700*"
    assert cells(page, "none")[4] == "baseline"
    again = page.read_bytes()
    fill(page, experiment.parent)
    assert page.read_bytes() == again


def test_pictures_stand_beside_the_page_and_need_nothing_else(page: Path, experiment: Path) -> None:
    fill(page, experiment.parent)
    assert "![part03: curves](results/part03-curves.svg)" in page.read_text(encoding="utf-8")
    picture = page.parent / "results" / "part03-curves.svg"
    root = xml.etree.ElementTree.fromstring(picture.read_text(encoding="utf-8"))
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert {"none", "softmax", "attention"} <= {text.strip() for text in root.itertext()}
    assert "url(http" not in picture.read_text(encoding="utf-8")


def test_where_rates_were_chosen_from_all_of_them_are_shown(page: Path, experiment: Path, add_run: AddRun) -> None:
    terms = {"baseline": "none", "measure": "val_loss", "margin": 0.005, "choose": "optim.lr"}
    for seed in (0, 1):  # the first run by name, whose terms count
        config = {"optim": {"lr": 0.1}, "report": terms}
        add_run("attention", seed, 2.6, folder=f"attention-fast{seed}", config=config)
    fill(page, experiment.parent)
    assert "attention chose the smallest optim.lr offered, 0.01: a better one may lie beyond" in page.read_text()
    assert "| attention | **2.4150** | 2.6000 |" in page.read_text()


def test_names_from_files_stay_text(page: Path, experiment: Path, add_run: AddRun) -> None:
    for seed in (0, 1):
        add_run("softmax", seed, 2.7, label="<img src=x> | **a**", folder=f"odd{seed}")
    fill(page, experiment.parent)
    assert r"| \<img src=x\> \| \*\*a\*\* |" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("marks", "said"),
    [
        ("nothing", "has no place for results"),
        ("<!-- begin part03 flowers -->\n<!-- end part03 -->", "no picture 'flowers'. There are: curves"),
        ("<!-- begin nowhere -->\n<!-- end nowhere -->", "does not exist"),
        (
            "<!-- begin part03 curves -->\n<!-- end part03 -->\n<!-- begin nowhere -->\n<!-- end nowhere -->",
            "does not exist",
        ),
    ],
)
def test_a_page_that_cannot_be_filled_is_refused_and_left_as_it_was(
    page: Path,
    experiment: Path,
    marks: str,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    page.write_text(marks)
    with pytest.raises(BadInput, match=re.escape(said)):
        fill(page, experiment.parent)
    assert page.read_text() == marks
    assert not page.with_suffix("").exists()
    monkeypatch.setattr(sys, "argv", ["results", str(page), str(experiment.parent)])
    assert exit_code(main) == 2
    assert said in capsys.readouterr().err


def test_the_page_of_results_has_a_place_for_every_shipped_comparison() -> None:
    text = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    begun = re.findall(r"<!-- begin ([\w.-]+)", text)
    assert {"part03", "lecture", "tuned", "budget_params", "budget_flops"} <= set(begun)
    assert all(f"<!-- end {name} -->" in text for name in begun if name != "lecture's")
    assert all((ROOT / "docs" / link).is_file() for link in re.findall(r"!\[[^]]*\]\(([^)]+)\)", text))
