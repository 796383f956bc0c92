"""A text of the user's own, in any encoding, of any size, in one file or many; nothing is dropped or replaced."""

import glob
import logging
import os
from pathlib import Path
from typing import Literal

from trilab.corpus import Corpus
from trilab.errors import BadInput
from trilab.generation.typed import lf
from trilab.generation.typed import separator as typed_separator
from trilab.reading.decoding import check_encoding
from trilab.reading.prepared import Text, corpus_of
from trilab.reading.sources import find, shown

log = logging.getLogger("trilab")


def read(
    path: str,
    encoding: str | None = None,
    newline: Literal["lf", "keep"] = "lf",
    normalise: Literal["nfc"] | None = None,
    separator: str = "\n",
    prepared: str = "data/prepared",
) -> Corpus:
    """Read a text file, or several as one text.

    A file is UTF-8 whatever the locale, or what its byte order mark says, or `encoding`. The mark is removed. Files
    that are compressed with gzip, bzip2, xz or zstd are unpacked, whatever they are called.

    Args:
        path: a file; a folder, of which every file below is taken that is not hidden; or a pattern such as
            texts/**/*.txt. Several are joined sorted by path. A relative one starts at the current folder, ~ is the
            home folder.
        encoding: of files without a byte order mark, by any name that Python knows; None: UTF-8.
        newline: lf: CRLF and CR become LF; keep: they stay.
        normalise: nfc: what Unicode can write as one character is one; None: the text stays as it is.
        separator: stands between two files. \\n, \\r and \\t, as they are typed on a command line, are line ends and a
            tab; with newline lf its line ends become LF as well.
        prepared: the folder in which a long text's token ids are kept for the next time.
    Returns:
        The text, named after the file or folder, or after the pattern and the folder that it begins in.
    Raises:
        BadInput: nothing there, not readable, empty, white space only, or not in the encoding; the last with the byte,
            its offset (bytes from the start of the file, the first is 0), its line (the first is 1) and the cure.
    """
    if path == "-":
        raise BadInput("data.path=- is the standard input, which trilab train and trilab data read. Give a file.")
    if encoding is not None:
        check_encoding(encoding)
    separator = typed_separator(separator)
    if newline == "lf":
        separator = lf(separator)
    text = Text(find(path, leave_out=prepared), encoding, newline == "keep", normalise == "nfc", separator)
    origin = shown(path)
    corpus = corpus_of(text, name=_name(origin), origin=origin, folder=Path(prepared).expanduser())
    if (found := corpus.findings) and (found.nul or found.controls):
        said = [f"{found.nul:,} NUL"] * bool(found.nul)
        said += [f"{found.controls:,} other control characters"] * bool(found.controls)
        log.info("%s has %s, which stay in the text.", origin, ", ".join(said))
    return corpus


def _name(origin: str) -> str:
    place = Path(os.path.abspath(Path(origin).expanduser()))  # noqa: PTH100 - a link keeps its name
    if not glob.has_magic(origin) or place.exists():
        return place.name or origin
    first = next(number for number, part in enumerate(place.parts) if glob.has_magic(part))
    return "/".join(place.parts[max(first - 1, 1) :])
