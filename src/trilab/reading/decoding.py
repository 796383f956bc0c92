"""A file's bytes → its text in UTF-8: encoding, byte order mark, line ends, composed form; what is odd about it."""

import codecs
import difflib
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from encodings.aliases import aliases
from functools import lru_cache
from itertools import chain

from trilab.errors import BadInput
from trilab.findings import Findings
from trilab.reading.sources import PIECE, Source, as_given, is_compressed, pieces
from trilab.reading.utf8 import Utf8, encoded, valid

# Byte order marks and the codec of what follows. UTF-32 comes before UTF-16, whose little-endian mark is the beginning
# of UTF-32's.
MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
    (codecs.BOM_UTF8, "utf-8"),
)
LONGEST_MARK = 4
LONGEST_CHARACTER = 4  # bytes in UTF-8

# What a file that is not UTF-8 may be instead, the likelier first: where it has NUL, where most of its bytes are ASCII,
# and elsewhere.
OF_WIDE = ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be")
OF_LATIN = ("utf-16-le", "utf-16-be", "cp1252", "latin-1")
OF_OTHERS = ("shift_jis", "euc_jp", "euc_kr", "big5", "gb18030", "cp1251", "koi8_r", "iso8859_7", *OF_LATIN)
LOOKED_THROUGH = 64 << 20  # bytes past a wrong one that another encoding is tried on

# How files begin that are no text, whatever they are called.
NO_TEXTS = (
    (b"PK\3\4", "a zip archive or an office document"),
    (b"%PDF-", "a PDF"),
    (b"\x89PNG", "a PNG picture"),
    (b"\xff\xd8\xff", "a JPEG picture"),
    (b"GIF8", "a GIF picture"),
    (b"\x7fELF", "a program"),
    (b"SQLite format 3\0", "a database"),
)
HIGHEST_PLANE = 0x10  # of Unicode
WHITE = b"\t\n\v\f\r"
CONTROLS = bytes({*range(32)} - {*WHITE, 0x1B})  # which no text has many of; ESC shifts between character sets

# Encodings that Python has for other things than files.
NO_FILES = ("idna", "punycode", "undefined", "unicode-escape", "raw-unicode-escape")


def check_encoding(name: str, *, key: str = "data.encoding") -> None:
    """Refuse what no text file is written in.

    Args:
        name: that is asked for.
        key: what it was given by, for messages.
    Raises:
        BadInput: no such encoding, with those of a like name; or one of Python's that is none of characters.
    """
    if _text_encoding(name) is None:
        raise BadInput(f"{as_given(key, name)} is no encoding of text files.{_like(name)} Leave it out for UTF-8.")


def joined(
    sources: Iterable[Source],
    found: Findings,
    *,
    encoding: str | None,
    keep: bool,
    separator: str,
    tell: Callable[[int], None],
) -> Iterator[Utf8]:
    """The text of several files, one after the other, in UTF-8 whatever they are written in.

    Args:
        sources: the files.
        found: is filled on the way.
        encoding: of files without a byte order mark; None: UTF-8.
        keep: leave CRLF and CR as they are; else both become LF.
        separator: stands between two files.
        tell: is called with how many bytes of all files on the disk have been read.
    Returns:
        Chunks, none empty, of what about `PIECE` bytes were read for, that cut neither a character nor a CRLF.
    Raises:
        BadInput: a file that cannot be read or unpacked, that is not of its encoding, or that holds half a surrogate
            pair, as a separator may, too.
    """
    before, begun, between = 0, False, encoded(separator, "data.separator")
    for source in sources:
        found.files += 1
        empty = True
        for chunk in line_ends(characters(source, found, encoding, _counting_from(before, tell)), found, keep=keep):
            if empty and begun and between:
                yield between
            empty, begun = False, True
            yield chunk
        found.empty_files += empty
        before += source.size


def characters(
    source: Source, found: Findings, encoding: str | None, tell: Callable[[int], None] = lambda done: None
) -> Iterator[Utf8]:
    """The text of one file, without its byte order mark; arguments and errors as for `joined`."""
    parts = pieces(source, tell)
    first = _beginning(parts)
    mark, codec = _marked(first, encoding)
    found.marks += bool(mark)
    if not mark and encoding is None:
        _refuse_what_only_passes_for_utf8(source, first)
    if codec in ("utf-16", "utf-32") and first:
        raise BadInput(
            f"{source.given} does not begin with a byte order mark, and {as_given(source.encoding_key, str(encoding))} "
            f"does not tell the order of its bytes. Give {as_given(source.encoding_key, f'{codec}-le')} or {codec}-be."
        )
    origin = source.given
    decoder: _Utf8Decoder | _OtherDecoder = _Utf8Decoder() if codec == "utf-8" else _OtherDecoder(codec, origin)
    offset = len(mark)
    for piece in chain((first[offset:],), parts, (None,)):
        held = 0
        try:
            held = decoder.held
            text = decoder.decode(piece or b"", final=piece is None)
        except UnicodeDecodeError as error:
            wrong = error.object[error.start : error.end]
            start = offset - held + error.start
            raise BadInput(_undecodable(source, codec, encoding, mark, start, wrong, error.reason)) from None
        except UnicodeError as error:  # not of a byte, but of the whole
            raise BadInput(
                f"{source.given} is not {encoding} ({source.encoding_key}): {str(error).rstrip('.')}. Give the "
                f"encoding it was written in, or leave {source.encoding_key} out for UTF-8."
            ) from None
        offset += len(piece or b"")
        if text:
            yield text


class _Utf8Decoder:
    """UTF-8 → the same, of which nothing is decoded; errors are those of Python's own decoder."""

    def __init__(self) -> None:
        self._left = b""

    @property
    def held(self) -> int:
        """Bytes of a character that is not yet whole."""
        return len(self._left)

    def decode(self, piece: bytes, *, final: bool) -> Utf8:
        content = self._left + piece
        whole = valid(content)
        left = len(content) - whole
        if left >= LONGEST_CHARACTER or (left and final):
            codecs.utf_8_decode(content, "strict", True)  # raises, and says what is wrong
        self._left = content[whole:]
        return Utf8(content[:whole])


class _OtherDecoder:
    """Any encoding → UTF-8."""

    def __init__(self, codec: str, origin: str) -> None:
        self._decoder = codecs.getincrementaldecoder(codec)()
        self._origin = origin
        self._characters = 0

    @property
    def held(self) -> int:
        """Bytes of a character that is not yet whole."""
        return len(self._decoder.getstate()[0])

    def decode(self, piece: bytes, *, final: bool) -> Utf8:
        text = self._decoder.decode(piece, final=final)
        before, self._characters = self._characters, self._characters + len(text)
        return encoded(text, self._origin, before)


def _marked(begin: bytes, encoding: str | None) -> tuple[bytes, str]:
    """The byte order mark, b"" for none, and the codec of what follows."""
    named = codecs.lookup(encoding or "utf-8").name
    for mark, codec in MARKS:
        # a text that is named as UTF-16 may begin with NUL after its mark
        if begin.startswith(mark) and not (codec.startswith("utf-32") and named.startswith("utf-16")):
            return mark, codec
    return b"", named


def _beginning(parts: Iterator[bytes]) -> bytes:
    """Pieces until they are long enough to tell: a compressed file may begin with short ones."""
    begin = bytearray()
    while len(begin) < max(PIECE, LONGEST_MARK) and (piece := next(parts, b"")):
        begin += piece
    return bytes(begin)


def line_ends(chunks: Iterable[Utf8], found: Findings, *, keep: bool) -> Iterator[Utf8]:
    """CRLF and CR become LF, or are only counted; no CRLF is cut."""
    held = b""
    for chunk in chunks:
        text = held + chunk
        held = b"\r" if text.endswith(b"\r") else b""
        text = text.removesuffix(b"\r")
        if b"\r" in text:
            pairs = text.count(b"\r\n")
            found.crlf += pairs
            found.cr += text.count(b"\r") - pairs
            if not keep:
                text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if text:
            yield Utf8(text)
    if held:
        found.cr += 1
        yield Utf8(held if keep else b"\n")


def gathered(chunks: Iterable[Utf8]) -> Iterator[Utf8]:
    """The same text in fewer chunks, where it comes in small ones: each costs some time by itself."""
    parts: list[Utf8] = []
    size = 0
    for chunk in chunks:
        parts.append(chunk)
        size += len(chunk)
        if size >= PIECE // 2:
            yield Utf8(b"".join(parts))
            parts.clear()
            size = 0
    if parts:
        yield Utf8(b"".join(parts))


def composed(chunks: Iterable[Utf8]) -> Iterator[Utf8]:
    """Unicode's normal form C of a text: what can be written as one character is, however it is cut into chunks.

    Raises:
        BadInput: more combining marks in a row than a chunk holds; there is no other bound to what belongs together.
    """
    held = ""
    for chunk in chunks:
        text = held + chunk.decode()
        cut = next((place for place in range(len(text) - 1, -1, -1) if _begins_anew(text[place])), 0)
        held = text[cut:]
        if len(held) > PIECE:
            raise BadInput(
                f"data.normalise=nfc cannot be done: {len(held):,} combining marks stand in a row, which is no "
                "text that anybody reads. Leave data.normalise out."
            )
        if cut:
            yield Utf8(unicodedata.normalize("NFC", text[:cut]).encode())
    if held:
        yield Utf8(unicodedata.normalize("NFC", held).encode())


def _begins_anew(character: str) -> bool:
    """Whether nothing before this character can ever be composed with it, or change places with it."""
    return character.isascii() or (unicodedata.combining(character) == 0 and character not in _joining())


@lru_cache(maxsize=1)
def _joining() -> frozenset[str]:
    """Characters that may be the second half of another one, jamo of Hangul among them."""
    jamo = {chr(point) for point in (*range(0x1161, 0x1176), *range(0x11A8, 0x11C3))}
    halves = (unicodedata.decomposition(chr(point)).split() for point in range(0x20000))
    return frozenset(jamo | {chr(int(parts[1], 16)) for parts in halves if len(parts) == 2 and "<" not in parts[0]})


def _counting_from(before: int, tell: Callable[[int], None]) -> Callable[[int], None]:
    return lambda done: tell(before + done)


def _like(name: str) -> str:
    known = {*aliases, *aliases.values()}
    near = difflib.get_close_matches(name.lower().replace("-", "_").replace(" ", "_"), known, n=9)
    names = dict.fromkeys(_text_encoding(each) for each in near)
    listed = ", ".join(found for found in names if found)
    return f" Did you mean {listed}?" if listed else " There are utf-8, cp1252, latin-1, shift_jis, gb18030 and more."


def _text_encoding(name: str) -> str | None:
    """Python's own name of an encoding, None if there is none or text files are not written in it."""
    try:
        found = codecs.lookup(name).name
        b"a".decode(found)
    except UnicodeDecodeError:  # it takes more than one byte to be a character
        pass
    except (LookupError, ValueError):
        return None
    return None if found in NO_FILES else found


def _refuse_what_only_passes_for_utf8(source: Source, begin: bytes) -> None:
    for magic, what in NO_TEXTS:
        if begin.startswith(magic):
            raise BadInput(f"{source.given} is no text file, but {what}. Give a text file.")
    if order := _unmarked(begin):
        raise BadInput(
            f"{source.given} looks like {order} without a byte order mark, by where its bytes 0x00 stand. If it is: "
            f"{as_given(source.encoding_key, order)}."
        )


def _unmarked(begin: bytes) -> str | None:
    """The byte order of UTF-32 or UTF-16 that may pass for UTF-8: in each high byte 0x00 or what a script shares."""
    for order, high, plane in (("utf-32-le", begin[3::4], begin[2::4]), ("utf-32-be", begin[::4], begin[1::4])):
        if len(begin) % 4 == 0 and high and not any(high) and max(plane) <= HIGHEST_PLANE:
            return order
    for order, high, low in (("utf-16-le", begin[1::2], begin[::2]), ("utf-16-be", begin[::2], begin[1::2])):
        zeros = high.count(0)
        if zeros > len(begin) / 4:
            return order
        if zeros <= len(begin) / 100 or low.count(0) > zeros / 10:
            continue
        shared = max(high.count(byte) for byte in range(1, 32))  # up to Thai, Georgian, Ethiopic and Khmer
        if shared > 3 and zeros + shared > len(high) * 3 / 4:
            return order
    return None


def _undecodable(
    source: Source, codec: str, encoding: str | None, mark: bytes, start: int, wrong: bytes, reason: str
) -> str:
    what = f"byte{'s' if len(wrong) > 1 else ''} {' '.join(f'0x{byte:02X}' for byte in wrong)} at offset {start:,}"
    what += " of what it unpacks to" if is_compressed(source) else ""
    before = _Before(source, codec, mark, start)
    what += f" (line {before.line:,}) cannot be read"
    if mark and codec != "utf-8":
        name = codec[:6].upper()
        return (
            f"{source.given} begins with the byte order mark of {name}, but {what} as that ({reason}). Save "
            "the file again as UTF-8."
        )
    name = "UTF-8" if mark or encoding is None else f"{encoding} ({source.encoding_key})"
    begin = next(pieces(source), b"")
    said = f"{source.given} is not {name}: {what} ({reason})."
    until = start + LOOKED_THROUGH
    readable = [other for other in _candidates(begin) if other != codec and _reads(source, other, until)]
    if not readable:
        return f"{said} No encoding would read it as a text: it seems to be no text file. Give a text file."
    listed = ", ".join(readable)
    if codec == "utf-8" and before.beyond_ascii:
        return (
            f"{said} {before.beyond_ascii:,} characters beyond ASCII before it are good UTF-8, so the file is likely "
            f"damaged there: mend it, or get it again. Other encodings would read it without an error, if it is none "
            f"of UTF-8: {listed}."
        )
    cure = as_given(source.encoding_key, readable[0])
    return f"{said} Encodings that would read the file: {listed}. If it is {readable[0]}: {cure}."


def _candidates(begin: bytes) -> tuple[str, ...]:
    """Encodings that a file may be in, the likelier first; none where it is hardly a text."""
    if 0 in begin:
        return ("utf-8", *OF_WIDE)
    if len(begin) - len(begin.translate(None, CONTROLS)) > len(begin) / 10:
        return ()
    is_latin = len(begin.translate(None, bytes(range(128)))) < len(begin) / 4
    return ("utf-8", *(OF_LATIN if is_latin else OF_OTHERS))


class _Before:
    """What comes before the character at a byte that cannot be read."""

    def __init__(self, source: Source, codec: str, mark: bytes, offset: int) -> None:
        self.beyond_ascii = 0
        """How many characters that are not ASCII."""
        ends = sum(
            text.count(b"\n") for text in line_ends(self._text(source, codec, mark, offset), Findings(), keep=False)
        )
        self.line = 1 + ends
        """The line that the character is in; the first is 1."""

    def _text(self, source: Source, codec: str, mark: bytes, offset: int) -> Iterator[Utf8]:
        decoder = codecs.getincrementaldecoder(codec)()
        begins = 0
        for piece in pieces(source):
            text = decoder.decode(piece[: offset - begins] if begins else piece[len(mark) : offset])
            if not text.isascii():
                self.beyond_ascii += len(text) - len(text.encode("ascii", "ignore"))
            yield Utf8(text.encode("utf-8", "surrogatepass"))  # only its line ends are counted
            begins += len(piece)
            if begins >= offset:
                return


def _reads(source: Source, encoding: str, until: int) -> bool:
    """Whether a file is text in this encoding, as far as it is looked at."""
    decoder = codecs.getincrementaldecoder(encoding)()
    read, spaced = 0, False
    try:
        for piece in pieces(source):
            text = decoder.decode(piece)
            spaced = spaced or " " in text or "\n" in text
            if (read := read + len(piece)) >= until:
                break
        else:
            decoder.decode(b"", final=True)
    except UnicodeError:
        return False
    # nearly any even number of bytes is some text in UTF-16, but only a real one has spaces or line ends in it
    return spaced or not encoding.startswith(("utf-16", "utf-32"))
