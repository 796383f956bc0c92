"""Real code that every machine has: the source of the Python that runs this, by version."""

import platform
import sys
import sysconfig
import tokenize
from collections.abc import Iterator
from pathlib import Path

from trilab.corpus import Corpus
from trilab.errors import BadInput

# What distributions leave out, put elsewhere or write anew, so that one version gives one text on most machines.
NOT_EVERYWHERE = frozenset(
    {"antigravity", "distutils", "ensurepip", "idlelib", "lib2to3", "pydoc_data", "tkinter", "turtle", "turtledemo"}
)
TESTS = frozenset({"test", "tests", "idle_test"})


def read() -> Corpus:
    """The standard library's modules in Python, sorted by path, each decoded as it declares itself, joined by a line.

    Test suites, installed packages, what a build generates and what distributions leave out are left out. Two machines
    with the same version have the same text unless a distribution has patched its modules; the sha256 tells.

    Returns:
        About ten million characters, named after the version: python-3.11.7.
    Raises:
        BadInput: this Python has no source on the disk.
    """
    folder = Path(sysconfig.get_path("stdlib"))
    files = sorted(_modules(folder), key=lambda file: file.relative_to(folder).parts)
    if not files:
        raise BadInput(f"data=python: {sys.executable} has no modules in {folder}. Use data=file data.path=<folder>.")
    text = "\n".join(_decoded(file) for file in files)
    return Corpus.of(f"python-{platform.python_version()}", text, str(folder))


def _modules(folder: Path) -> Iterator[Path]:
    for entry in folder.glob("*"):
        if entry.stem not in sys.stdlib_module_names - NOT_EVERYWHERE - TESTS:
            continue
        if entry.is_dir():
            yield from (file for file in entry.rglob("*.py") if not TESTS & set(file.relative_to(entry).parts))
        elif entry.suffix == ".py":
            yield entry


def _decoded(file: Path) -> str:
    try:
        with tokenize.open(file) as stream:
            return stream.read()
    except (OSError, SyntaxError, UnicodeDecodeError) as error:
        raise BadInput(f"data=python: {file} cannot be read: {error}.") from error
