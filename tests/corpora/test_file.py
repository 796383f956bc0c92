import codecs
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from trilab.corpora import file
from trilab.errors import BadInput

PLAIN = "abcdefghij\n" * 2_000
MANY_SCRIPTS = "naïve 漢字 🙂 👨‍👩‍👧 e\u0301\n" * 500
CP1252 = b"don\x92t stop\n" * 1_000


@pytest.fixture
def written(tmp_path):
    def write(content: bytes, name: str = "notes.txt") -> str:
        path = tmp_path / name
        path.write_bytes(content)
        return str(path)

    return write


def message(path: str) -> str:
    with pytest.raises(BadInput) as caught:
        file.read(path)
    return str(caught.value)


@pytest.mark.parametrize("text", [PLAIN, MANY_SCRIPTS, "a \0 in it", "\ufeffinside \ufeff"[1:], "x"])
def test_utf8_text_is_read_as_it_is(written, text):
    path = written(text.encode())
    corpus = file.read(path)
    assert (corpus.text, corpus.name, corpus.origin) == (text, "notes.txt", path)


def test_utf8_is_read_in_a_locale_that_is_not(written):
    path = written(MANY_SCRIPTS.encode())
    program = "import sys; from trilab.corpora.file import read; print(read(sys.argv[1]).sha256)"
    environment = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run(
        [sys.executable, "-c", program, path], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == file.read(path).sha256


@pytest.mark.parametrize("text", [PLAIN, MANY_SCRIPTS])
@pytest.mark.parametrize(
    ("mark", "encoding"),
    [
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
        (codecs.BOM_UTF32_LE, "utf-32-le"),
        (codecs.BOM_UTF32_BE, "utf-32-be"),
    ],
)
def test_a_byte_order_mark_tells_the_encoding_and_is_removed(written, text, mark, encoding):
    assert file.read(written(mark + text.encode(encoding))).text == text


@pytest.mark.parametrize("end", ["\r\n", "\r"])
def test_all_line_ends_are_read_as_lf(written, end):
    unix, other = written(PLAIN.encode()), written(PLAIN.replace("\n", end).encode(), "other.txt")
    assert file.read(other).sha256 == file.read(unix).sha256


def test_mixed_line_ends_keep_empty_lines(written):
    assert file.read(written(b"a\r\n\r\nb\r\rc\n\rd")).text == "a\n\nb\n\nc\n\nd"


def test_a_relative_path_starts_at_the_current_folder(written, tmp_path, monkeypatch):
    written(b"here")
    monkeypatch.chdir(tmp_path)
    assert file.read("notes.txt").text == "here"


def test_a_tilde_is_the_home_folder(written, tmp_path, monkeypatch):
    written(b"home")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert file.read("~/notes.txt").text == "home"


def test_a_wrong_byte_is_named_with_its_place_and_the_cure(written):
    path = written(CP1252)
    said = message(path)
    assert f"data.path={path} is not UTF-8: byte 0x92 at offset 3 (line 1)" in said
    assert "Encodings that would read the file: cp1252, latin-1. " in said
    assert "iconv -f cp1252 -t utf-8" in said


@pytest.mark.skipif(shutil.which("iconv") is None, reason="needs iconv")
def test_the_cure_cures(written, tmp_path):
    command = message(written(CP1252, "it's my notes.txt")).partition("for example: ")[2]
    subprocess.run(command, shell=True, check=True)
    assert file.read(str(tmp_path / "it's my notes.utf8.txt")).text == "don\u2019t stop\n" * 1_000


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("mark", [b"", codecs.BOM_UTF8])
def test_offset_and_line_count_from_the_start_of_the_file(written, mark, end):
    before = mark + b"one" + end + b"two" + end + "é".encode()
    assert f"byte 0xFF at offset {len(before)} (line 3)" in message(written(before + b"\xff" + end))


@pytest.mark.parametrize("byte", [0x81, 0xFF, 0xC0])
def test_a_wrong_byte_at_the_very_end_is_no_less_wrong(written, byte):
    assert f"0x{byte:02X} at offset 22,000 (line 2,001)" in message(written(PLAIN.encode() + bytes([byte])))


def test_a_character_that_is_cut_off_is_named_whole(written):
    assert "bytes 0xF0 0x9F 0x99 at offset 2 " in message(written(b"ab" + "🙂".encode()[:3]))


def test_only_encodings_that_can_read_the_file_are_offered(written):
    # cp1252 has no character 0x81; every other byte of UTF-16 text is wrong in UTF-8 or zero.
    assert "would read the file: latin-1. " in message(written(b"abc\x81"))
    assert "would read the file: utf-16-le, " in message(written("né à l\u2019été\n".encode("utf-16-le")))


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf16_without_a_mark_is_refused_though_it_passes_for_utf8(written, encoding):
    said = message(written(PLAIN.encode(encoding)))
    assert f"looks like {encoding}" in said
    assert f"iconv -f {encoding} -t utf-8" in said


@pytest.mark.parametrize(("encoding", "cut"), [("utf-16", 1), ("utf-32", 3)])
def test_a_mark_with_a_broken_text_after_it_is_refused(written, encoding, cut):
    content = "abc".encode(encoding)
    said = message(written(content[:-cut]))
    assert f"mark of {encoding.upper()}" in said
    assert f"at offset {len(content) - {'utf-16': 2, 'utf-32': 4}[encoding]} " in said


@pytest.mark.parametrize("content", [b"", codecs.BOM_UTF8, codecs.BOM_UTF16_LE])
def test_an_empty_file_is_refused(written, content):
    path = written(content)
    assert f"data.path={path} is empty" in message(path)


def test_white_space_alone_is_refused(written):
    assert "nothing but white space (5 characters)" in message(written(" \t\r\n\n\u3000".encode()))


def test_a_missing_file_is_refused_with_the_place_that_was_looked_at(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert f"data.path=nope.txt does not exist (looked for {tmp_path / 'nope.txt'})" in message("nope.txt")


def test_a_folder_is_refused(tmp_path):
    assert f"data.path={tmp_path} is a folder" in message(str(tmp_path))


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("", "is empty"),
        ("a\0b", "null byte"),
        ("x" * 300, "name too long"),
        ("~nobody-of-that-name/a", "home directory"),
    ],
)
def test_a_path_that_cannot_be_opened_is_refused(path, why):
    assert why in message(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_the_right_to_read_it_is_refused(written):
    path = written(b"secret")
    Path(path).chmod(0)
    assert "cannot be read: Permission denied" in message(path)
