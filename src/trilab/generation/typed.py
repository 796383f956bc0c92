"""What somebody types, or keeps in a file to be taken as typed → text."""


def separator(text: str) -> str:
    r"""What stands between joined files: \n, \r and \t, typed with a backslash, are line ends and a tab."""
    return text.replace(r"\n", "\n").replace(r"\r", "\r").replace(r"\t", "\t")


def lf(text: str) -> str:
    """CRLF and CR as LF."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def without_last_line_end(text: str) -> str:
    """Less the one line end that editors put behind the last line, as a shell's $(…) leaves it out."""
    return text.removesuffix("\n").removesuffix("\r") if text.endswith("\r\n") else text.removesuffix("\n")
