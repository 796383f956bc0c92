"""data.path=-: the standard input is read once, and is a file from then on."""

import fcntl
import io
import os
import sys
from pathlib import Path

import pytest

from trilab.corpora import file
from trilab.errors import BadInput
from trilab.standard_input import in_its_place, keep

TEXT = "naïve words\n" * 500


@pytest.fixture
def typed(monkeypatch, tmp_path):
    """What stands on standard input; the current folder is the test's own."""

    def stand(content: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))

    monkeypatch.chdir(tmp_path)
    stand(TEXT.encode())
    return stand


def test_it_is_kept_under_the_name_of_what_is_in_it(typed):
    kept = keep(Path("a"))
    assert file.read(str(kept)).text == TEXT
    assert list(Path("a").iterdir()) == [kept]


def test_the_same_text_is_the_same_untouched_file(typed):
    first = keep(Path("a"))
    time = first.stat().st_mtime_ns
    typed(TEXT.encode())
    assert keep(Path("a")) == first
    assert first.stat().st_mtime_ns == time
    typed(b"another")
    assert keep(Path("a")) != first
    assert len(list(Path("a").iterdir())) == 2


@pytest.mark.parametrize("given", ["data.path=-", "++data.path=-", "data.path='-'"])
def test_a_command_line_gets_the_files_name_where_it_named_the_standard_input(typed, given):
    words = in_its_place(["-m", "data=file", given, "data.prepared='my texts'", "seed=1,2"])
    assert words[:2] == ["-m", "data=file"]
    assert words[2].startswith('data.path="my texts/stdin-')
    assert words[3:] == ["data.prepared='my texts'", "seed=1,2"]


def test_a_command_line_that_does_not_name_it_stays_and_nothing_is_read(typed):
    assert in_its_place(["data.path=notes.txt", "label=-"]) == ["data.path=notes.txt", "label=-"]
    assert sys.stdin.read() == TEXT


@pytest.mark.parametrize("name", ["WORLD_SIZE", "SLURM_NTASKS"])
def test_one_of_several_processes_does_not_take_it_from_the_others(typed, monkeypatch, name):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("SLURM_PROCID", "0")
    monkeypatch.setenv(name, "1")
    assert in_its_place(["data.path=-"])[0].startswith("data.path=data/prepared/stdin-")
    monkeypatch.setenv(name, "2")
    with pytest.raises(BadInput, match="only one of several processes"):
        in_its_place(["data.path=-"])


def test_where_it_is_closed_or_empty_nothing_is_kept(typed, monkeypatch):
    typed(b"")
    with pytest.raises(BadInput, match="which is empty"):
        keep(Path("a"))
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(BadInput, match="which is closed"):
        keep(Path("a"))
    assert not list(Path("a").iterdir())


def test_what_somebody_has_edited_is_not_taken_for_what_is_typed(typed):
    kept = keep(Path("a"))
    kept.write_text("edited")
    typed(TEXT.encode())
    assert keep(Path("a")) == kept
    assert kept.read_text(encoding="utf-8") == TEXT


def test_others_may_read_it_as_any_file(typed):
    Path("any").touch()
    assert keep(Path("a")).stat().st_mode == Path("any").stat().st_mode


def test_what_a_process_that_was_killed_has_left_is_removed_and_what_is_being_read_is_not(typed):
    Path("a").mkdir()
    left, read, new = (Path("a", f".stdin.{name}.partial") for name in ("left", "read", "new"))
    for path in (left, read, new):
        path.touch()
    for path in (left, read):
        os.utime(path, (0, 0))
    with read.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        kept = keep(Path("a"))
        assert sorted(Path("a").iterdir()) == sorted([read, new, kept])


def test_a_folder_that_cannot_be_written_to_is_refused(typed):
    Path("a").write_text("")
    with pytest.raises(BadInput, match=r"data\.prepared=a cannot take the standard input"):
        keep(Path("a"))


@pytest.mark.slow
def test_runs_of_a_sweep_read_the_same_text(typed, train):
    done = train("-m", "data=file", "data.path=-", "seed=1,2", "trainer.max_steps=1", "logger=none", quick=False)
    assert done.code == 0
    assert len(done.runs) == 2
    again = train("data=file", "data.path=-", "seed=1", "trainer.max_steps=1", "logger=none", quick=False)
    assert again.code == 2  # nothing is left on it
    assert "is empty" in again.err


def test_what_is_on_it_is_told_by_trilab_data(typed, trilab):
    out = trilab("data", "-").out
    assert "6,000 characters" in out
    assert "data.path=data/prepared/stdin-" in out
