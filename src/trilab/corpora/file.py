"""A text file of the user's own: UTF-8 whatever the locale, nothing ever dropped or replaced silently."""

import codecs
import shlex
from pathlib import Path

from trilab.corpus import Corpus
from trilab.errors import BadInput

# Byte order marks and the codec that reads what follows and drops the mark. UTF-32 comes before UTF-16, whose
# little-endian mark is the beginning of UTF-32's.
MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
    (codecs.BOM_UTF8, "utf-8-sig"),
)

# What a file that is not UTF-8 may be instead, the likelier first.
OTHER_ENCODINGS = ("utf-16-le", "utf-16-be", "cp1252", "latin-1")


def read(path: str) -> Corpus:
    """Read a text file.

    The file is UTF-8, or UTF-16 or UTF-32 with a byte order mark. The mark is removed; CRLF and CR become LF.

    Args:
        path: the file; a relative path starts at the current folder, ~ is the home folder.
    Returns:
        The text, named after the file.
    Raises:
        BadInput: no such file, a folder, not readable, empty, white space only, or not UTF-8; the last with the byte,
            its offset (bytes from the start of the file, the first is 0), its line (the first is 1) and the cure.
    """
    text = _decode(_read_bytes(path), path).replace("\r\n", "\n").replace("\r", "\n")
    if not text:
        raise BadInput(f"data.path={path} is empty. Give a file with text in it.")
    if text.isspace():
        raise BadInput(
            f"data.path={path} holds nothing but white space ({len(text):,} characters). Give a file with text in it."
        )
    return Corpus.of(Path(path).name, text, path)


def _read_bytes(path: str) -> bytes:
    if not path:
        raise BadInput("data.path is empty. Give a text file: data.path=notes.txt.")
    try:
        file = Path(path).expanduser()
        return file.read_bytes()
    except FileNotFoundError:
        raise BadInput(
            f"data.path={path} does not exist (looked for {file.absolute()}). Give the path of a text file; a relative "
            "one starts at the folder the command is run in."
        ) from None
    except IsADirectoryError:
        raise BadInput(f"data.path={path} is a folder. Give one text file, for example {file / 'notes.txt'}.") from None
    except (OSError, RuntimeError, ValueError) as error:  # no right to read it; no such home; a NUL in the path
        reason = getattr(error, "strerror", None) or error
        raise BadInput(f"data.path={path} cannot be read: {reason}. Give a text file you may read.") from error


def _decode(content: bytes, path: str) -> str:
    codec = next((codec for mark, codec in MARKS if content.startswith(mark)), "utf-8")
    try:
        text = content.decode(codec)
    except UnicodeDecodeError as error:
        raise BadInput(_undecodable(content, codec, error, path)) from None
    if codec == "utf-8" and (order := _unmarked_utf16(content)):
        raise BadInput(
            f"data.path={path} looks like {order} without a byte order mark: every other byte is 0x00, the first at "
            f"offset {content.index(0):,}. {_cure(path, order)}"
        )
    return text


def _unmarked_utf16(content: bytes) -> str | None:
    """The byte order of UTF-16 that passes for UTF-8: ASCII characters with a zero byte after or before each."""
    if 0 in content:
        for order, zeros in (("utf-16-le", content[1::2]), ("utf-16-be", content[::2])):
            if zeros.count(0) > len(content) / 4:
                return order
    return None


def _undecodable(content: bytes, codec: str, error: UnicodeDecodeError, path: str) -> str:
    # The utf-8-sig codec counts from after its mark, the others from the start of the file.
    skipped = len(codecs.BOM_UTF8) if codec == "utf-8-sig" else 0
    start = error.start + skipped
    wrong = content[start : error.end + skipped]
    what = f"byte{'s' if len(wrong) > 1 else ''} {' '.join(f'0x{byte:02X}' for byte in wrong)} at offset {start:,}"
    if codec in ("utf-16", "utf-32"):
        return (
            f"data.path={path} begins with the byte order mark of {codec.upper()}, but {what} cannot be read as that "
            f"({error.reason}). Save the file again as UTF-8."
        )
    line = len((content[:start] + b".").splitlines())
    readable = [encoding for encoding in OTHER_ENCODINGS if _plausible(content, encoding)]
    return (
        f"data.path={path} is not UTF-8: {what} (line {line:,}) cannot be read ({error.reason}). "
        f"Encodings that would read the file: {', '.join(readable)}. {_cure(path, readable[0])}"
    )


def _plausible(content: bytes, encoding: str) -> bool:
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError:
        return False
    # Nearly any even number of bytes is some text in UTF-16, but only a real one has spaces or line ends in it.
    return not encoding.startswith("utf-16") or " " in text or "\n" in text


def _cure(path: str, encoding: str) -> str:
    file = Path(path).expanduser()
    copy = file.with_name(f"{file.stem}.utf8{file.suffix}")
    return (
        f"Save it again as UTF-8, for example: iconv -f {encoding} -t utf-8 {shlex.quote(str(file))} > "
        f"{shlex.quote(str(copy))}"
    )
