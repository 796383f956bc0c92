import csv
import io
import math
import os
import subprocess
import sys
import xml.etree.ElementTree
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from trilab.errors import BadInput
from trilab.report import make_report, report, write_svg
from trilab.report.terms import Terms

AddRun = Callable[..., Path]
COLUMNS = "agg,n_seeds,val_loss_mean,val_loss_std,diff_to_baseline,n_params,chars_per_second"  # the first ones


def a_console(width: int = 100, encoding: str = "utf-8") -> Console:
    return Console(file=io.TextIOWrapper(io.BytesIO(), encoding=encoding), width=width, height=50)


def printed(console: Console) -> str:
    file = console.file
    assert isinstance(file, io.TextIOWrapper)
    file.flush()
    buffer = file.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode(file.encoding)


def one_line(text: str) -> str:
    """Without the wrapping to the console's width."""
    return " ".join(text.split())


def read_csv(experiment: Path) -> list[dict[str, str]]:
    with (experiment / "report.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def three(add_run: AddRun) -> None:
    """none: 2.5, 2.75; attention: 2.25, 2.25; softmax: one seed, 3.0."""
    add_run("none", seed=0, val_loss=2.5)
    add_run("none", seed=1, val_loss=2.75, summary={"chars_per_second": 200_000.0})
    add_run("attention", seed=0, val_loss=2.25, summary={"n_params": 6305})
    add_run("attention", seed=1, val_loss=2.25, summary={"n_params": 6305})
    add_run("softmax", seed=1, val_loss=3.0)


@pytest.mark.usefixtures("three")
def test_the_csv_holds_the_hand_computed_values_best_first(experiment: Path) -> None:
    report(experiment, console=a_console())
    header, attention, none, softmax = (experiment / "report.csv").read_bytes().decode().removesuffix("\n").split("\n")
    assert header.startswith(f"{COLUMNS},measure,diff_low,")
    assert attention.startswith("attention,2,2.25,0.0,-0.375,6305,400000.0,val_loss,")
    assert none.startswith(f"none,2,2.625,{math.sqrt(0.03125)!r},0.0,4257,300000.0,val_loss,,,,,,,")
    assert softmax.startswith("softmax,1,3.0,,0.25,4257,400000.0,val_loss,,,,,undecided,seeds,")


@pytest.mark.usefixtures("three")
def test_the_terminal_shows_the_same_and_where_the_baseline_is(experiment: Path) -> None:
    console = a_console(120)
    report(experiment, console=console)
    rows = {line.split()[0]: line for line in printed(console).splitlines() if line.strip()}
    assert rows["attention"].split() == [
        "attention",
        "2",
        "2.2500",
        "0.0000",
        "-0.3750",
        "1.5883",
        "undecided,",
        "5",
        "seeds?",
        "███████│",
        "6,305",
        "400,000",
    ]
    assert rows["none"].split() == ["none", "2", "2.6250", "0.1768", "baseline", "│", "4,257", "300,000"]
    assert rows["softmax"].split() == ["softmax", "1", "3.0000", "+0.2500", "undecided", "│████▌", "4,257", "400,000"]
    assert list(rows)[1:6] == ["strategy", "─" * len(rows["strategy"].rstrip()), "attention", "none", "softmax"]
    assert max(len(line) for first, line in rows.items() if first != "The") <= 120


@pytest.mark.usefixtures("three")
def test_the_difference_is_paired_over_common_seeds_and_the_others_are_named(experiment: Path, add_run: AddRun) -> None:
    add_run("attention", seed=5, val_loss=100.0)
    console = a_console()
    made = report(experiment, console=console)
    assert {row.name: row.difference and row.difference.mean for row in made.rows}["softmax"] == 3.0 - 2.75
    assert "softmax: difference to none over seed 1; seed 0 only in none." in one_line(printed(console))
    # seed 5 has 4257 parameters in its summary, but is the same config: it counts in the mean, not in the difference
    (attention,) = (row for row in made.rows if row.name == "attention")
    assert attention.seeds == (0, 1, 5)
    assert attention.difference is not None
    assert attention.difference.mean == -0.375
    assert "attention: difference to none over seeds 0, 1; seed 5 only in attention." in one_line(printed(console))


def test_without_a_common_seed_the_difference_is_blank(experiment: Path, add_run: AddRun) -> None:
    add_run("none", seed=0)
    add_run("softmax", seed=1)
    made = report(experiment, console=a_console())
    assert [row["diff_to_baseline"] for row in read_csv(experiment)] == ["0.0", ""]
    assert made.notes == (
        "softmax: difference to none left blank, no seed in common; seed 1 only in softmax, seed 0 only in none.",
    )


@pytest.mark.usefixtures("three")
def test_another_row_can_be_the_baseline(experiment: Path) -> None:
    report(experiment, baseline="attention", console=a_console())
    assert [row["diff_to_baseline"] for row in read_csv(experiment)] == ["0.0", "0.375", "0.75"]


@pytest.mark.usefixtures("three")
def test_a_baseline_that_is_not_there_leaves_the_differences_blank_and_is_said(experiment: Path) -> None:
    console = a_console()
    report(experiment, terms=Terms("nobody"), console=console)
    assert [row["diff_to_baseline"] for row in read_csv(experiment)] == ["", "", ""]
    assert "no finished run of the baseline 'nobody'. Rows: 'attention', 'none', 'softmax'." in one_line(
        printed(console)
    )


def test_a_baseline_that_could_be_two_rows_is_asked_for_by_its_whole_name(experiment: Path, add_run: AddRun) -> None:
    for n_embd in (32, 64):
        add_run("none", config={"model": {"n_embd": n_embd}}, folder=f"none-{n_embd}")
    (note,) = make_report(experiment).notes
    assert "could be any of 'none n_embd=32', 'none n_embd=64'." in note
    assert make_report(experiment, baseline="none n_embd=64").notes == ()


@pytest.mark.usefixtures("three")
def test_runs_that_did_not_finish_are_listed_by_name_with_their_reason(experiment: Path, add_run: AddRun) -> None:
    error = {"type": "BadInput", "message": "loss is nan at step 40"}
    add_run("sum", summary={"status": "failed", "error": error})
    (add_run("window") / "summary.json").unlink()
    (experiment / "notes").mkdir()
    console = a_console()
    report(experiment, console=console)
    assert printed(console).startswith("part03: 5 finished, 1 failed, 1 unfinished, 1 unreadable\n")
    assert "failed: sum-seed0: BadInput: loss is nan at step 40\n" in printed(console)
    assert "unfinished: window-seed0: no step logged yet\n" in printed(console)
    assert "unreadable: notes: not a run: it has none of a run's files\n" in printed(console)
    assert len(read_csv(experiment)) == 3


def test_with_nothing_finished_there_is_a_header_and_the_list(experiment: Path, add_run: AddRun) -> None:
    add_run("sum", summary={"status": "failed", "error": {"type": "ValueError", "message": "no"}})
    console = a_console()
    made = report(experiment, console=console)
    assert made.rows == ()
    assert (experiment / "report.csv").read_text(encoding="utf-8").count("\n") == 1
    assert "No run has finished yet" in printed(console)
    assert "failed: sum-seed0: ValueError: no" in printed(console)


@pytest.mark.parametrize("label", ["[bold]mine[/bold]", "[/]", ":smile:", 'a, "b"', "naïve 漢字", "=1+1"])
def test_a_label_is_printed_and_written_as_it_is(experiment: Path, add_run: AddRun, label: str) -> None:
    add_run("softmax", label=label, summary={"status": "finished"})
    error = {"type": "ValueError", "message": f"{label} is wrong"}
    add_run("sum", summary={"status": "failed", "error": error})
    console = a_console()
    report(experiment, baseline=label, console=console)
    assert [row["agg"] for row in read_csv(experiment)] == [label]
    assert f"\n{label} " in printed(console)
    assert f"failed: sum-seed0: ValueError: {label} is wrong" in printed(console)


def test_what_is_not_known_is_left_blank(experiment: Path, add_run: AddRun) -> None:
    add_run("none", summary={"n_params": None, "chars_per_second": "fast"})
    report(experiment, console=a_console())
    assert read_csv(experiment)[0]["n_params"] == ""
    assert read_csv(experiment)[0]["chars_per_second"] == ""


def test_a_repeated_run_is_named(experiment: Path, add_run: AddRun) -> None:
    add_run("none", folder="a")
    add_run("none", folder="b")
    assert make_report(experiment).notes == ("none: b repeats seed 0 with the same config and is not counted.",)


def test_a_row_that_sees_the_future_is_told_to_be_no_comparison(experiment: Path, add_run: Callable[..., Path]) -> None:
    add_run("none", summary={"check": {"leak": None}})
    add_run("leaky", val_loss=0.1, summary={"check": {"causality": "warn", "leak": "leaky sees the future: …"}})
    (note,) = make_report(experiment).notes
    assert note.startswith("leaky sees the future (trained with check.causality=warn)")


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize("width", [130, 100, 80, 60, 45])
def test_names_losses_and_differences_are_whole_on_a_terminal_of(experiment: Path, width: int) -> None:
    console = a_console(width)
    report(experiment, console=console)
    for text in ("attention ", " 2.2500 ", " -0.3750"):
        assert text in printed(console)
    table = printed(console).splitlines()[1:6]
    assert max(map(len, table)) <= width
    assert ("█" in printed(console)) == (width == 130)
    assert "…" not in printed(console)


@pytest.mark.usefixtures("three")
def test_where_the_page_is_stands_in_one_piece_on_a_screen_of_any_width(experiment: Path) -> None:
    console = a_console(20)
    report(experiment, console=console)
    assert f"The page: {experiment.as_posix()}/report.html; for programs: report.json" in printed(console)


@pytest.mark.usefixtures("three")
def test_a_long_name_is_folded_rather_than_a_column_left_out(experiment: Path, add_run: AddRun) -> None:
    add_run("window", label="the four characters before it")
    console = a_console(129)
    report(experiment, console=console)
    assert "\nthe four          " in printed(console)
    assert "chars/s" in printed(console)
    assert "█" in printed(console)


@pytest.mark.usefixtures("three")
def test_a_terminal_that_knows_ascii_only_gets_ascii(experiment: Path, add_run: AddRun) -> None:
    add_run("sum", label="naïve")
    console = a_console(encoding="ascii")
    report(experiment, console=console)
    assert "attention |     2 | 2.2500 | 0.0000 |    -0.3750 |  1.5883 | undecided" in printed(console)
    assert "na?ve" in printed(console)
    assert [row["agg"] for row in read_csv(experiment)][1] == "naïve"


@pytest.mark.usefixtures("three")
def test_an_earlier_report_is_replaced_whole_and_nothing_is_left_beside_it(experiment: Path) -> None:
    (experiment / "report.csv").write_text("old " * 1000, encoding="utf-8")
    report(experiment, console=a_console())
    assert len(read_csv(experiment)) == 3
    assert {path.name for path in experiment.iterdir() if path.is_file()} == {
        "report.csv",
        "report.html",
        "report.json",
    }


@pytest.mark.usefixtures("three")
def test_a_report_that_cannot_be_written_is_refused_by_name(experiment: Path) -> None:
    (experiment / "report.csv").mkdir()
    with pytest.raises(BadInput, match=r"report\.csv cannot be written: Is a directory"):
        report(experiment, console=a_console())
    assert not [path for path in experiment.iterdir() if path.is_file()]


@pytest.mark.usefixtures("three")
def test_the_picture_is_the_same_bytes_in_any_terminal(
    experiment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "docs" / "a.svg", tmp_path / "docs" / "b.svg"
    write_svg(make_report(experiment), first)
    for name, value in {"TERM": "dumb", "COLUMNS": "40", "NO_COLOR": "1", "LC_ALL": "C"}.items():
        monkeypatch.setenv(name, value)
    write_svg(make_report(experiment), second)
    assert first.read_bytes() == second.read_bytes()


def test_the_picture_is_whole_xml_that_shows_the_table_and_loads_nothing(
    experiment: Path, add_run: AddRun, tmp_path: Path
) -> None:
    add_run("softmax", label="<script>& \x1b[0m")
    add_run("none", val_loss=2.75)
    write_svg(make_report(experiment), tmp_path / "a.svg")
    source = (tmp_path / "a.svg").read_text(encoding="utf-8")
    root = xml.etree.ElementTree.fromstring(source)
    assert not [element for element in root.iter() if element.tag.endswith("script")]
    shown = "".join(root.itertext()).replace("\N{NO-BREAK SPACE}", " ")
    assert "2.7500" in shown
    assert "-0.2500" in shown
    assert "█" in shown
    assert "<script>& \N{REPLACEMENT CHARACTER}[0m" in shown
    assert "@font-face" not in source
    assert source.count("http") == source.count("http://www.w3.org/2000/svg") == 1
    assert "url(" not in source.replace("url(#trilab-", "")


def test_the_report_needs_neither_torch_nor_hydra(tmp_path: Path) -> None:
    code = (
        "import sys, trilab.report\n"
        "print(sorted({'torch', 'lightning', 'hydra', 'omegaconf', 'wandb', 'torchmetrics'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert done.stdout == "[]\n"
