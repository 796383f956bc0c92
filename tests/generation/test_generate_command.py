"""`trilab generate` as a user types it, and docs/generation.md as a user reads it."""

import bz2
import codecs
import gzip
import io
import json
import lzma
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import zstandard

from trilab.generation.generate_command import AT_A_TIME, _same_in_every_locale, _show
from trilab.launch import main as train_main

from ..conftest import QUICK, ROOT, Outcome, exit_code

Command = Callable[..., Outcome]

PAGE = (ROOT / "docs" / "generation.md").read_text(encoding="utf-8")
NAME = PAGE.partition("RUN=outputs/default/")[2].partition("\n")[0]  # the run of the page
ID = "3f9c2a1b"  # and what W&B calls it
SHAKESPEARE = "\n !$&',-.3:;?ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def trained(folder: Path, text: str, *keys: str) -> Path:
    """The folder of a run that has seen little of a text."""
    (folder / "text.txt").write_text(text, encoding="utf-8", newline="")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        given = [*QUICK, "agg=attention", f"data.path={folder}/text.txt", "callbacks.sample_chars=0", *keys]
        patch.setattr(sys, "argv", ["train.py", *given])
        assert exit_code(train_main) == 0
    (run,) = (path.parent for path in folder.glob("outputs/*/*/config.yaml"))
    return run


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the run of the page in it, named as there, though it has hardly been trained."""
    folder = tmp_path_factory.mktemp("page")
    run = trained(folder, SHAKESPEARE * 40)
    run = run.rename(run.with_name(NAME))
    parts = [{"id": ID, "mode": "online", "from_step": 0}]
    (run / "wandb.json").write_text(json.dumps({"parts": parts}), encoding="utf-8")
    return folder


@pytest.fixture
def run(place: Path) -> Path:
    return place / "outputs" / "default" / NAME


@pytest.fixture(scope="module")
def wild(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose vocabulary commands terminals, and writes in no single locale."""
    return trained(tmp_path_factory.mktemp("wild"), "\x1b[31mé漢🙂a\x07b\n" * 200)


@pytest.fixture(scope="module")
def composed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a text that was normalised."""
    return trained(tmp_path_factory.mktemp("composed"), "aé\nbé c\n" * 200, "data.normalise=nfc")


def test_the_prompt_is_followed_by_as_many_characters_as_asked_for(trilab: Command, run: Path) -> None:
    done = trilab("generate", run, "--prompt", "ROMEO:", "--tokens", "40")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("ROMEO:")
    assert len(done.out) == 6 + 40 + 1
    assert trilab("generate", run, "--prompt", "ROMEO:", "--tokens", "0").out == "ROMEO:\n"
    assert len(trilab("generate", run).out) == 500 + 1


def test_three_blocks_follow_a_prompt_longer_than_a_block(trilab: Command, run: Path) -> None:
    done = trilab("generate", run, "--prompt", "a" * 30, "--tokens", "24")  # block_size is 8
    assert (done.code, len(done.out)) == (0, 30 + 24 + 1)


def test_temperature_0_writes_one_text_from_whatever_seed_and_a_seed_one_text(trilab: Command, run: Path) -> None:
    def text(*options: str) -> str:
        return trilab("generate", run, "--prompt", "abc", "--tokens", "40", *options).out

    assert text("--temperature", "0", "--seed", "1") == text("--temperature", "0", "--seed", "2")
    assert text("--top-k", "1") == text("--temperature", "0") == text("--top-p", "1e-9")
    assert text("--seed", "1") == text("--seed", "1") == text("--seed", "1", "--top-k", "1000")
    assert text("--seed", "1") != text("--seed", "2")


def test_a_checkpoint_is_as_good_as_its_folder_and_the_text_is_not_needed(trilab: Command, run: Path) -> None:
    by_run = trilab("generate", run, "--tokens", "40").out
    assert trilab("generate", run / "checkpoints" / "best.ckpt", "--tokens", "40").out == by_run
    assert trilab("generate", ID, "--outputs", run.parents[1], "--tokens", "40").out == by_run
    assert trilab("generate", f"me/trilab/{ID}", "--outputs", run.parents[1], "--tokens", "40").out == by_run


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--prompt=-x"], "-x"),
        (["--prompt=--tokens"], "--tokens"),
        (["--prompt=--"], "--"),
        (["--prompt", "3"], "3"),
        (["--prompt", "  a  "], "  a  "),
        (["--prompt", "it's, $3; a&b!"], "it's, $3; a&b!"),
        (["--prompt", "a\n\nb\n"], "a\n\nb\n"),
        (["--prompt", ""], ""),
    ],
)
def test_a_prompt_is_text_whatever_it_looks_like(trilab: Command, run: Path, given: list[str], said: str) -> None:
    done = trilab("generate", run, *given, "--tokens", "5")
    assert (done.code, len(done.out)) == (0, len(said) + 5 + 1)
    assert done.out.startswith(said)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--prompt", "abé"],
            "--prompt has a character that is not in the vocabulary: 'é' (U+00E9, first at position 2)",
        ),
        (["--prompt", r"a\nb"], r"'\\' (U+005C, first at position 1)"),
        (["--prompt", "12"], "'1' (U+0031, first at position 0), '2' (U+0032, first at position 1)"),
        (["--temperature", "-1"], "--temperature -1 must be 0"),
        (["--temperature", "nan"], "--temperature nan must be 0"),
        (["--tokens", "-1"], "--tokens -1 must be 0 or more"),
        (["--number", "0"], "--number 0 must be 1 or more"),
        (["--top-k", "0"], "--top-k 0 must be 1 or more"),
        (["--top-p", "0"], "--top-p 0 must be above 0"),
        (["--top-p", "2"], "--top-p 2 must be above 0"),
        (["--stop", ""], "--stop is empty"),
        (["--stop", "é"], "--stop, which could never come, has a character"),
        (["--unbounded"], "--unbounded needs a model without positions"),
        (["--prompt-file", "nowhere"], "--prompt-file nowhere does not exist"),
        (["--loss", "nowhere"], "--loss nowhere does not exist"),
        (["--loss", "a\0b"], "cannot be read: embedded null"),
        (["--loss", ""], "--loss is empty. Give a text file: --loss notes.txt."),
        (["--loss", "/dev/null"], "--loss /dev/null is a pipe or a device"),
        (["--loss", "empty"], "--loss empty is a folder with no file to read in it"),
        (["--prompt-file", "*.md"], "--prompt-file *.md is a pattern that no file matches"),
        (["--loss", "x", "--encoding", "cp1525"], "--encoding cp1525 is no encoding of text files. Did you mean"),
        (["--encoding", "cp1252"], "--encoding is that of a file: give --loss or --prompt-file"),
        (["--prompt", "x", "--encoding", "cp1252"], "--encoding is that of a file: give --loss or --prompt-file"),
        (["--loss", "x", "--top-k", "3"], "--top-k is for writing, and --loss writes nothing"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(
    trilab: Command, run: Path, tmp_path: Path, arguments: list[str], said: str
) -> None:
    (tmp_path / "empty").mkdir()
    done = trilab("generate", run, *arguments)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize("arguments", [["--tokens", "1e3"], ["--prompt", "a", "--loss", "b"], ["--seed", ""]])
def test_what_is_no_command_line_says_how_to_use_it(trilab: Command, run: Path, arguments: list[str]) -> None:
    done = trilab("generate", run, *arguments)
    assert done.code == 2
    assert "usage: trilab generate" in done.err


def test_huge_numbers_are_numbers(trilab: Command, run: Path) -> None:
    huge = str(10**30)
    done = trilab(
        "generate", run, "--tokens", huge, "--stop", "\n", "--seed", huge, "--top-k", huge, "--temperature", huge
    )
    assert done.code == 0
    assert done.out.endswith("\n\n")


def test_a_run_that_was_stopped_before_its_first_validation_writes_by_its_last_checkpoint(
    trilab: Command, run: Path, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    (begun / "checkpoints").mkdir(parents=True)
    shutil.copy(run / "checkpoints" / "last.ckpt", begun / "checkpoints")
    options = ("--tokens", "20", "--json")
    done = trilab("generate", begun, *options)
    assert (done.code, done.out) == (0, trilab("generate", begun / "checkpoints" / "last.ckpt", *options).out)
    assert done.err == f"{begun} has no best.ckpt, since it has not been validated yet: last.ckpt is taken.\n"
    exported = trilab("export", begun)
    assert exported.out == f"{begun / 'export' / 'last-safetensors'}\n"  # leaves room for that of best.ckpt
    assert exported.err == done.err


def test_a_stop_is_read_as_the_text_was(trilab: Command, run: Path, composed: Path) -> None:
    def written(run: Path, stop: str) -> dict[str, Any]:
        done = trilab("generate", run, "--stop", stop, "--tokens", "2000", "--json")
        assert done.code == 0, done.err
        told: dict[str, Any] = json.loads(done.out)
        return told

    assert written(run, "\r\n") == written(run, "\n")
    assert written(run, "\r\n")["stop"] == "\n"
    assert written(composed, "e\N{COMBINING ACUTE ACCENT}") == written(composed, "é")
    assert written(composed, "é")["text"].endswith("é")


def test_what_is_no_run_says_what_a_run_has(trilab: Command, run: Path, tmp_path: Path) -> None:
    done = trilab("generate", tmp_path)
    assert done.code == 2
    assert f"{tmp_path} is no run: a run's folder has checkpoints/ in it." in done.err
    assert f"Name one of its runs: {run}." in trilab("generate", run.parent).err
    assert "there is no such file or folder" in trilab("generate", "nowhere").err
    (tmp_path / "checkpoints").mkdir()
    assert str(tmp_path / "checkpoints" / "best.ckpt") in trilab("generate", tmp_path).err


def test_a_file_is_a_prompt_less_its_last_line_end(trilab: Command, run: Path, tmp_path: Path) -> None:
    for content, prompt in (("ROMEO:\r\nO\n", "ROMEO:\nO"), ("\ufeffO\n\n", "O\n"), ("O", "O"), ("\n", "")):
        (tmp_path / "prompt.txt").write_bytes(content.encode())
        done = trilab("generate", run, "--prompt-file", "prompt.txt", "--tokens", "3", "--json")
        assert json.loads(done.out)["prompt"] == prompt
    (tmp_path / "prompt.txt").write_bytes(b"a\n\x92")
    assert "byte 0x92 at offset 2 (line 2)" in trilab("generate", run, "--prompt-file", "prompt.txt").err


TEXT = "é漢🙂a\nab\n\nb"  # all of it known to `wild`
KINDS = {
    "utf-8 with its mark": codecs.BOM_UTF8 + TEXT.encode(),
    "utf-16": codecs.BOM_UTF16_LE + TEXT.encode("utf-16-le"),
    "utf-16 in the other order": codecs.BOM_UTF16_BE + TEXT.encode("utf-16-be"),
    "utf-32": codecs.BOM_UTF32_LE + TEXT.encode("utf-32-le"),
    "crlf": TEXT.replace("\n", "\r\n").encode(),
    "gz": gzip.compress(TEXT.encode()),
    "bz2": bz2.compress(TEXT.encode()),
    "xz": lzma.compress(TEXT.encode()),
    "zst": zstandard.compress(TEXT.encode()),
    "utf-16 in a gz": gzip.compress(TEXT.encode("utf-16")),
}
READING = ("--loss", "--prompt-file")  # what an option is given: a file of a text


def what_it_gives(trilab: Command, run: Path, *options: str) -> str:
    """What is said of a text, or what follows it."""
    done = trilab("generate", run, *options, *(() if "--loss" in options else ("--tokens", "9")), "--json")
    assert (done.code, done.err) == (0, "")
    return done.out


@pytest.mark.parametrize("option", READING)
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_is_read_as_those_of_a_training_are(
    trilab: Command, wild: Path, tmp_path: Path, option: str, kind: str
) -> None:
    (tmp_path / "plain").write_bytes(TEXT.encode())
    (tmp_path / "given").write_bytes(KINDS[kind])
    assert what_it_gives(trilab, wild, option, "given") == what_it_gives(trilab, wild, option, "plain")


@pytest.mark.parametrize("option", READING)
@pytest.mark.parametrize("kind", ["utf-8 with its mark", "gz"])
def test_a_pipe_and_the_standard_input_are_as_good_as_a_file(
    trilab: Command, wild: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str, kind: str
) -> None:
    (tmp_path / "plain").write_bytes(TEXT.encode())
    plain = what_it_gives(trilab, wild, option, "plain")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(KINDS[kind])))
    assert what_it_gives(trilab, wild, option, "-") == plain
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(KINDS[kind],), daemon=True)
    writer.start()
    assert what_it_gives(trilab, wild, option, "pipe") == plain
    writer.join()


@pytest.mark.parametrize("option", READING)
def test_a_folder_or_a_pattern_is_its_files_joined(trilab: Command, wild: Path, tmp_path: Path, option: str) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.txt").write_bytes(b"a")
    (tmp_path / "in" / "2.txt").write_bytes("\ufeffé\n".encode())
    (tmp_path / "joined").write_bytes("a\né\n".encode())
    joined = what_it_gives(trilab, wild, option, "joined")
    assert what_it_gives(trilab, wild, option, "in") == joined
    assert what_it_gives(trilab, wild, option, "in/*.txt") == joined


@pytest.mark.parametrize("option", READING)
def test_a_wrong_byte_is_told_with_the_option_that_cures_it(
    trilab: Command, wild: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    (tmp_path / "notes.txt").write_bytes("ab\né\n".encode("cp1252"))
    refused = trilab("generate", wild, option, "notes.txt")
    assert refused.err == (
        f"{option} notes.txt is not UTF-8: byte 0xE9 at offset 3 (line 2) cannot be read (invalid continuation byte). "
        "Encodings that would read the file: cp1252, latin-1. If it is cp1252: --encoding cp1252.\n"
    )
    (tmp_path / "plain").write_bytes("ab\né\n".encode())
    cured = what_it_gives(trilab, wild, option, "notes.txt", "--encoding", "cp1252")
    assert cured == what_it_gives(trilab, wild, option, "plain")
    refused = trilab("generate", wild, option, "notes.txt", "--encoding", "ascii")
    assert f"{option} notes.txt is not ascii (--encoding): byte 0xE9 at offset 3 (line 2)" in refused.err
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\x93")))
    assert f"{option} - is not UTF-8: byte 0x93 at offset 0 (line 1)" in trilab("generate", wild, option, "-").err


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("abab".encode("utf-16-le"), "looks like utf-16-le without a byte order mark, by where its bytes 0x00 stand. "),
        (gzip.compress(b"abab", mtime=0)[:-3], "is a compressed file that cannot be unpacked"),
        (b"%PDF-1.7", "is no text file, but a PDF"),
        ("a".encode("utf-16") + b"\0", "begins with the byte order mark of UTF-16, but byte 0x00 at offset 4"),
        (b"", "The text has 0 characters that the model knows"),
        (codecs.BOM_UTF8, "The text has 0 characters that the model knows"),
    ],
    ids=["utf-16 without a mark", "a gz cut off", "a PDF", "utf-16 with half a character", "nothing", "a mark alone"],
)
def test_what_is_no_text_to_score_is_told(
    trilab: Command, wild: Path, tmp_path: Path, content: bytes, said: str
) -> None:
    (tmp_path / "given").write_bytes(content)
    done = trilab("generate", wild, "--loss", "given")
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert "data." not in done.err


def test_an_empty_file_is_no_prompt(
    trilab: Command, wild: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").touch()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    by_itself = trilab("generate", wild, "--tokens", "9").out
    assert trilab("generate", wild, "--tokens", "9", "--prompt-file", "empty").out == by_itself
    assert trilab("generate", wild, "--tokens", "9", "--prompt-file", "-").out == by_itself


def test_unknown_characters_can_be_left_out_and_are_named(trilab: Command, run: Path) -> None:
    done = trilab("generate", run, "--prompt", "né🙂é", "--unknown", "skip", "--tokens", "0")
    assert (done.code, done.out) == (0, "n\n")
    assert done.err == (
        "--prompt: 3 characters left out that the model does not know: 'é' (U+00E9, 2×), '🙂' (U+1F642, 1×).\n"
    )


def test_several_texts_are_told_apart_and_none_depends_on_how_many_there_are(trilab: Command, run: Path) -> None:
    three = trilab("generate", run, "--number", "3", "--tokens", "30", "--prompt", "O").out
    texts = re.split(r"=== \d of 3 ===\n", three)[1:]
    assert [len(text) for text in texts] == [32, 32, 32]
    assert len(set(texts)) == 3
    assert trilab("generate", run, "--number", "2", "--tokens", "30", "--prompt", "O").out.count(texts[1]) == 1
    assert trilab("generate", run, "--tokens", "30", "--prompt", "O").out == texts[0]


def test_json_is_one_object_a_text_one_a_line(trilab: Command, run: Path) -> None:
    options = ("--number", "2", "--tokens", "60", "--prompt", "O", "--stop", "e", "--stop", "\n")
    rows = [json.loads(line) for line in trilab("generate", run, *options, "--json").out.splitlines()]
    plain = trilab("generate", run, *options).out
    assert [row["number"] for row in rows] == [1, 2]
    for row in rows:
        assert row["prompt"] == "O"
        assert row["stop"] == (row["text"][-1] if row["text"][-1] in "e\n" else None)
        assert f"=== {row['number']} of 2 ===\nO{row['text']}\n" in plain


def test_losses_are_told_by_line_and_for_the_whole(trilab: Command, run: Path, tmp_path: Path) -> None:
    (tmp_path / "said.txt").write_bytes("\ufeffFirst é Citizen:\r\n\r\n\x1b[31mSpeak, speak.".encode())
    assert "'é' (U+00E9, first at position 6)" in trilab("generate", run, "--loss", "said.txt").err
    told = json.loads(trilab("generate", run, "--loss", "said.txt", "--unknown", "skip", "--json").out)
    assert [line["text"] for line in told["lines"]] == ["First é Citizen:", "", "\x1b[31mSpeak, speak."]
    assert [line["characters"] for line in told["lines"]] == [15, 1, 15]
    assert told["characters"] == 31
    assert told["unknown"] == {"é": 1, "\x1b": 1, "[": 1, "1": 1}
    assert told["nats"] == pytest.approx(sum(line["nats"] for line in told["lines"]))
    assert told["nats_per_char"] == pytest.approx(told["nats"] / 31)
    done = trilab("generate", run, "--loss", "said.txt", "--unknown", "skip")
    rows = [line.split() for line in done.out.splitlines()]
    assert rows[0] == ["line", "characters", "nats/char", "bits/char", "text"]
    assert [row[:2] for row in rows[1:5]] == [["1", "15"], ["2", "1"], ["3", "15"], ["whole", "31"]]
    assert float(rows[4][2]) == pytest.approx(told["nats_per_char"], abs=1e-4)
    assert float(rows[4][3]) == pytest.approx(told["bits_per_char"], abs=1e-4)
    assert "4 characters left out" in done.out
    assert "\x1b" not in done.out


def test_json_has_every_line_of_a_long_text_once(trilab: Command, wild: Path, tmp_path: Path) -> None:
    lines = [f"{'a' * (n % 7)}é" for n in range(AT_A_TIME * 2 + 1)]
    (tmp_path / "long.txt").write_text("\n".join(lines), encoding="utf-8")
    told = json.loads(trilab("generate", wild, "--loss", "long.txt", "--json").out)
    assert [(line["line"], line["text"]) for line in told["lines"]] == list(enumerate(lines, 1))
    assert sum(line["characters"] for line in told["lines"]) == told["characters"]


def test_help_and_what_is_refused_early_do_without_torch(run: Path, tmp_path: Path) -> None:
    code = (
        "import atexit, sys\n"
        "atexit.register(lambda: print('LOADED', *sys.modules))\n"
        "from trilab.cli import main\n"
        "main()\n"
    )
    for arguments in (["--help"], [run.parent], ["nowhere"], [run, "--top-k", "0"], [run, "--prompt-file", "no"]):
        done = subprocess.run(
            [sys.executable, "-c", code, "generate", *arguments], cwd=tmp_path, capture_output=True, text=True
        )
        loaded = done.stdout.partition("LOADED")[2].split()
        assert "trilab.cli" in loaded
        assert "torch" not in loaded, arguments


@contextmanager
def output_to(writes: int, monkeypatch: pytest.MonkeyPatch, encoding: str = "utf-8") -> Iterator[None]:
    """The standard output of this process as a descriptor, of a terminal or a pipe."""
    with monkeypatch.context() as patch, os.fdopen(writes, "w", encoding=encoding) as stdout:
        patch.setattr(sys, "stdout", stdout)
        yield


def read_until(reads: int, enough: Callable[[bytes], bool]) -> bytes:
    said = b""
    while not enough(said):
        try:
            chunk = os.read(reads, 1 << 16)
        except OSError:  # what a terminal says once nobody can write to it
            break
        if not chunk:
            break
        said += chunk
    return said


def test_a_terminal_gets_nothing_that_commands_it_and_a_pipe_gets_what_was_written(
    trilab: Command, wild: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt = "\x1b[31ma"
    options = ("generate", wild, "--prompt", prompt, "--tokens", "200")
    reads, writes = os.openpty()
    with output_to(writes, monkeypatch):
        assert trilab(*options).code == 0
        on_terminal = read_until(reads, lambda said: said.endswith(b"\r\n") and len(said.decode()) > len(prompt) + 200)
    os.close(reads)
    reads, writes = os.pipe()
    with output_to(writes, monkeypatch):
        assert trilab(*options).code == 0
    in_pipe = read_until(reads, lambda said: False).decode()
    os.close(reads)
    assert len(in_pipe) == len(prompt) + 200 + 1
    assert in_pipe.startswith(prompt)
    assert "\x1b" in in_pipe[len(prompt) :]
    marked = in_pipe.replace("\x1b", "\N{REPLACEMENT CHARACTER}").replace("\x07", "\N{REPLACEMENT CHARACTER}")
    assert on_terminal.decode().replace("\r\n", "\n") == marked


def test_each_character_can_be_read_before_the_next_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    reads, writes = os.pipe()
    os.set_blocking(reads, False)

    def written() -> Iterator[str]:
        assert os.read(reads, 100) == b"once"
        for character in "aé🙂":
            yield character
            assert os.read(reads, 100) == character.encode()

    with output_to(writes, monkeypatch):
        _show("", "once", written())
    assert os.read(reads, 100) == b"\n"
    os.close(reads)


@pytest.mark.parametrize("terminal", [True, False])
def test_ctrl_c_ends_it_with_130_and_what_was_written_stays(
    trilab: Command, run: Path, monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    reads, writes = os.openpty() if terminal else os.pipe()
    said = []

    def read_and_stop() -> None:
        said.append(read_until(reads, lambda said: len(said) > 300))
        os.kill(os.getpid(), signal.SIGINT)
        said.append(read_until(reads, lambda said: False))

    reader = threading.Thread(target=read_and_stop)
    with output_to(writes, monkeypatch):
        reader.start()
        done = trilab("generate", run, "--prompt", "O Romeo", "--tokens", str(10**9))
    reader.join()
    os.close(reads)
    assert (done.code, done.err) == (130, "")
    text = b"".join(said)
    assert text.startswith(b"O Romeo")
    assert text.endswith(b"\r\n") or not terminal


def test_who_has_read_enough_ends_it_without_a_word(
    trilab: Command, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, writes = os.pipe()
    reader = threading.Thread(target=lambda: (read_until(reads, lambda said: len(said) > 100), os.close(reads)))
    with output_to(writes, monkeypatch):
        reader.start()
        done = trilab("generate", run, "--tokens", str(10**9))
    reader.join()
    assert (done.code, done.err) == (141, "")


def test_a_pipe_gets_utf_8_whatever_the_locale_has(
    trilab: Command, wild: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, writes = os.pipe()
    with output_to(writes, monkeypatch, encoding="ascii"):
        assert trilab("generate", wild, "--prompt", "é漢🙂", "--tokens", "0").code == 0
    assert read_until(reads, lambda said: False) == "é漢🙂\n".encode()
    os.close(reads)


@pytest.mark.slow
def test_in_a_locale_without_utf_8_prompts_and_texts_are_the_same(wild: Path) -> None:
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": ""}
    command = [sys.executable, "-m", "trilab.cli", "generate", wild, "--prompt", "é漢🙂", "--tokens", "100"]
    done = subprocess.run(command, env=os.environ | plain, capture_output=True, cwd=wild)
    assert (done.returncode, done.stderr) == (0, b"")
    text = done.stdout.decode()
    assert text.startswith("é漢🙂")
    assert set("é漢🙂") & set(text[3:])


def test_a_character_that_is_none_in_utf_8_is_told_and_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    reads, writes = os.pipe()
    with output_to(writes, monkeypatch):
        _same_in_every_locale()
        print("é\ud800")
    assert read_until(reads, lambda said: False) == b"\xc3\xa9\\ud800\n"
    os.close(reads)


def typed(command: str, folder: Path) -> tuple[list[str], bytes]:
    """What a shell makes of a command: the arguments of the `trilab` in it, and what is piped into that."""
    script = f'RUN=outputs/default/{NAME}\ntrilab() {{ printf "%s\\0" "$@" > arguments; cat > piped; }}\n{command}\n'
    for name in ("arguments", "piped"):
        (folder / name).write_bytes(b"")
    subprocess.run(["bash", "-c", script], cwd=folder, check=True, stdin=subprocess.DEVNULL)
    words = (folder / "arguments").read_bytes().decode().split("\0")[:-1]
    return words, (folder / "piped").read_bytes()


EXAMPLES = [
    (command, shown.strip())
    for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)
]


@pytest.mark.parametrize(("command", "shown"), EXAMPLES, ids=[command for command, _ in EXAMPLES])
def test_every_example_of_the_page_does_what_stands_below_it(
    command: str, shown: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from trilab.cli import main

    words, piped = typed(command, place)
    if not words:  # a line that makes a file for the next
        assert not shown
        return
    monkeypatch.setattr(sys, "argv", ["trilab", *words])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(piped)))
    monkeypatch.chdir(place)
    code = exit_code(main)
    said = capsys.readouterr()
    if shown == said.err.strip() and code:  # the page shows how it is refused
        return
    assert code == 0, said.err
    if shown.startswith("{"):
        assert json.loads(shown.splitlines()[0]).keys() == json.loads(said.out.splitlines()[0]).keys()


def test_the_python_of_the_page_writes_as_the_command_does(
    place: Path, trilab: Command, run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(code, {"RUN": str(run)})
    written = capsys.readouterr().out
    options = ("--tokens", "40", "--temperature", "0.8", "--top-k", "20", "--seed", "0")
    assert trilab("generate", run, "--prompt", "ROMEO:", *options).out == f"ROMEO:{written}\n"


def test_the_page_has_an_example_of_every_option(trilab: Command) -> None:
    options = set(re.findall(r"--[a-z][a-z-]*", trilab("generate", "--help").out)) - {"--help"}
    assert len(options) > 12
    assert options <= set(re.findall(r"--[a-z][a-z-]*", " ".join(command for command, _ in EXAMPLES)))
