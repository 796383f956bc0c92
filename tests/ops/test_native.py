"""Kernels are compiled once and kept; where that cannot be, for one process, or not at all, and nothing breaks."""

import ctypes
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from trilab.ops import native

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler here")

# a process of its own that compiles and loads the file of its argument
LOADS = """
import sys
from pathlib import Path
from trilab.ops import native
raise SystemExit(native.library((Path(sys.argv[1]),), "It goes without") is None)
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """What is compiled in a moment."""
    path = tmp_path / "source.c"
    path.write_text("int answer(void) { return 42; }\n")
    return path


def library(*sources: Path) -> ctypes.CDLL | None:
    return native.library(sources, "It goes without")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of this test's own, and a process that has loaded nothing."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("CC", raising=False)
    native.library.cache_clear()
    return tmp_path / "cache" / "trilab"


@pytest.fixture(autouse=True, scope="module")
def _as_before() -> Iterator[None]:
    yield
    native.library.cache_clear()


def kept(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.iterdir()) if cache.exists() else []


def compiler(folder: Path, script: str) -> str:
    """A program that goes by the name of a compiler; what CC says."""
    program = folder / "compiler"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return str(program)


@needs_compiler
def test_what_was_compiled_once_is_loaded_from_then_on(
    cache: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert library(source) is not None
    (name,) = kept(cache)
    assert name.endswith(".so")
    native.library.cache_clear()
    monkeypatch.setattr(native, "_compile", lambda source, compiler, target: pytest.fail("compiled again"))
    assert library(source) is not None


@needs_compiler
def test_other_sources_or_another_compiler_are_other_kernels(
    cache: Path, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert library(source) is not None
    native.library.cache_clear()
    monkeypatch.setenv("CC", compiler(tmp_path, 'exec cc "$@"'))
    assert library(source) is not None
    native.library.cache_clear()
    source.write_text("int answer(void) { return 43; }\n")
    kernels = library(source)
    assert kernels is not None
    assert kernels.answer() == 43
    assert len(kept(cache)) == 3


@needs_compiler
def test_a_file_that_cannot_be_loaded_is_made_anew(cache: Path, source: Path) -> None:
    subprocess.run([sys.executable, "-c", LOADS, source], check=True)
    (name,) = kept(cache)
    whole = (cache / name).read_bytes()
    (cache / name).write_bytes(whole[:100])
    assert library(source) is not None
    assert kept(cache) == [name]
    assert (cache / name).stat().st_size == len(whole)


@needs_compiler
def test_where_nothing_can_be_kept_it_is_compiled_for_one_process(
    tmp_path: Path, cache: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.parent.write_text("a file where a folder should be")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert library(source) is not None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "source.c"]


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (None, "there is no C compiler nowhere."),
        ("echo 'compiler: out of order' >&2; exit 1", "fails: compiler: out of order"),
        ("exit 1", "fails: nothing was said"),
        ('while [ "$1" != -o ]; do shift; done; echo text > "$2"', ""),  # what cannot be loaded
    ],
)
def test_without_a_compiler_that_works_one_line_says_so_and_nothing_is_left(
    script: str | None,
    said: str,
    tmp_path: Path,
    cache: Path,
    source: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("CC", "nowhere" if script is None else compiler(tmp_path, script))
    with caplog.at_level(logging.INFO, "trilab"):
        assert library(source) is None
        assert library(source) is None
    (message,) = caplog.messages
    assert message.startswith("It goes without: ")
    assert said in message
    assert not [name for name in kept(cache) if name.endswith(".partial")]


@needs_compiler
def test_processes_that_compile_at_the_same_time_all_get_it_whole(cache: Path, source: Path) -> None:
    processes = [subprocess.Popen([sys.executable, "-c", LOADS, source]) for _ in range(3)]
    assert [process.wait() for process in processes] == [0, 0, 0]
    (name,) = kept(cache)
    assert name.endswith(".so")


@needs_compiler
def test_a_compilation_that_is_killed_leaves_nothing_that_would_be_loaded(
    tmp_path: Path, cache: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", compiler(tmp_path, 'while [ "$1" != -o ]; do shift; done; echo half > "$2"; sleep 60'))
    process = subprocess.Popen([sys.executable, "-c", LOADS, source], start_new_session=True)
    while not any((cache / name).stat().st_size for name in kept(cache)):
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not [name for name in kept(cache) if name.endswith(".so")]
    monkeypatch.delenv("CC")
    assert library(source) is not None


@needs_compiler
def test_what_killed_compilations_left_is_removed_once_none_can_be_at_work_on_it(cache: Path, source: Path) -> None:
    cache.mkdir(parents=True)
    names = (".source-0-a.partial", ".source-0-b.partial", ".another-0-a.partial", "own.partial")
    for name in names:
        (cache / name).write_text("half")
        if name != names[1]:
            os.utime(cache / name, (time.time() - native.ABANDONED - 60,) * 2)
    assert library(source) is not None
    assert [name for name in names if (cache / name).exists()] == list(names[1:])
