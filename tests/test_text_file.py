"""What is given on the command line, as it is or in a file."""

import io
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from trilab.errors import BadInput
from trilab.text_file import argument, lf, read_text_file, without_last_line_end

PLAIN = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def test_a_file_is_utf_8_less_its_mark_with_line_ends_and_nul_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "prompt.txt"
    path.write_bytes("\ufeffnaïve 漢🙂\r\n\0\ufeff".encode())
    assert read_text_file(str(path), "--prompt-file") == "naïve 漢🙂\r\n\0\ufeff"
    path.write_bytes(b"")
    assert read_text_file(str(path), "--prompt-file") == ""


@pytest.mark.parametrize(
    ("content", "where"),
    [
        (b"abc\xe9", "byte 0xE9 at offset 3 (line 1)"),
        (b"\xef\xbb\xbfa\nb\n\x92c", "byte 0x92 at offset 7 (line 3)"),
        (b"\xff\xfea\0", "byte 0xFF at offset 0 (line 1)"),
        (b"ok \xe6\xbc", "byte 0xE6 at offset 3 (line 1)"),
    ],
)
def test_a_byte_that_is_not_utf_8_is_told_with_its_place_in_the_file(
    tmp_path: Path, content: bytes, where: str
) -> None:
    path = tmp_path / "prompt.txt"
    path.write_bytes(content)
    with pytest.raises(BadInput) as refused:
        read_text_file(str(path), "--prompt-file")
    assert f"--prompt-file {path} is not UTF-8: {where} cannot be read" in str(refused.value)


@pytest.mark.parametrize(
    ("name", "reason"), [("nowhere", "No such file"), (".", "Is a directory"), ("a\0b", "embedded null"), ("", "Is a")]
)
def test_what_is_no_file_is_told_with_the_option_that_named_it(tmp_path: Path, name: str, reason: str) -> None:
    path = str(tmp_path / name)
    with pytest.raises(BadInput) as refused:
        read_text_file(path, "--loss")
    assert str(refused.value).startswith(f"--loss {path} cannot be read: {reason}")


def test_a_pipe_is_read_to_its_end_and_a_minus_is_the_standard_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=("né".encode(),))
    writer.start()
    assert read_text_file(str(pipe), "--prompt-file") == "né"
    writer.join()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("né".encode()), encoding="ascii"))
    assert read_text_file("-", "--prompt-file") == "né"


def test_a_standard_input_that_is_closed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(BadInput, match="--loss - is the standard input, which is closed"):
        read_text_file("-", "--loss")


def test_arguments_are_the_same_in_a_locale_without_utf_8() -> None:
    code = "import sys; from trilab.text_file import argument; print(ascii(argument(sys.argv[1])), end='')"
    said = [
        subprocess.run(
            [sys.executable, "-c", code, word], env=os.environ | environment, capture_output=True, check=True
        ).stdout
        for word in (b"na\xc3\xafve \xf0\x9f\x99\x82", b"123", b"\xe9")
        for environment in ({}, PLAIN)
    ]
    assert said[0] == said[1] == ascii("naïve 🙂").encode()
    assert said[2] == said[3] == b"'123'"
    assert said[4] == said[5] == rb"'\udce9'"  # no UTF-8 in any locale: left to be refused by its code point


def test_what_python_could_read_is_left_alone() -> None:
    for text in ("", "123", " a\\n", "é🙂", "\ud800"):
        assert argument(text) == text


def test_line_ends_become_lf_and_one_at_the_end_can_be_left_out() -> None:
    assert lf("a\r\nb\rc\n\r") == "a\nb\nc\n\n"
    assert [without_last_line_end(text) for text in ("a", "a\n", "a\r\n", "a\n\n", "\n", "", "a\r")] == [
        *("a", "a", "a", "a\n", "", "", "a\r")
    ]
