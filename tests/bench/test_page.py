from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console

from trilab.bench import agg, train
from trilab.bench.bars import ALL_MEANS
from trilab.bench.measured import Measured, Series
from trilab.bench.page import BEGIN, END, write_page
from trilab.bench.picture import write_pictures
from trilab.bench.table import show, tables
from trilab.errors import BadInput

from .conftest import Make


@pytest.fixture
def training(made: Make) -> Measured:
    name = train.TINY.name
    speeds = {train.TRAIN_PY: (12.0, 24.0), train.GPT_PY: (10.0, 20.0)}
    series = [Series(name, train.SPEED, way, train.UNIT, values) for way, values in speeds.items()]
    return made("train", series, reference=train.GPT_PY)


@pytest.fixture
def over_time(made: Make) -> Measured:
    series = [
        Series(f"T = {t}", agg.BACKWARD, way, "s", (1e-6 * t**growth,) * 2, t)
        for t in (64, 256, 1024)
        for way, growth in ((agg.COPY, 0), ("attention", 1), ("loop", 1))
        if (way, t) != ("loop", 1024)
    ]
    return made("agg", series, reference=agg.COPY, quick=True)


def test_a_table_has_a_row_a_way_and_tells_it_against_the_reference(training: Measured) -> None:
    (shown,) = tables(training)
    assert shown.header == ("way", train.TINY.name)
    assert shown.rows == ((train.TRAIN_PY, "18 (1.2 ×, 1.2–1.2)"), (train.GPT_PY, "15"))


def test_over_time_a_table_ends_with_the_exponent_of_ways_that_came_far_enough(over_time: Measured) -> None:
    (shown,) = tables(over_time)
    assert shown.header == ("way", "T = 64", "T = 256", "T = 1024", "T^p")
    ends = {row[0]: row[-2:] for row in shown.rows}
    assert ends["attention"][1] == "2.00 (2.00–2.00)"
    assert ends["loop"] == ("", "")


def test_what_was_not_measured_over_time_stands_apart_and_has_no_exponent(over_time: Measured) -> None:
    alone = Series("(2, 8, 8)", agg.BACKWARD, "attention", "s", (1.0, 1.0))
    first, second = tables(replace(over_time, series=(alone, *over_time.series)))
    assert first.header == ("way", "(2, 8, 8)")
    assert second.header[-1] == "T^p"


def test_the_terminal_tells_tables_the_machine_and_what_to_know(over_time: Measured) -> None:
    console = Console(record=True, width=160)
    show(over_time, console)
    said = console.export_text()
    for words in (
        "forward + backward",
        "attention",
        "An Abacus, 2 cores; 1 thread",
        "A note.",
        "too short to judge by",
    ):
        assert words in said


def test_the_page_says_each_bar_with_figure_spread_and_verdict(training: Measured, tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    write_page([training], page)
    text = page.read_text()
    assert f"| train.py / gpt.py's loop, {train.TINY.name} | ≥ 1 × | 1.20 × | 1.20–1.20 | met |" in text
    assert f"| GPU: {ALL_MEANS} / gpt.py's loop, {train.FULL.name} | ≥ 1 × |  |  | not measured |" in text
    assert "| train.py | 18 (1.2 ×, 1.2–1.2) |" in text
    assert "![train](performance/train.svg)" in text
    assert (tmp_path / "performance" / "train.svg").exists()


def test_what_people_wrote_around_the_marks_stays_and_writing_again_changes_nothing(
    training: Measured, over_time: Measured, tmp_path: Path
) -> None:
    page = tmp_path / "performance.md"
    page.write_text(f"# Ours\n\nBefore.\n\n{BEGIN}\nold\n{END}\n\nAfter.\n")
    write_page([over_time, training], page)
    once = page.read_text()
    assert once.startswith("# Ours\n\nBefore.\n")
    assert once.endswith("\nAfter.\n")
    assert "\nold\n" not in once
    write_page([over_time, training], page)
    assert page.read_text() == once


@pytest.mark.parametrize("text", ["nothing", f"{END}\n{BEGIN}\n", f"{BEGIN}\n{BEGIN}\n{END}\n"])
def test_a_page_without_a_place_is_left_as_it_is(training: Measured, tmp_path: Path, text: str) -> None:
    page = tmp_path / "performance.md"
    page.write_text(text)
    with pytest.raises(BadInput, match="has no place"):
        write_page([training], page)
    assert page.read_text() == text


def test_pictures_are_whole_svg_files_with_every_way_on_them(
    training: Measured, over_time: Measured, tmp_path: Path
) -> None:
    written = write_pictures([training, over_time], tmp_path)
    assert sorted(written) == ["agg", "train"]
    for name, ways in (("agg", (agg.COPY, "attention", "loop")), ("train", (train.TRAIN_PY, train.GPT_PY))):
        root = ElementTree.fromstring(written[name].read_text())
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        words = " ".join(root.itertext())
        for way in ways:
            assert way in words
        assert "nan" not in written[name].read_text()


def test_what_has_nothing_to_compare_has_no_picture(made: Make, tmp_path: Path) -> None:
    alone = made("train", [Series("c", "m", "a", "s", (1.0,))], reference="a")
    assert write_pictures([alone], tmp_path) == {}
