import bz2
import codecs
import gzip
import logging
import lzma
import os
import subprocess
import sys
import unicodedata
from contextlib import suppress
from encodings.aliases import aliases
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trilab.corpora import file
from trilab.errors import BadInput
from trilab.reading import decoding, sources

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


def cut(monkeypatch: pytest.MonkeyPatch, piece: int) -> None:
    """Let texts come in pieces of so many bytes, after a first one that is long enough to tell a mark."""
    monkeypatch.setattr(sources, "PIECE", piece)
    monkeypatch.setattr(decoding, "PIECE", 8)


def message(path: str, **settings: Any) -> str:
    with pytest.raises(BadInput) as caught:
        file.read(path, **settings)
    return str(caught.value)


@pytest.mark.parametrize("text", [PLAIN, MANY_SCRIPTS, "a \0 in it", "\ufeffinside \ufeff"[1:], "x"])
def test_utf8_text_is_read_as_it_is(written, text):
    path = written(text.encode())
    corpus = file.read(path)
    assert (corpus.text, corpus.name, corpus.origin) == (text, "notes.txt", path)


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
    assert "Encodings that would read the file: cp1252, latin-1. If it is cp1252: data.encoding=cp1252." in said


def test_the_cure_cures(written):
    assert file.read(written(CP1252), encoding="cp1252").text == "don\u2019t stop\n" * 1_000


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


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text("aé漢🙂\n", max_size=9), st.binary(min_size=1, max_size=6), st.text("aé漢🙂\n"), st.integers(1, 9))
def test_any_wrong_bytes_are_named_as_python_names_them_wherever_a_text_is_cut(written, before, wrong, after, piece):
    content = b"words " + before.encode() + wrong.translate(None, bytes(range(128))) + after.encode()
    path, error = written(content), undecodable(content)
    with pytest.MonkeyPatch.context() as patched:
        cut(patched, piece)
        if error is not None:
            named = " ".join(f"0x{byte:02X}" for byte in content[error.start : error.end])
            line = 1 + content.count(b"\n", 0, error.start)
            assert f"{named} at offset {error.start:,} (line {line}) cannot be read ({error.reason})" in message(path)
        else:
            assert file.read(path).text == content.decode()


def undecodable(content: bytes) -> UnicodeDecodeError | None:
    """What Python says of bytes that are no UTF-8."""
    try:
        content.decode()
    except UnicodeDecodeError as error:
        return error
    return None


def test_only_encodings_that_can_read_the_file_are_offered(written):
    # cp1252 has no character 0x81; every other byte of UTF-16 text is wrong in UTF-8 or zero.
    assert "would read the file: latin-1. " in message(written(b"abcdefgh\x81"))
    assert "would read the file: utf-16-le. " in message(written("天地玄黃 宇宙洪荒日月盈昃\n".encode("utf-16-le")))


def test_of_a_file_that_was_utf8_so_far_it_is_told_that_it_is_damaged(written):
    said = message(written("naïve été\n".encode() * 300 + b"\xff"))
    assert "900 characters beyond ASCII before it are good UTF-8, so the file is likely damaged there" in said
    assert "if it is none of UTF-8: cp1251, " in said
    assert "data.encoding=" not in said


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le"])
def test_of_a_file_with_nul_no_encoding_of_single_bytes_is_proposed(written, encoding):
    said = message(written("天地玄黃，宇宙洪荒。\n".encode(encoding) * 100))
    assert f"f it is: data.encoding={encoding}." in said or f"f it is {encoding}: data" in said
    assert "cp125" not in said
    assert "latin-1" not in said


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"PK\3\4\x14\0\0\0", "a zip archive"),
        (b"%PDF-1.7\n", "a PDF"),
        (b"\x89PNG\r\n\x1a\n", "a PNG picture"),
        (b"\x7fELF\2\1\1\0", "a program"),
    ],
)
def test_what_is_known_to_be_no_text_file_is_told_as_what_it_is(written, content, what):
    assert f"is no text file, but {what}" in message(written(content + bytes(range(256))))


def test_bytes_that_are_no_text_in_any_encoding_are_not_given_one(written):
    said = message(written(bytes([1, 2, 3, 0x91, 0, 0xFE, 0, 0]) * 1000))
    assert "it seems to be no text file" in said
    assert "data.encoding" not in said


SCRIPTS = {
    "ru": "Все счастливые семьи похожи друг на друга.\n",
    "he": "בראשית ברא אלהים את השמים ואת הארץ\n",
    "ar": "كان يا ما كان في قديم الزمان\n",
    "el": "Μήνιν ἄειδε θεὰ Πηληϊάδεω Ἀχιλῆος\n",
    "hi": "कर्मण्येवाधिकारस्ते मा फलेषु कदाचन\n",
    "th": "กาลครั้งหนึ่ง นานมาแล้ว\n",
    "zh": "天地玄黃，宇宙洪荒。\n",
}


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("script", SCRIPTS)
def test_utf16_without_a_mark_is_refused_with_its_order_in_any_script(written, script, encoding):
    path = written((SCRIPTS[script] * 100).encode(encoding))
    assert f"data.encoding={encoding}." in message(path)
    assert file.read(path, encoding=encoding).text == SCRIPTS[script] * 100


@pytest.mark.parametrize("text", ["1\t0\t1\t0\t1\n" * 100, "a\0" + "words " * 50, "\x1b[1mbold\x1b[0m\n" * 50])
def test_a_text_with_control_characters_is_not_taken_for_utf16(written, text):
    assert file.read(written(text.encode())).text == text


@pytest.mark.parametrize("encoding", sorted({*aliases.values()}))
def test_in_any_encoding_any_bytes_are_a_text_or_refused(written, encoding):
    for content in (b"a\xff\xfe\x80+\xd8\x00\x1b$B~{", b"\x81", b"\x1b$)C\x0e\xff=3Dxn--\n~{~", b"abc"):
        with suppress(BadInput):
            assert file.read(written(content), encoding=encoding).text


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "U16"])
def test_an_encoding_that_needs_a_byte_order_mark_is_refused_without_one(written, encoding):
    said = message(written("words".encode("utf-32-be")), encoding=encoding)
    assert "does not begin with a byte order mark" in said
    assert "Give data.encoding=utf-" in said


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf16_without_a_mark_is_refused_though_it_passes_for_utf8(written, encoding):
    said = message(written(PLAIN.encode(encoding)))
    assert f"looks like {encoding}" in said
    assert f"data.encoding={encoding}" in said


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


def test_a_pipe_is_refused_instead_of_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert "is a pipe or a device" in message(str(tmp_path / "pipe"))


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


# Encodings


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("cp1252", "don\u2019t – naïve\n"),
        ("shift_jis", "天地\u3000漢字\n"),
        ("gb18030", "天地漢字🙂\n"),
        ("iso2022_jp", "天地\n漢字 abc\n"),
        ("utf-16", "naïve 🙂\n"),
        ("utf-32-be", "naïve 🙂\n"),
        ("cp037", "plain words\n"),
        ("utf-7", "naïve 🙂\n"),
    ],
)
def test_any_encoding_of_pythons_is_read_when_it_is_named(written, monkeypatch, encoding, text):
    cut(monkeypatch, 3)  # characters and shifts are cut
    assert file.read(written((text * 5).encode(encoding)), encoding=encoding).text == text * 5


def test_a_byte_order_mark_tells_more_than_the_encoding_that_was_named(written):
    assert file.read(written("naïve".encode("utf-8-sig")), encoding="cp1252").text == "naïve"


def test_utf16_may_begin_with_nul_where_it_is_named(written):
    assert file.read(written("\0abc".encode("utf-16")), encoding="utf-16").text == "\0abc"


def test_a_wrong_byte_in_a_named_encoding_is_told_with_what_would_read_it(written):
    said = message(written(b"line\r\nsecond \x81"), encoding="cp1252")
    assert "is not cp1252 (data.encoding): byte 0x81 at offset 13 (line 2)" in said
    assert "would read the file: latin-1" in said


def test_utf8_is_offered_where_another_encoding_was_named(written):
    assert "would read the file: utf-8, " in message(written("漢字 naïve".encode()), encoding="ascii")


def test_a_wrong_byte_past_many_pieces_is_named_by_its_place_in_the_file(written, monkeypatch):
    cut(monkeypatch, 5)
    said = message(written("é\r\n".encode() * 100 + b"\xff"))
    assert "byte 0xFF at offset 400 (line 101)" in said


@pytest.mark.parametrize(
    "name", ["base64", "rot13", "hex", "idna", "unicode_escape", "undefined", "", "a\0b", "\ud800"]
)
def test_what_is_no_encoding_of_text_is_refused(written, name):
    assert "is no encoding of text files" in message(written(b"abc"), encoding=name)


@pytest.mark.parametrize(("name", "meant"), [("cp1525", "cp1252"), ("uft-8", "utf-8"), ("shift-jsi", "shift_jis")])
def test_an_unknown_encoding_is_refused_with_those_of_a_like_name(written, name, meant):
    assert meant in message(written(b"abc"), encoding=name).partition("Did you mean")[2]


def test_half_a_surrogate_pair_is_refused_as_no_text(written, monkeypatch):
    path = written(b"many words +2D0-")
    said = f"data.path={path} has half of a surrogate pair, U+D83D, at character 11: "
    assert said in message(path, encoding="utf-7")
    cut(monkeypatch, 1)
    assert said in message(path, encoding="utf-7")


def test_half_a_surrogate_pair_between_files_is_refused_as_no_text(library):
    assert "data.separator has half of a surrogate pair, U+D83D" in message(str(library / "?.txt"), separator="\ud83d")


# Line ends, composed forms, control characters


def test_line_ends_can_be_kept(written):
    assert file.read(written(b"a\r\n\r\nb\r\rc\n\rd"), newline="keep").text == "a\r\n\r\nb\r\rc\n\rd"


def test_line_ends_are_counted_before_they_become_one(written):
    found = file.read(written(b"a\r\n\r\nb\r\rc\n\rd\r")).findings
    assert (found.crlf, found.cr) == (2, 4)


@pytest.mark.parametrize("piece", [1, 2, 3, 4, 7, 1 << 20])
@pytest.mark.parametrize("normalise", [None, "nfc"])
def test_it_makes_no_difference_where_a_text_is_cut_into_pieces(written, monkeypatch, piece, normalise):
    text = "a\r\n\r\r\nE\u0301e\u0323\u0302\u1112\u1161\u11ab🙂\u0915\u093c\r\n\r" * 3
    cut(monkeypatch, piece)
    whole = text.replace("\r\n", "\n").replace("\r", "\n")
    assert file.read(written(text.encode()), normalise=normalise).text == (
        unicodedata.normalize("NFC", whole) if normalise else whole
    )


def test_marks_without_end_are_refused_where_they_would_have_to_be_put_in_order(written, monkeypatch):
    monkeypatch.setattr(decoding, "PIECE", 10)
    path = written(("a" + "\u0301\u0323" * 10).encode())
    assert "combining marks" in message(path, normalise="nfc")
    assert len(file.read(path)) == 21


def test_control_characters_are_kept_counted_and_told(written, caplog, monkeypatch):
    caplog.set_level(logging.INFO, "trilab")
    monkeypatch.setattr(logging.getLogger("trilab"), "propagate", True)  # a command before may have taken it
    assert file.read(written(b"a\0b\0\x07\x1b[0m\0\tc\n")).text == "a\0b\0\x07\x1b[0m\0\tc\n"
    assert "has 3 NUL, 2 other control characters, which" in caplog.text


def test_a_text_without_control_characters_is_read_without_a_word(written, caplog, monkeypatch):
    caplog.set_level(logging.INFO, "trilab")
    monkeypatch.setattr(logging.getLogger("trilab"), "propagate", True)  # a command before may have taken it
    path = written(b"a\r\nb\tc\n")
    file.read(path)  # which tells, once, where there is no compiler
    caplog.clear()
    file.read(path)
    assert not caplog.text


# Many files


@pytest.fixture
def library(tmp_path):
    """A folder with texts in folders, among them what is no text of the library's."""
    for name, content in {
        "b.txt": "B",
        "a/2.txt": "A2",
        "a/1.md": "A1",
        "a/empty.txt": "",
        "a.txt": "a",
        ".hidden": "no",
        ".git/config": "no",
        "prepared/x-0123456789ab.tokens": "no",
        "prepared/x-0123456789ab.json": "no",
    }.items():
        (tmp_path / "library" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "library" / name).write_text(content)
    return tmp_path / "library"


def test_a_folder_is_every_file_below_it_that_is_not_hidden_sorted_by_path(library):
    corpus = file.read(str(library), prepared=str(library / "prepared"))
    assert (corpus.text, corpus.name) == ("A1\nA2\na\nB", "library")
    assert (corpus.findings.files, corpus.findings.empty_files) == (5, 1)


KEPT = ("in-0123456789ab.tokens", "in-0123456789ab.json", "stdin-0123456789abcdef.txt")


@pytest.mark.parametrize("path", ["in", "in/*", "in/**", "in/../in", "linked"])
@pytest.mark.parametrize("prepared", ["in", "./in/", "in/../in", "linked"])
def test_what_is_kept_of_texts_is_no_text_also_where_it_lies_among_them(tmp_path, monkeypatch, path, prepared):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    (tmp_path / "linked").symlink_to("in")
    for name in (*KEPT, "own.txt"):
        (tmp_path / "in" / name).write_text(name)
    assert file.read(path, prepared=prepared).text == "own.txt"


@pytest.mark.parametrize("path", ["in", "in/*", "*/*"])
def test_token_ids_are_no_text_wherever_they_lie(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    for name in (*KEPT, "own.txt"):
        (tmp_path / "in" / name).write_text(name)
    assert file.read(path, prepared="elsewhere").text == "own.txt\nstdin-0123456789abcdef.txt"


@pytest.mark.parametrize("name", ["a.tokens", "a.json", "a-0123456789ab.json", "stdin-notes.txt", "stdin-.txt"])
@pytest.mark.parametrize("path", [".", "*", "in", "in/*"])
@pytest.mark.parametrize("prepared", [".", "in"])
def test_only_what_is_kept_is_left_out_of_the_folder_that_it_is_kept_in(tmp_path, monkeypatch, name, path, prepared):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    for folder in (tmp_path, tmp_path / "in"):
        (folder / name).write_text("own")
    assert file.read(path, prepared=prepared).text == ("own\nown" if path == "." else "own")


@pytest.mark.parametrize("path", ["in", "in/*"])
def test_where_nothing_but_what_is_kept_is_found_that_is_told(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    for name in KEPT:
        (tmp_path / "in" / name).write_text(name)
    assert "but 3 that trilab keeps there itself" in message(path, prepared="in")
    assert file.read("in/stdin-0123456789abcdef.txt", prepared="in").text == KEPT[2]


@pytest.mark.parametrize(
    ("pattern", "once"),
    [
        ("**/**/*.txt", "**/*.txt"),
        ("**/**/**", "**"),
        ("a/**/**/**/text.txt", "a/**/text.txt"),
        ("**/b/**/**/*", "**/b/**/*"),
    ],
)
def test_two_stars_over_and_over_are_as_quick_as_once(tmp_path, monkeypatch, pattern, once):
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)
    (tmp_path / "a" / "b" / "text.txt").write_text("text")
    monkeypatch.chdir(tmp_path)
    looked_into = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda *place: looked_into.append(place) or scandir(*place))
    for path in (once, f"{tmp_path}/{once}"):
        assert file.read(path).text == "text"
    needed = len(looked_into)
    assert needed
    for path in (pattern, f"{tmp_path}/{pattern}"):
        assert file.read(path).text == "text"
    assert len(looked_into) == 2 * needed


@pytest.mark.parametrize("path", [".", "**", "**/*.txt"])
def test_a_file_is_taken_once_however_many_ways_lead_to_it(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "text.txt").write_text("text")
    (tmp_path / "a" / "b" / "back").symlink_to(tmp_path)
    (tmp_path / "z.txt").symlink_to("a/b/text.txt")
    (tmp_path / "gone.txt").symlink_to("nowhere")
    assert file.read(path).text == "text"


@pytest.mark.parametrize("path", ["texts", "texts/**/*.txt"])
def test_linked_folders_are_followed(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a.txt").write_text("linked")
    (tmp_path / "texts" / "link").symlink_to("../elsewhere")
    assert file.read(path).text == "linked"


def test_files_are_sorted_however_the_system_lists_them(tmp_path):
    names = [f"{number * 37 % 100:02}" for number in range(100)]
    for name in names:
        (tmp_path / name).write_text(name)
    for path in (tmp_path, tmp_path / "*"):
        assert file.read(str(path), separator=",").text == ",".join(sorted(names))


@pytest.mark.parametrize(
    ("pattern", "text"), [("*.txt", "a|B"), ("**/*.txt", "A2|a|B"), ("a/[12].*", "A1|A2"), ("?.txt", "a|B")]
)
def test_a_pattern_is_the_files_that_match_it(library, pattern, text):
    assert file.read(str(library / pattern), separator="|").text == text


@pytest.mark.parametrize(
    ("path", "name"),
    [
        *((".", "a"), ("..", "library"), ("../a/", "a"), ("1.md", "1.md"), ("../b.txt", "b.txt")),
        *(("*.md", "a/*.md"), ("../?.txt", "library/?.txt"), ("../**/*.txt", "library/**/*.txt")),
    ],
)
def test_every_text_has_a_name_that_tells_it_from_others(library, monkeypatch, path, name):
    monkeypatch.chdir(library / "a")
    assert file.read(path).name == name


def test_line_ends_between_files_are_those_of_the_text(library):
    for separator in ("\r\n", "\r", r"\r\n"):
        assert file.read(str(library / "?.txt"), separator=separator).text == "a\nB"
    assert file.read(str(library / "?.txt"), separator=r"\r\n", newline="keep").text == "a\r\nB"


def test_a_separator_may_be_typed_as_a_command_line_can(library):
    assert file.read(str(library / "?.txt"), separator=r"\n\t").text == "a\n\tB"


def test_a_file_whose_name_looks_like_a_pattern_is_that_file(written):
    assert file.read(written(b"here", "[a]*.txt")).text == "here"


def test_a_relative_pattern_starts_at_the_current_folder(library, monkeypatch):
    monkeypatch.chdir(library)
    assert file.read("a/*.md").text == "A1"


def test_a_folder_with_a_binary_file_is_refused_with_its_name(library):
    (library / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0")
    assert f"data.path={library / 'picture.png'} is no text file, but a PNG picture" in message(str(library))


@pytest.mark.parametrize(("path", "why"), [("nothing", "no file to read"), ("*.doc", "no file matches")])
def test_a_folder_or_pattern_without_a_file_is_refused(tmp_path, monkeypatch, path, why):
    (tmp_path / "nothing").mkdir()
    monkeypatch.chdir(tmp_path)
    assert why in message(path)


def test_composed_forms_reach_over_the_seam_of_two_files(tmp_path):
    (tmp_path / "1").write_text("e", encoding="utf-8")
    (tmp_path / "2").write_text("\u0301", encoding="utf-8")
    assert file.read(str(tmp_path), normalise="nfc", separator="").text == "é"


# Compressed files


PACKED = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": lambda content: zstandard.ZstdCompressor(write_checksum=True).compress(content),
}


@pytest.mark.parametrize("kind", PACKED)
def test_a_compressed_file_is_the_text_in_it(written, monkeypatch, kind):
    monkeypatch.setattr(sources, "PIECE", 1000)
    pack = PACKED[kind]
    content = MANY_SCRIPTS.encode()
    corpus = file.read(written(pack(content), f"notes.txt.{kind}"))
    assert (corpus.text, corpus.name) == (MANY_SCRIPTS, f"notes.txt.{kind}")
    assert file.read(written(pack(content[:7]) + pack(content[7:]), "in two parts")).text == MANY_SCRIPTS


@pytest.mark.parametrize("first", [0x50, 0x5F])
def test_frames_of_zstd_that_are_to_be_skipped_are(written, first):
    skipped = bytes([first]) + b"\x2a\x4d\x18\x05\0\0\0other"
    packed = PACKED["zst"](b"words")
    assert file.read(written(skipped + packed + skipped + packed)).text == "wordswords"


@pytest.mark.parametrize("kind", PACKED)
def test_a_compressed_file_with_nothing_in_it_is_empty(written, kind):
    assert "is empty" in message(written(PACKED[kind](b"")))


@pytest.mark.parametrize("kind", PACKED)
def test_a_byte_order_mark_is_one_also_where_it_is_compressed_in_two_parts(written, kind):
    pack, content = PACKED[kind], MANY_SCRIPTS.encode("utf-32")
    assert file.read(written(pack(content[:3]) + pack(content[3:]))).text == MANY_SCRIPTS


@pytest.mark.parametrize("kind", PACKED)
@pytest.mark.parametrize("left", [0.3, 0.99])
def test_a_compressed_file_that_is_cut_off_is_refused(written, kind, left):
    packed = PACKED[kind](os.urandom(20_000).hex().encode())
    said = message(written(packed[: int(len(packed) * left)]))
    assert "cannot be unpacked past its first" in said


@pytest.mark.parametrize("kind", PACKED)
def test_a_compressed_file_that_is_damaged_is_refused(written, kind):
    packed = bytearray(PACKED[kind](os.urandom(20_000).hex().encode()))
    packed[len(packed) // 2] ^= 0xFF
    with pytest.raises(BadInput):
        file.read(written(bytes(packed)))


def test_the_place_of_a_wrong_byte_in_a_compressed_file_is_that_in_the_text(written):
    assert "byte 0xFF at offset 2 of what it unpacks to (line 2)" in message(written(gzip.compress(b"a\n\xff")))


def test_a_file_that_asks_for_too_much_memory_is_refused(written, monkeypatch):
    monkeypatch.setattr(sources, "DECOMPRESSOR", 1 << 20)
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 23}]
    assert "asks for more than 1 MiB of memory" in message(written(lzma.compress(b"abc", filters=filters)))


# Locales and names


PROGRAM = """
import os, sys
from trilab.corpora.file import read
from trilab.errors import BadInput
try:
    corpus = read(sys.argv[1])
    print(corpus.sha256, ascii(corpus.name), ascii(corpus.origin))
except BadInput as error:
    print(ascii(str(error)))
"""


def said_in_another_locale(path: bytes, *, escaped: bool = False) -> str:
    environment = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    program = PROGRAM.replace("sys.argv[1]", "sys.argv[1].encode().decode('unicode_escape')") if escaped else PROGRAM
    done = subprocess.run([sys.executable, "-c", program, path], env=environment, capture_output=True, check=True)
    return done.stdout.decode()


@pytest.mark.parametrize("name", ["été 漢字.txt".encode(), b"caf\xe9.txt"])
def test_any_file_name_is_read_and_shown_the_same_in_every_locale(tmp_path, name):
    path = os.fsencode(tmp_path) + b"/" + name
    Path(os.fsdecode(path)).write_bytes(MANY_SCRIPTS.encode())
    corpus = file.read(os.fsdecode(path))
    assert said_in_another_locale(path) == f"{corpus.sha256} {corpus.name!a} {corpus.origin!a}\n"
    assert corpus.name.encode()  # it can be written anywhere


def test_a_name_from_a_config_is_found_in_a_locale_without_its_characters(tmp_path):
    (tmp_path / "été.txt").write_text("words")
    assert "'été.txt'".encode("ascii", "backslashreplace").decode() in said_in_another_locale(
        str(tmp_path / "été.txt").encode("unicode_escape"), escaped=True
    )


def test_a_missing_file_is_named_the_same_in_every_locale(tmp_path):
    path = f"{tmp_path}/été.txt"
    assert said_in_another_locale(path.encode()) == f"{message(path)!a}\n"
