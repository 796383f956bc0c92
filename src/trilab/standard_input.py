"""A text on standard input → a file, which every run, worker and resume can read again."""

import hashlib
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from trilab.atomic import PARTIAL
from trilab.errors import BadInput
from trilab.override import override
from trilab.sources import PIECE

NAMED = ("data.path=-", "data.path='-'", 'data.path="-"')
PREPARED = "data.prepared="


def in_its_place(overrides: Sequence[str]) -> list[str]:
    """A command line with the name of a file that holds the standard input, where data.path=- names that.

    Raises:
        BadInput: it cannot be kept, or several processes were started that would each read it.
    """
    words = [given.lstrip("+") for given in overrides]
    if not any(word in NAMED for word in words):
        return list(overrides)
    if "RANK" in os.environ or "SLURM_PROCID" in os.environ:
        raise BadInput("data.path=- is the standard input, which only one of several processes has. Give a file.")
    folders = [word.removeprefix(PREPARED).strip("'\"") for word in words if word.startswith(PREPARED)]
    path = override("data.path", str(keep(Path(folders[-1] if folders else "data/prepared"))))
    return [path if word in NAMED else given for given, word in zip(overrides, words, strict=True)]


def keep(folder: Path) -> Path:
    """Read the standard input to its end, once, into stdin-<sha256>.txt; the same text is the same file.

    Args:
        folder: where it is kept; made if need be.
    Raises:
        BadInput: it cannot be written there.
    """
    partial: Path | None = None
    try:
        folder.expanduser().mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            dir=folder.expanduser(), prefix=".stdin.", suffix=PARTIAL, delete=False
        ) as file:
            partial = Path(file.name)
            sha256 = hashlib.sha256()
            while piece := sys.stdin.buffer.read(PIECE):
                sha256.update(piece)
                file.write(piece)
        kept = folder / f"stdin-{sha256.hexdigest()[:16]}.txt"
        if not kept.expanduser().exists():  # else it keeps its time, and what is prepared of it is still good
            partial.replace(kept.expanduser())
        return kept
    except OSError as error:
        raise BadInput(
            f"data.prepared={folder} cannot take the standard input: {error.strerror}. Give a folder that can be "
            "written to: data.prepared=/some/folder."
        ) from error
    finally:
        if partial is not None:
            partial.unlink(missing_ok=True)
