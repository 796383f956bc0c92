"""train.py at work while a test does something to it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..conftest import QUICK, ROOT
from . import remains
from .slurm import Slurm, until


def command(folder: Path, *arguments: str, text: Path) -> list[str]:
    """train.py on a small text, outputs in `folder`."""
    flags = [a for a in arguments if a.startswith("-")]
    keys = [a for a in arguments if not a.startswith("-")]
    given = [f"paths.outputs={folder / 'outputs'}", *QUICK, f"data.path={text}"]
    return [sys.executable, str(ROOT / "train.py"), *flags, *given, *keys]


@contextmanager
def begun(folder: Path, slurm: Slurm, *arguments: str, text: Path) -> Iterator[subprocess.Popen[str]]:
    """That command on a login node of the cluster; killed at the end if it has not ended."""
    process = subprocess.Popen(
        command(folder, *arguments, text=text),
        cwd=folder,
        env=os.environ | slurm.environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def at_step(folder: Path, step: int) -> Path:
    """The folder of the only run, once it has come so far."""
    runs = folder / "outputs" / "default"
    until(lambda: any(remains.step(run) >= step for run in runs.glob("attention-*")), f"step {step}", seconds=90)
    [run] = runs.glob("attention-*")
    return run
