"""metrics.jsonl read as it grows, whatever has become of it."""

import json
import os
from pathlib import Path

import pytest

from trilab.overview.history import History


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metrics.jsonl"


def append(path: Path, text: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(text)


def looked_at(path: Path) -> History:
    history = History(path)
    history.look()
    return history


def test_rows_give_the_step_the_val_losses_and_the_speed(path: Path) -> None:
    append(path, '{"step": 50, "train/loss": 3.1, "chars_per_second": 100.0}\n')
    append(path, '{"step": 100, "train/loss": 2.9, "chars_per_second": 300.0}\n{"step": 100, "val/loss": 2.8}\n')
    history = looked_at(path)
    assert (history.step, history.val_losses, history.chars_per_second) == (100, {100: 2.8}, 200.0)
    assert history.steps_between_rows == 50


def test_no_file_is_a_run_at_step_0(path: Path) -> None:
    history = looked_at(path)
    assert (history.step, history.val_losses, history.chars_per_second) == (0, {}, None)


def test_a_row_that_is_still_being_written_waits_for_its_end(path: Path) -> None:
    append(path, '{"step": 50, "val/loss": 3.0}\n{"step": 100, "val/lo')
    history = looked_at(path)
    assert history.val_losses == {50: 3.0}
    append(path, 'ss": 2.5}\n')
    history.look()
    assert history.val_losses == {50: 3.0, 100: 2.5}


def test_a_second_look_reads_only_what_is_new(path: Path) -> None:
    append(path, '{"step": 50, "val/loss": 3.0}\n' + '{"step": 60, "train/loss": 3.0}\n' * 1000)
    history = looked_at(path)
    before = path.stat()
    # what has been read is made unreadable, the last bytes aside: a second reading of it would lose the first row
    text = path.read_bytes()
    with path.open("r+b") as file:
        file.write(b" " * (len(text) - 100))
    append(path, '{"step": 100, "val/loss": 2.5}\n')
    assert path.stat().st_ino == before.st_ino
    history.look()
    assert history.val_losses == {50: 3.0, 100: 2.5}


@pytest.mark.parametrize("way", ["replaced", "cut", "cut and grown again"])
def test_a_file_that_a_resume_cut_back_is_read_anew(path: Path, way: str) -> None:
    rows = [f'{{"step": {step}, "val/loss": {step / 100}}}\n' for step in (100, 200, 300)]
    append(path, "".join(rows))
    history = looked_at(path)
    if way == "replaced":
        beside = path.with_name("new")
        beside.write_text(rows[0], encoding="utf-8")
        beside.replace(path)
    else:
        os.truncate(path, len(rows[0]))
    if way == "cut and grown again":
        append(path, '{"step": 150, "val/loss": 1.5}\n' * 5)
    history.look()
    assert 300 not in history.val_losses
    assert history.val_losses[100] == 1.0
    assert history.step == (150 if way == "cut and grown again" else 100)


def test_a_file_that_was_removed_is_a_run_at_step_0_again(path: Path) -> None:
    append(path, '{"step": 50, "val/loss": 3.0}\n')
    history = looked_at(path)
    path.unlink()
    history.look()
    assert (history.step, history.val_losses) == (0, {})


@pytest.mark.parametrize(
    "garbage",
    [
        b"\n",
        b"\0\0\0\0{}\n",
        b"\xff\xfe\n",
        b"[1, 2]\n",
        b"null\n",
        b"[" * 100_000 + b"\n",
        b'{"step": true, "val/loss": 9.0}\n',
        b'{"step": -5, "val/loss": 9.0}\n',
        b'{"step": "100", "val/loss": 9.0}\n',
        b'{"step": 1e400, "val/loss": 9.0}\n',
        b'{"step": ' + b"9" * 5000 + b"}\n",
        b'{"val/loss": 9.0}\n',
        b'{"step": 50, "val/loss": NaN}\n',
        b'{"step": 50, "val/loss": "low"}\n',
        b'{"step": 50, "chars_per_second": 0}\n',
        b"x" * 3_000_000 + b"\n",
    ],
)
def test_lines_that_are_no_rows_are_passed_over(path: Path, garbage: bytes) -> None:
    path.write_bytes(b'{"step": 50, "val/loss": 3.0}\n' + garbage + b'{"step": 100, "val/loss": 2.5}\n')
    history = looked_at(path)
    assert (history.step, history.val_losses, history.chars_per_second) == (100, {50: 3.0, 100: 2.5}, None)


def test_a_folder_in_the_file_s_place_says_nothing(path: Path) -> None:
    path.mkdir()
    assert looked_at(path).step == 0


def test_the_speed_is_the_median_of_the_latest_measurements(path: Path) -> None:
    speeds = [1.0] * 20 + [100.0] * 8 + [5000.0]
    append(path, "".join(json.dumps({"step": s, "chars_per_second": speed}) + "\n" for s, speed in enumerate(speeds)))
    assert looked_at(path).chars_per_second == 100.0
