"""Where a text lies: files, folders and patterns → the files, in order; a file, also a compressed one → its bytes."""

import bz2
import glob
import gzip
import lzma
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from trilab.errors import BadInput

PIECE = 1 << 20  # bytes read at a time
FED = 1 << 10  # packed bytes that zstd is given at a time
DECOMPRESSOR = 128 << 20  # bytes that a decompressor may use; what the strongest levels of xz and zstd ask for fits

# How compressed files begin, whatever they are called; no UTF-8 text begins like this.
GZIP, XZ = b"\x1f\x8b", b"\xfd7zXZ\0"
ZSTD = re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18")  # of a frame, or of one that is to be skipped
BZIP2 = (b"1AY&SY", b"\x17rE8P\x90")  # of its first block, or of its end; after BZh and a digit

# What is kept of texts, which is none of the user's own: token ids, with what is said of them beside, and what came on
# standard input.
TOKENS = re.compile(r".+-[0-9a-f]{12}\.tokens")
TYPED = re.compile(r"stdin-[0-9a-f]{16}\.txt")

KEY = "data.path"  # what names a text unless an option of a command does


@dataclass(frozen=True)
class Source:
    """A file, as it was when it was found."""

    path: Path
    size: int
    """Bytes on the disk."""
    mtime_ns: int
    """When it was last written to, nanoseconds since 1970."""
    key: str = field(default=KEY, compare=False)
    """What named it: data.path, or an option such as --loss."""
    name: str | None = field(default=None, compare=False)
    """What messages call it instead of its path, where it keeps what came from elsewhere: - for the standard input."""

    @property
    def shown(self) -> str:
        """The path as messages have it."""
        return self.name or shown(str(self.path))

    @property
    def given(self) -> str:
        """The key and the path, as they were given."""
        return as_given(self.key, self.shown)

    @property
    def encoding_key(self) -> str:
        """What names the encoding of a text that was given so."""
        return "data.encoding" if self.key == KEY else "--encoding"

    def has_changed(self) -> bool:
        """Whether it is another file by now, or gone."""
        try:
            return _source(self.path, self.key) != self
        except (OSError, BadInput):
            return True


def shown(path: str) -> str:
    """A path as text that can be printed and kept: the same in every locale, also where its bytes are no UTF-8."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def as_given(key: str, value: str) -> str:
    """A key and its value as they are typed: data.path=notes.txt, --loss notes.txt."""
    return f"{key} {value}" if key.startswith("-") else f"{key}={value}"


def find(path: str, *, leave_out: str, key: str = KEY) -> list[Source]:
    """The files of a text.

    Args:
        path: a file; a folder, of which every file below is taken, but none that is hidden or in a hidden folder; or a
            pattern with *, ?, [abc] or **. A relative one starts at the current folder, ~ is the home folder. Links
            are followed; a file that is met in several ways is taken once, by its shortest path.
        leave_out: the folder that token ids and standard inputs are kept in. A folder or pattern takes none of these,
            and no token ids that lie elsewhere; a file that is named is taken whatever it is.
        key: what the path was given by, for messages: data.path, or an option.
    Returns:
        Sorted by path, at least one.
    Raises:
        BadInput: there is none, or one that cannot be read.
    """
    if not path:
        raise BadInput(f"{key} is empty. Give a text file: {as_given(key, 'notes.txt')}.")
    try:
        # the name's bytes as this locale writes them, which may not know its characters
        place = Path(os.fsdecode(path.encode("utf-8", "surrogateescape"))).expanduser()
        if place.is_dir():
            met, none = _below(place), "a folder with no file to read in it"
        elif glob.has_magic(str(place)) and not place.exists():
            met, none = _matching(str(place)), "a pattern that no file matches"
        else:
            return [_source(place, key)]
        found = list(met)
        kept_in = Path(leave_out).expanduser().resolve()
        files = _each_once(file for file in found if not _is_kept(file, kept_in))
        if not files:
            but = f" but {len(found):,} that trilab keeps there itself" if found else ""
            raise BadInput(f"{as_given(key, shown(path))} is {none}{but} (from {Path.cwd()}). Give text files.")
        return [_source(file, key) for file in sorted(files, key=lambda file: file.parts)]
    except FileNotFoundError as error:
        raise BadInput(
            f"{as_given(key, shown(path))} does not exist (looked for {shown(str(Path(error.filename).absolute()))}). "
            "Give the path of a text file; a relative one starts at the folder the command is run in."
        ) from None
    except PermissionError as error:
        raise unreadable(key, path if error.filename is None else str(error.filename), error) from error
    except BadInput:
        raise
    except (OSError, RuntimeError, ValueError) as error:  # no such home; a name that is too long; a NUL in the path
        raise unreadable(key, path, error) from error


def pieces(source: Source, tell: Callable[[int], None] = lambda done: None) -> Iterator[bytes]:
    """What is in a file: uncompressed, if it begins as .gz, .bz2, .xz or .zst files do.

    Memory does not depend on the size of the file, or on that of what it unpacks to.

    Args:
        source: the file.
        tell: is called with how many of its bytes on the disk have been read, after each piece.
    Returns:
        Pieces of `PIECE` bytes, the last shorter.
    Raises:
        BadInput: it cannot be read, or not be unpacked to its end.
    """
    unpacked = 0
    try:
        with source.path.open("rb") as file:
            unpack = _unpacking(file.peek(16)[:16])
            for piece in unpack(file) if unpack else iter(lambda: file.read(PIECE), b""):
                unpacked += len(piece)
                tell(file.tell())
                yield piece
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile, _Broken) as error:
        raise _broken(source, unpacked, error) from error
    except OSError as error:
        if error.errno is None:  # bz2 tells of broken data in this way
            raise _broken(source, unpacked, error) from error
        raise unreadable(source.key, source.shown, error) from error


def is_compressed(source: Source) -> bool:
    """Whether `pieces` unpacks it."""
    with source.path.open("rb") as file:
        return _unpacking(file.read(16)) is not None


class _Broken(Exception):
    """Packed data that cannot be unpacked."""


def _source(path: Path, key: str) -> Source:
    status = path.stat()
    source = Source(path, status.st_size, status.st_mtime_ns, key)
    if not path.is_file():
        raise BadInput(f"{source.given} is a pipe or a device, which cannot be read twice. Give a file.")
    with path.open("rb"):  # whoever has no right to read it is told before anything is begun
        pass
    return source


def _below(folder: Path) -> Iterator[Path]:
    def refuse(error: OSError) -> None:
        raise error

    seen: set[tuple[int, int]] = set()
    for where, folders, files in os.walk(folder, onerror=refuse, followlinks=True):
        place, status = Path(where), Path(where).stat()
        if (status.st_dev, status.st_ino) in seen:  # links may lead back
            folders.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (place / name for name in files if not name.startswith(".") and (place / name).is_file())


def _matching(pattern: str) -> Iterator[Path]:
    parts = Path(pattern).parts
    # **/** is no more than **, but glob would visit each folder once for every way to it
    once = Path(*(part for part, before in zip(parts, ("", *parts), strict=False) if not part == before == "**"))
    # Path.glob knows no absolute patterns before Python 3.13
    return (file for file in map(Path, glob.iglob(str(once), recursive=True)) if file.is_file())  # noqa: PTH207


def _is_kept(file: Path, kept_in: Path) -> bool:
    if TYPED.fullmatch(file.name) and file.parent.resolve() == kept_in:
        return True
    tokens = file.with_suffix(".tokens") if file.suffix == ".json" else file
    return TOKENS.fullmatch(tokens.name) is not None and tokens.is_file()


def _each_once(files: Iterable[Path]) -> list[Path]:
    by_length = sorted(files, key=lambda file: (len(file.parts), file.parts))
    return list({os.path.realpath(file): file for file in reversed(by_length)}.values())


def _unpacking(begin: bytes) -> Callable[[BinaryIO], Iterator[bytes]] | None:
    if begin.startswith(GZIP):
        return _ungzipped
    if begin.startswith(b"BZh") and begin[4:10] in BZIP2:
        return _unbzipped
    if begin.startswith(XZ):
        return _unxzed
    return _unzstd if ZSTD.match(begin) else None


def _ungzipped(file: BinaryIO) -> Iterator[bytes]:
    with gzip.open(file) as unpacked:
        yield from iter(lambda: unpacked.read(PIECE), b"")


def _unbzipped(file: BinaryIO) -> Iterator[bytes]:
    with bz2.open(file) as unpacked:
        yield from iter(lambda: unpacked.read(PIECE), b"")


def _unxzed(file: BinaryIO) -> Iterator[bytes]:
    # lzma.open would take as much memory as the file asks for
    packed = b""
    while packed := packed or file.read(PIECE):
        if not (packed := packed.lstrip(b"\0")):  # streams may be padded
            continue
        stream = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=DECOMPRESSOR)
        while True:
            if piece := stream.decompress(packed, PIECE):
                yield piece
            packed = b""
            if stream.eof:
                break
            if stream.needs_input and not (packed := file.read(PIECE)):
                raise EOFError("it ends in the middle")
        packed = stream.unused_data


def _unzstd(file: BinaryIO) -> Iterator[bytes]:
    import zstandard

    # Fed little at a time: four bytes may stand for 128 KiB. Its reader would be quicker, but takes a file that is cut
    # off for a whole one.
    packed, unpacked = b"", bytearray()
    while packed := packed or file.read(FED):
        frame = zstandard.ZstdDecompressor(max_window_size=DECOMPRESSOR).decompressobj()
        while True:
            try:
                unpacked += frame.decompress(packed)
            except zstandard.ZstdError as error:
                raise _Broken(str(error)) from error
            while len(unpacked) >= PIECE:
                yield bytes(unpacked[:PIECE])
                del unpacked[:PIECE]
            if frame.eof:
                break
            if not (packed := file.read(FED)):
                raise EOFError("it ends in the middle")
        packed = frame.unused_data
    if unpacked:
        yield bytes(unpacked)


def _broken(source: Source, unpacked: int, error: Exception) -> BadInput:
    return BadInput(
        f"{source.given} is a compressed file that cannot be unpacked past its first {unpacked:,} bytes of "
        f"text: {str(error) or type(error).__name__}. It is damaged or cut off, or asks for more than "
        f"{DECOMPRESSOR >> 20} MiB of memory: get it again, or unpack it yourself."
    )


def unreadable(key: str, path: str, error: Exception) -> BadInput:
    """What is said of a path that cannot be read."""
    reason = getattr(error, "strerror", None) or error
    return BadInput(f"{as_given(key, shown(path))} cannot be read: {reason}. Give a text file you may read.")
