"""C code, compiled at first use by the system's C compiler, kept, and loaded."""

import ctypes
import hashlib
import logging
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path

# no contraction, no processor of its own: the same bits everywhere. Most kernels wait for memory anyhow; those that do
# not give flags of their own
FLAGS = ("-O2", "-ffp-contract=off", "-fPIC", "-shared", "-pthread")
PATIENCE = 60  # seconds for a compilation
PARTIAL = ".partial"
ABANDONED = 3600  # seconds: a compilation that began longer ago was killed

log = logging.getLogger("trilab")


class CannotCompile(Exception):
    """There is no compiler, or it does not make of the sources what can be loaded."""


@cache
def library(sources: tuple[Path, ...], otherwise: str, flags: tuple[str, ...] = ()) -> ctypes.CDLL | None:
    """C code, compiled; None where there is no way to have that, which the log then tells once.

    It is kept below $XDG_CACHE_HOME, or ~/.cache, under a name made of all that it depends on. Where that cannot be
    written it is compiled for this process alone.

    Args:
        sources: the file that is compiled, and then those that it includes.
        otherwise: what the log says of doing without: "Sums go by torch's own operations, which are slower".
        flags: for the compiler, after FLAGS and the file.
    """
    try:
        compiler = _compiler()
        try:
            return _built(sources, flags, compiler, _kept_in())
        except OSError:
            with tempfile.TemporaryDirectory(prefix="trilab-", ignore_cleanup_errors=True) as folder:
                return _built(sources, flags, compiler, Path(folder))  # what is loaded stays after its file is gone
    except (CannotCompile, OSError) as error:
        log.info("%s: %s", otherwise, error)
        return None


def _compiler() -> list[str]:
    """Its path and arguments: what CC says, else cc."""
    name, *arguments = shlex.split(os.environ.get("CC", "")) or ["cc"]
    path = shutil.which(name)
    if path is None:
        raise CannotCompile(f"there is no C compiler {name}.")
    return [path, *arguments]


def _kept_in() -> Path:
    try:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError as error:
        raise OSError("there is no home folder") from error
    return Path(base) / "trilab"


def _built(sources: tuple[Path, ...], flags: tuple[str, ...], compiler: list[str], folder: Path) -> ctypes.CDLL:
    """Loaded from this folder, after compiling it there if it is not yet, or not whole.

    Raises:
        OSError: the folder takes no file, or nothing can be loaded from it.
        CannotCompile: the compiler fails.
    """
    name = sources[0].stem
    target = folder / f"{name}-{_key(sources, flags, compiler)}.so"
    if target.exists():
        try:
            return ctypes.CDLL(str(target))
        except OSError:  # cut short, or made where other libraries are
            pass
    folder.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(folder.glob(f".{name}-*{PARTIAL}"))
    handle, partial = tempfile.mkstemp(dir=folder, prefix=f".{target.stem}-", suffix=PARTIAL)
    os.close(handle)
    try:
        _compile(sources[0], flags, compiler, partial)
        Path(partial).chmod(0o755)
        Path(partial).replace(target)  # whole or not at all, whoever else compiles it at the same time
    finally:
        Path(partial).unlink(missing_ok=True)
    return ctypes.CDLL(str(target))


def _remove_abandoned(partials: Iterable[Path]) -> None:
    for partial in partials:
        with suppress(OSError):  # of somebody else, or gone by now
            if time.time() - partial.stat().st_mtime > ABANDONED:
                partial.unlink()


def _compile(source: Path, flags: tuple[str, ...], compiler: list[str], target: str) -> None:
    command = [*compiler, *FLAGS, str(source), *flags, "-o", target]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=PATIENCE
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotCompile(f"{compiler[0]} does not run: {error}.") from error
    if done.returncode != 0:
        said = (done.stderr.strip() or "nothing was said").splitlines()[0]
        raise CannotCompile(f"{compiler[0]} fails: {said}")


def _key(sources: tuple[Path, ...], flags: tuple[str, ...], compiler: list[str]) -> str:
    """Of the sources, the compiler, how it is called, and the kind of system. No process is started for it."""
    program = Path(compiler[0]).resolve()
    facts = program.stat()
    system = (platform.system(), platform.machine(), *platform.libc_ver())
    told = repr((str(program), facts.st_size, facts.st_mtime_ns, compiler[1:], FLAGS, flags, system))
    return hashlib.sha256(b"\0".join([told.encode(), *(path.read_bytes() for path in sources)])).hexdigest()[:16]
