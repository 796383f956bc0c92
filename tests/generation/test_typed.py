"""What is typed on a command line."""

import os
import subprocess
import sys

from trilab.generation.typed import argument, lf, separator, without_last_line_end

PLAIN = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def test_arguments_are_the_same_in_a_locale_without_utf_8() -> None:
    code = "import sys; from trilab.generation.typed import argument; print(ascii(argument(sys.argv[1])), end='')"
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


def test_a_separator_is_typed_with_backslashes() -> None:
    assert separator(r"\n\t\r\n -- \x") == "\n\t\r\n -- \\x"
