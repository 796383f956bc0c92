"""train.py as a process of its own, for what only shows there: no terminal, several processes, how long it takes."""

import os
import subprocess
import sys
from pathlib import Path

from .conftest import QUICK, ROOT, Outcome


def train_py(folder: Path, *arguments: str, text: Path, timeout: float = 120, **environment: str) -> Outcome:
    """Run train.py on a small text for four steps, with no terminal and no W&B key; outputs go into `folder`.

    Args:
        folder: what it is launched from; also the home of a user who has no settings.
        timeout: seconds after which it counts as hung.
        environment: variables to set besides.
    """
    flags = [a for a in arguments if a.startswith("-")]
    keys = [a for a in arguments if not a.startswith("-")]
    outputs = folder / "outputs"
    done = subprocess.run(
        [sys.executable, ROOT / "train.py", *flags, f"paths.outputs={outputs}", *QUICK, f"data.path={text}", *keys],
        cwd=folder,
        env={k: v for k, v in os.environ.items() if not k.startswith("WANDB_")}
        | {"HOME": str(folder), "NETRC": str(folder / "netrc"), **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    return Outcome(done.returncode, done.stdout, done.stderr, outputs)
