"""What can be read once, the standard input or a pipe, is a file from then on."""

import fcntl
import io
import os
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from trilab.corpora import file
from trilab.errors import BadInput
from trilab.reading.standard_input import in_its_place, keep, readable

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


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """The folder for temporary files, empty."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_while_an_option_reads_it_it_is_a_file_that_messages_do_not_name(typed, temporary):
    with readable("-", "--loss") as [source]:
        assert source.path.read_text(encoding="utf-8") == TEXT
        assert (source.given, source.size) == ("--loss -", len(TEXT.encode()))
        assert source.path.is_relative_to(temporary)
    assert not list(temporary.iterdir())


def test_a_pipe_is_a_file_while_it_is_read_too(typed, temporary):
    os.mkfifo("pipe")
    writer = threading.Thread(target=Path("pipe").write_bytes, args=(TEXT.encode(),), daemon=True)
    writer.start()
    with readable("pipe", "--prompt-file") as [source]:
        assert source.path.read_text(encoding="utf-8") == TEXT
        assert source.given == "--prompt-file pipe"
    writer.join()
    assert not list(temporary.iterdir())


def test_what_is_a_file_is_read_where_it_lies(typed, temporary):
    Path("a.txt").write_text("a")
    with readable("a.txt", "--loss") as [source]:
        assert source.path == Path("a.txt")
        assert not list(temporary.iterdir())


@pytest.mark.parametrize("given", ["pipe", "-"])
def test_where_there_is_no_room_for_it_that_is_told(typed, monkeypatch, given):
    if given == "pipe":
        os.mkfifo("pipe")
    monkeypatch.setattr(tempfile, "tempdir", "nowhere")
    with pytest.raises(BadInput, match=f"--loss {given} cannot be kept while it is read: No such file"):
        readable(given, "--loss").__enter__()


@pytest.mark.parametrize(
    ("path", "why"), [("nowhere", "does not"), ("a\0b", "cannot be"), ("x" * 300, "cannot be"), ("", "is empty")]
)
def test_an_option_tells_of_what_cannot_be_read(typed, path, why):
    with pytest.raises(BadInput, match=f"^--loss {path} ?{why}"):
        readable(path, "--loss").__enter__()


def test_a_standard_input_that_breaks_off_is_told_by_what_named_it(typed, monkeypatch):
    for key, read in (("--loss", readable("-", "--loss").__enter__), ("data.path", lambda: keep(Path("a")))):
        terminal, other_end = os.openpty()
        os.close(other_end)
        with os.fdopen(terminal) as stdin:
            monkeypatch.setattr(sys, "stdin", stdin)
            with pytest.raises(BadInput, match=f"^{key}[ =]- cannot be read: Input/output error"):
                read()
    assert not list(Path("a").iterdir())


def test_an_option_tells_of_a_standard_input_that_is_closed(typed, monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(BadInput, match=r"^--loss - is the standard input, which is closed"):
        readable("-", "--loss").__enter__()
