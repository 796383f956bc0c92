from trilab.terminal import harmless


def test_what_would_command_a_terminal_is_shown_as_a_mark_and_all_else_stays() -> None:
    assert harmless("a\x1b]0;b\x07\x9b31m\r\u202ec") == "a�]0;b��31m��c"
    assert harmless("é 漢\n\t🙂 \u200b~") == "é 漢\n\t🙂 \u200b~"
