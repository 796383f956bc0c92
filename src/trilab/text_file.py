"""What is given on the command line, as it is or in a file → text, the same in every locale."""

import codecs
import os
import sys
from pathlib import Path

from trilab.errors import BadInput

STANDARD_INPUT = "-"


def read_text_file(path: str, option: str) -> str:
    """All text of a file of UTF-8, whatever the locale; a byte order mark is removed, line ends stay as they are.

    Args:
        path: the file; a pipe is read to its end, `-` is the standard input.
        option: what named it, for messages: "--prompt-file".
    Raises:
        BadInput: no such file, a folder, one that cannot be read, or a byte that is not UTF-8, with its offset (bytes
            from the start, the first is 0) and line (the first is 1).
    """
    content = _bytes(path, option)
    try:
        return content.removeprefix(codecs.BOM_UTF8).decode()
    except UnicodeDecodeError as error:
        offset = error.start + len(content) - len(content.removeprefix(codecs.BOM_UTF8))
        line = content.count(b"\n", 0, offset) + 1
        raise BadInput(
            f"{option} {path} is not UTF-8: byte 0x{content[offset]:02X} at offset {offset:,} (line {line:,}) cannot "
            f"be read ({error.reason}). Save it again as UTF-8."
        ) from None


def _bytes(path: str, option: str) -> bytes:
    if path == STANDARD_INPUT:
        if sys.stdin is None:
            raise BadInput(f"{option} - is the standard input, which is closed. Give a text file in UTF-8.")
        return sys.stdin.buffer.read()
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:  # a NUL in the path is no OSError
        reason = getattr(error, "strerror", None) or error
        raise BadInput(f"{option} {path} cannot be read: {reason}. Give a text file in UTF-8.") from None


def argument(text: str) -> str:
    """An argument as UTF-8, where the locale could not read it as such and Python kept its bytes as surrogates."""
    try:
        return os.fsencode(text).decode() if any("\udc80" <= c <= "\udcff" for c in text) else text
    except UnicodeError:
        return text


def lf(text: str) -> str:
    """CRLF and CR as LF."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def without_last_line_end(text: str) -> str:
    """Less the one line end that editors put behind the last line, as a shell's $(…) leaves it out."""
    return text.removesuffix("\n").removesuffix("\r") if text.endswith("\r\n") else text.removesuffix("\n")
