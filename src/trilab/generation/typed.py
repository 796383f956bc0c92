"""What somebody types, or keeps in a file to be taken as typed → text, the same in every locale."""

import os


def argument(text: str) -> str:
    """An argument as UTF-8, where the locale could not read it as such and Python kept its bytes as surrogates."""
    try:
        return os.fsencode(text).decode() if any("\udc80" <= c <= "\udcff" for c in text) else text
    except UnicodeError:
        return text


def separator(text: str) -> str:
    r"""What stands between joined files: \n, \r and \t, typed with a backslash, are line ends and a tab."""
    return text.replace(r"\n", "\n").replace(r"\r", "\r").replace(r"\t", "\t")


def lf(text: str) -> str:
    """CRLF and CR as LF."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def without_last_line_end(text: str) -> str:
    """Less the one line end that editors put behind the last line, as a shell's $(…) leaves it out."""
    return text.removesuffix("\n").removesuffix("\r") if text.endswith("\r\n") else text.removesuffix("\n")
