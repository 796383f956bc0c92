"""What is typed on a command line."""

from trilab.generation.typed import lf, separator, without_last_line_end


def test_line_ends_become_lf_and_one_at_the_end_can_be_left_out() -> None:
    assert lf("a\r\nb\rc\n\r") == "a\nb\nc\n\n"
    assert [without_last_line_end(text) for text in ("a", "a\n", "a\r\n", "a\n\n", "\n", "", "a\r")] == [
        *("a", "a", "a", "a\n", "", "", "a\r")
    ]


def test_a_separator_is_typed_with_backslashes() -> None:
    assert separator(r"\n\t\r\n -- \x") == "\n\t\r\n -- \\x"
