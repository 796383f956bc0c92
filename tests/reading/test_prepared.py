"""A long text is prepared once; whatever happens to it or to what was prepared, ids and text fit together."""

import gzip
import json
import logging
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from trilab.corpora import file
from trilab.corpus import Corpus
from trilab.datamodule import CharData
from trilab.errors import BadInput
from trilab.reading import decoding, prepared, sources

TEXT = "naïve 漢字 🙂 words\n" * 400
OTHER = "quite another text\r\n" * 500


@pytest.fixture
def long(monkeypatch):
    """Every text of more than a hundred characters is a long one, and comes in many chunks."""
    monkeypatch.setattr(prepared, "IN_MEMORY", 100)
    monkeypatch.setattr(sources, "PIECE", 1000)
    monkeypatch.setattr(decoding, "PIECE", 1000)


@pytest.fixture
def source(tmp_path, long):
    path = tmp_path / "notes.txt"
    write(path, TEXT)
    return path


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "prepared"


def write(path: Path, text: str, age: float = 100) -> None:
    """A text that was written so many seconds ago."""
    path.write_bytes(text.encode())
    os.utime(path, (time.time() - age,) * 2)


def read(source: Path, folder: Path) -> Corpus:
    return file.read(str(source), prepared=str(folder))


def only(folder: Path, kind: str) -> Path:
    (found,) = folder.glob(f"*.{kind}")
    return found


def notes_of(folder: Path) -> dict[str, Any]:
    notes: dict[str, Any] = json.loads(only(folder, "json").read_text())["notes"]
    return notes


def note(folder: Path, **other: object) -> None:
    """Other notes, as if they had been written."""
    only(folder, "json").write_bytes(prepared.sealed(notes_of(folder) | other))


@pytest.fixture
def said(caplog, monkeypatch):
    caplog.set_level(logging.INFO, "trilab")
    monkeypatch.setattr(logging.getLogger("trilab"), "propagate", True)  # a command before may have taken it

    def since() -> str:
        text = caplog.text
        caplog.clear()
        return text

    return since


def test_what_is_prepared_is_what_is_read_in_memory(source, folder, monkeypatch):
    long = read(source, folder)
    monkeypatch.setattr(prepared, "IN_MEMORY", 1 << 20)
    short = read(source, source.parent / "nothing")
    for name in ("name", "origin", "vocabulary", "sha256", "findings"):
        assert getattr(long, name) == getattr(short, name)
    assert long.text == TEXT
    assert np.array_equal(long.tokens, short.tokens)
    assert long.tokens.dtype == short.tokens.dtype


def test_a_short_text_leaves_no_folder(tmp_path, folder):
    write(tmp_path / "short.txt", TEXT)
    read(tmp_path / "short.txt", folder)
    assert not folder.exists()


def test_the_second_time_the_text_is_not_read(source, folder, monkeypatch):
    first = read(source, folder)
    monkeypatch.setattr(prepared, "joined", None)
    second = read(source, folder)
    assert np.array_equal(second.tokens, first.tokens)
    assert (second.vocabulary, second.sha256, second.findings) == (first.vocabulary, first.sha256, first.findings)


def test_the_array_is_mapped_and_writing_to_it_does_no_harm(source, folder):
    tokens = read(source, folder).tokens
    assert isinstance(tokens.base, np.memmap)
    tokens[:] = 0
    assert read(source, folder).text == TEXT


def test_a_changed_text_is_prepared_anew_in_its_place_and_told(source, folder, said):
    read(source, folder)
    write(source, OTHER)
    said()
    assert read(source, folder).text == OTHER.replace("\r\n", "\n")
    assert "notes.txt has changed since it was prepared: it is read anew." in said()
    assert len(list(folder.glob("*.tokens"))) == 1
    assert read(source, folder).text == OTHER.replace("\r\n", "\n")
    assert not said()


def test_a_change_that_keeps_size_and_time_is_noticed_where_the_clock_could_not_show_it(source, folder, said):
    read(source, folder)
    began = notes_of(folder)["began_ns"] + 1_000_000_000
    source.write_bytes(TEXT.replace("words", "sword").encode())
    os.utime(source, ns=(began, began))
    with_its_time = [[path, size, began] for path, size, _ in notes_of(folder)["sources"]]
    note(folder, sources=with_its_time)  # as if it had been there when it was prepared
    said()
    assert read(source, folder).text == TEXT.replace("words", "sword")
    assert "written to just when it was prepared" in said()


def test_a_text_that_was_just_written_is_read_once_its_clock_has_ticked(source, folder, said, monkeypatch):
    monkeypatch.setattr(prepared, "SURELY_OLDER", 700_000_000)
    write(source, TEXT, age=0)
    written = source.stat().st_mtime_ns
    read(source, folder)
    assert "was written to just now: it is read in 0." in said()
    assert notes_of(folder)["began_ns"] >= written + 700_000_000
    assert read(source, folder).text == TEXT
    assert not said()


@pytest.mark.parametrize("ahead", [1000, 100_000_000])
def test_a_text_from_the_future_is_prepared_once(source, folder, said, ahead):
    write(source, TEXT, age=-ahead)
    read(source, folder)
    assert "Prepared" in said()
    assert read(source, folder).text == TEXT
    assert not said()


def test_a_text_that_is_read_in_another_way_is_another_one(source, folder):
    write(source, OTHER)
    kept = file.read(str(source), newline="keep", prepared=str(folder))
    assert read(source, folder).sha256 != kept.sha256
    assert file.read(str(source), newline="keep", prepared=str(folder)).text == OTHER


def test_one_file_more_in_a_folder_is_noticed(tmp_path, folder, long):
    (tmp_path / "texts").mkdir()
    write(tmp_path / "texts" / "a", TEXT)
    read(tmp_path / "texts", folder)
    write(tmp_path / "texts" / "b", OTHER)
    assert read(tmp_path / "texts", folder).text == f"{TEXT}\n{OTHER}".replace("\r\n", "\n")


def test_a_text_longer_than_4_gib_is_read_at_every_place(source, folder):
    """Its token file is made longer by a hole, which needs no room on the disk."""
    read(source, folder)
    tokens = only(folder, "tokens")
    begin = tokens.read_bytes()
    length = (1 << 32) + 5_000
    with tokens.open("r+b") as stream:
        stream.seek(length - len(begin))
        stream.write(begin)
    status = tokens.stat()
    note(folder, characters=length, tokens=[length, status.st_mtime_ns])
    corpus = read(source, folder)
    assert len(corpus) == length
    data = CharData(
        corpus,
        seed=1,
        block_size=8,
        batch_size=4000,
        val_share=1e-6,
        test_share=1e-7,
        val_chars=64,
        max_steps=1,
        accumulate=1,
    )
    assert int(data.windows.starts(0).max()) > 4 * 10**9
    for batch in (data.validation[0], data.test[-1]):
        windows = data.transfer_batch_to_device(batch, torch.device("cpu"), 0)
        for start, inputs, targets in zip(batch.starts.tolist(), windows.inputs, windows.targets, strict=True):
            assert start >= 4 * 10**9
            assert corpus.tokens[start : start + batch.length + 1].tolist() == [*inputs.tolist(), int(targets[-1])]
    assert corpus.vocabulary.decode(corpus.tokens[-len(TEXT) :]) == TEXT


def damage(path: Path, kind: str) -> None:
    content = bytearray(path.read_bytes())
    if kind == "cut off":
        content = content[:-1]
    elif kind == "one bit":
        content[len(content) // 2] ^= 1
    elif kind == "empty":
        content.clear()
    if kind == "gone":
        path.unlink()
    else:
        path.write_bytes(content)


@pytest.mark.parametrize("which", ["tokens", "json"])
@pytest.mark.parametrize("kind", ["cut off", "one bit", "empty", "gone"])
def test_what_is_damaged_is_prepared_anew(source, folder, which, kind):
    read(source, folder)
    damage(only(folder, which), kind)
    assert read(source, folder).text == TEXT
    assert read(source, folder).text == TEXT


@pytest.mark.parametrize(
    "notes",
    [
        *("[]", "{}", "null", '{"format": 1}', '{"format": 999}', "\ud800", '{"format": 2, "notes": 5}'),
        *('{"format": 2, "notes": 5, "sha256": 5}', "[" * 100_000, '{"format": 2, "notes": ' + "[" * 100_000),
    ],
)
def test_foreign_notes_are_replaced(source, folder, notes):
    read(source, folder)
    only(folder, "json").write_bytes(notes.encode("utf-8", "surrogatepass"))
    assert read(source, folder).text == TEXT
    assert notes_of(folder)["characters"] == len(TEXT)


@pytest.mark.parametrize("step", [37, pytest.param(1, marks=pytest.mark.slow)])
def test_no_byte_of_the_notes_can_change_without_being_noticed(source, folder, monkeypatch, step):
    monkeypatch.setattr(os, "fsync", lambda file: None)  # a thousand texts are prepared, which no disk need hold
    right = read(source, folder)
    notes = only(folder, "json")
    content = notes.read_bytes()
    for place in range(0, len(content), step):
        changed = bytearray(content)
        changed[place] ^= 1
        notes.write_bytes(changed)
        corpus = read(source, folder)
        assert (corpus.text, corpus.sha256, corpus.vocabulary) == (TEXT, right.sha256, right.vocabulary)
        assert corpus.findings == right.findings


@pytest.mark.parametrize(
    "other", [{"vocabulary": "ab"}, {"vocabulary": ""}, {"vocabulary": 5}, {"findings": {"nul": "x"}}, {"sha256": "x"}]
)
def test_what_somebody_else_has_written_into_the_notes_is_not_believed(source, folder, other, said):
    right = read(source, folder)
    content = json.loads(only(folder, "json").read_text())
    content["notes"] |= other
    only(folder, "json").write_text(json.dumps(content))
    assert read(source, folder).sha256 == right.sha256
    assert "is damaged (its notes are not as they were written)" in said()


def test_a_text_in_which_something_is_wrong_at_the_end_leaves_nothing(source, folder):
    source.write_bytes(TEXT.encode() + b"\xff")
    os.utime(source, (0, 0))
    with pytest.raises(BadInput, match="byte 0xFF"):
        read(source, folder)
    assert not [path for path in folder.iterdir() if path.suffix != ".lock"]


@pytest.mark.parametrize("text", [" \n" * 500, "\0" * 0])
def test_nothing_to_learn_from_is_refused_however_long(source, folder, text):
    write(source, text)
    with pytest.raises(BadInput, match=r"nothing but white space|is empty"):
        read(source, folder)


def test_a_text_that_grows_while_it_is_read_is_refused(source, folder, monkeypatch):
    def growing(chunks):
        yield from chunks
        with source.open("a") as stream:
            stream.write("more")

    monkeypatch.setattr(prepared, "gathered", growing)
    with pytest.raises(BadInput, match="was changed while it was read"):
        read(source, folder)


def test_a_folder_that_cannot_be_made_is_refused_with_its_key(source, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match=r"data.prepared=.*file/in cannot take the token ids of .*notes.txt: "):
        read(source, tmp_path / "file" / "in")


PROGRAM = """
import logging, sys
logging.basicConfig(level="INFO", stream=sys.stdout, format="%(message)s")
from trilab.reading import decoding, prepared, sources
from trilab.corpora import file
prepared.IN_MEMORY, sources.PIECE, decoding.PIECE = 100, 1000, 1000
print(file.read(sys.argv[1], prepared=sys.argv[2]).sha256)
"""


def process(*arguments: object, program: str = PROGRAM, **environment: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", program, *map(str, arguments)]
    pipe, env = subprocess.PIPE, os.environ | environment
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=env)


@pytest.mark.parametrize("compiler", ["nowhere", "cc"])
def test_with_a_compiler_or_without_the_same_is_prepared(source, folder, tmp_path, compiler):
    right, tokens = read(source, folder), only(folder, "tokens").read_bytes()
    cache, other = tmp_path / "cache", tmp_path / "other"
    out, err = process(source, other, CC=compiler, XDG_CACHE_HOME=str(cache)).communicate(timeout=60)
    assert not err
    assert out.splitlines()[-1] == right.sha256
    assert only(other, "tokens").read_bytes() == tokens
    assert out.count("Texts are read by Python's own ways, which are slower: ") == (compiler == "nowhere")
    assert cache.exists() == (compiler == "cc")


def test_reading_a_text_does_not_import_torch(source, folder):
    program = PROGRAM + "assert 'torch' not in sys.modules\n"
    assert not process(source, folder, program=program).communicate(timeout=60)[1]


def test_processes_that_come_at_once_do_no_harm(source, folder):
    together = [process(source, folder) for _ in range(4)]
    said = [one.communicate(timeout=60) for one in together]
    assert {out.splitlines()[-1] for out, _ in said} == {read(source, folder).sha256}
    assert sum("is prepared once" in out for out, _ in said) == 1
    assert sorted(path.suffix for path in folder.iterdir()) == [".json", ".lock", ".tokens"]


def test_of_processes_that_come_for_a_text_just_written_one_prepares_it(source, folder):
    write(source, TEXT, age=-0.5)
    program = PROGRAM.replace("print", "prepared.SURELY_OLDER = 1_000_000_000\nprint")
    together = [process(source, folder, program=program) for _ in range(3)]
    said = [one.communicate(timeout=60)[0] for one in together]
    assert sum("Prepared" in out for out in said) == 1
    assert {out.splitlines()[-1] for out in said} == {read(source, folder).sha256}


STOPPING = """
import sys
from trilab.reading import decoding, encoder, prepared, sources
class Stopping(encoder.Encoder):
    def settle(self, tell):
        print("here", flush=True)
        sys.stdin.read()
prepared.Encoder, prepared.IN_MEMORY, sources.PIECE, decoding.PIECE = Stopping, 100, 1000, 1000
from trilab.corpora import file
file.read(sys.argv[1], prepared=sys.argv[2])
"""


def test_one_that_is_killed_leaves_nothing_that_lasts(source, folder, said):
    command = [sys.executable, "-c", STOPPING, str(source), str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as preparing:
        assert preparing.stdout is not None
        assert preparing.stdout.readline() == b"here\n"
        waiting = process(source, folder)
        with pytest.raises(subprocess.TimeoutExpired):  # it waits for the one that prepares
            waiting.communicate(timeout=1.5)
        preparing.send_signal(signal.SIGKILL)
    words = waiting.communicate(timeout=60)[0].splitlines()
    assert f"Waiting for another process that prepares {source}." in words
    assert words[-1] == read(source, folder).sha256
    assert sorted(path.suffix for path in folder.iterdir()) == [".json", ".lock", ".tokens"]


FULL = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
from trilab.reading import decoding, prepared, sources
from trilab.corpora import file
from trilab.errors import BadInput
prepared.IN_MEMORY, sources.PIECE, decoding.PIECE = 100, 1000, 1000
try:
    file.read(sys.argv[1], prepared=sys.argv[2])
except BadInput as error:
    print(error)
"""


def test_a_disk_without_room_is_one_clear_error_and_leaves_nothing(source, folder):
    out, err = process(source, folder, program=FULL).communicate(timeout=60)
    assert "cannot take the token ids" in out
    assert "data.prepared=" in out
    assert not err
    assert [path.suffix for path in folder.iterdir()] == [".lock"]


def test_a_terminal_is_shown_a_bar_and_anything_else_is_not(source, folder):
    shown, terminal = pty.openpty()
    command = [sys.executable, "-c", PROGRAM, str(source), str(folder)]
    environment = os.environ | {"TERM": "xterm"}
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=terminal, check=True, env=environment)
    os.close(terminal)
    assert b"Reading" in os.read(shown, 100_000)
    os.close(shown)
    assert done.stdout.decode().splitlines()[-1] == read(source, folder).sha256
    again = process(source, folder.parent / "elsewhere")
    assert again.communicate(timeout=60)[1] == ""


FRUGAL = """
import resource, sys
from trilab.corpora import file
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
corpus = file.read(sys.argv[1], prepared=sys.argv[2])
print(len(corpus), (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""

ENDLESS = "漢é🙂" * 300_000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "times", "pack"),
    [
        (b"plain words " * 100_000, 200, False),
        (ENDLESS.encode(), 100, False),
        (ENDLESS.encode("utf-16"), 50, False),
        (b"a bomb " * 100_000, 400, True),
        ("".join(map(chr, [*range(0xD800), *range(0xE000, 0x110000)])).encode(), 60, False),
    ],
    ids=["ascii", "one line", "utf-16", "a bomb", "every character"],
)
def test_memory_does_not_grow_with_the_text(tmp_path, content, times, pack):
    source = tmp_path / "text"
    with gzip.open(source, "wb") if pack else source.open("wb") as stream:
        for _ in range(times):
            stream.write(content)
    os.utime(source, (0, 0))
    out, err = process(source, tmp_path / "prepared", program=FRUGAL).communicate(timeout=300)
    assert not err
    length, megabytes = map(int, out.split())
    assert length > 10_000_000
    assert megabytes < 300
