"""What a user calls a run → where it lies. W&B's names are looked up on the disk; no server is asked."""

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from trilab.errors import BadInput
from trilab.report.runs import holds_a_run, one_line, subfolders

NAMED = 8  # runs or experiments that a message lists
WHAT = "Give a run's folder, a .ckpt file, or a W&B run path (entity/project/run_id)"


def find_run(name: str, outputs: Path) -> Path:
    """The run's folder or the checkpoint that is meant.

    Args:
        name: a path; or W&B's `entity/project/run_id`, a run's address there, or its id alone. Of these the id counts:
            runs keep theirs in wandb.json.
        outputs: the folder below which runs are looked for by id.
    Raises:
        BadInput: there is none, it is an experiment and not a run, or several runs have the id.
    """
    if not name:
        raise BadInput(f"The name of the run is empty. {WHAT}.")
    path = Path(name)
    try:
        is_folder, is_there = path.is_dir(), path.exists()
    except OSError as error:  # a name that is too long, or below a folder that may not be looked into
        raise BadInput(f"{name} cannot be looked for: {error.strerror}. {WHAT}.") from None
    if is_folder and not (path / "checkpoints").is_dir():
        raise _no_run(path)
    return path if is_there else _logged_as(name, outputs)


def checkpoint_of(run: Path) -> Path:
    """The checkpoint that is meant by a run's folder: the best, or the latest where none was validated, which is told.

    Args:
        run: the folder, or a checkpoint, which is itself.
    Raises:
        BadInput: nothing is there, or a folder of something else.
    """
    if os.path.lexists(run) and not run.is_dir():
        return run
    if not run.is_dir():
        raise BadInput(f"{run}: there is no such run or checkpoint.")
    if not (run / "checkpoints").is_dir():
        raise BadInput(f"{run} is no run: a run's folder has checkpoints/ in it.")
    best, last = (run / "checkpoints" / name for name in ("best.ckpt", "last.ckpt"))
    if os.path.lexists(best) or not os.path.lexists(last):
        return best
    print(f"{run} has no best.ckpt, since it has not been validated yet: last.ckpt is taken.", file=sys.stderr)
    return last


def _no_run(folder: Path) -> BadInput:
    inside = subfolders(folder)
    runs = [path for path in inside if (path / "checkpoints").is_dir()]
    if runs:
        return BadInput(f"{folder} is an experiment. Name one of its runs: {_listed(runs)}.")
    experiments = [path for path in inside if any((run / "checkpoints").is_dir() for run in _folders(path))]
    if experiments:
        return BadInput(f"{folder} holds experiments. Name a run of one of them: {_listed(experiments)}.")
    if holds_a_run(folder):
        return BadInput(f"{folder} is a run that has no checkpoint yet: it was stopped before its first.")
    return BadInput(f"{folder} is no run: a run's folder has checkpoints/ in it. {WHAT}.")


def _logged_as(name: str, outputs: Path) -> Path:
    wanted = _id(name)
    if not outputs.is_dir():
        raise BadInput(
            f"{name}: there is no such file or folder, and no folder {outputs} with a run of that name on W&B "
            f"(--outputs says where runs are). {WHAT}."
        )
    searched = list(outputs.glob("**/wandb.json"))
    found = sorted(memory.parent for memory in searched if wanted in _ids(memory))
    runs = [folder for folder in found if (folder / "checkpoints").is_dir()]
    if len(runs) == 1:
        return runs[0]
    if runs:
        raise BadInput(f"{name} is the id of several runs: {_listed(runs)}. Give the folder of one.")
    if found:
        raise BadInput(f"{name} is the id of {found[0]} on W&B, which has no checkpoint. {WHAT}.")
    raise BadInput(
        f"{name}: there is no such file or folder, and below {outputs} no run that W&B knows as {wanted} "
        f"(wandb.json files read: {len(searched):,}; --outputs says where runs are). {WHAT}."
    )


def _id(name: str) -> str:
    """What follows `runs` in an address, whichever of the run's pages that is of; else the last part of a path."""
    parts = re.split("[?#]", name, maxsplit=1)[0].strip("/").split("/")
    return next((part for before, part in zip(parts[-2::-1], parts[:0:-1], strict=True) if before == "runs"), parts[-1])


def _ids(memory: Path) -> Iterator[str]:
    """W&B's ids of all parts of a training; none where the file cannot be understood."""
    try:
        parts = json.loads(memory.read_text(encoding="utf-8"))["parts"]
        yield from [str(part["id"]) for part in parts]
    except (OSError, ValueError, KeyError, TypeError):
        return


def _folders(folder: Path) -> list[Path]:
    try:
        return subfolders(folder)
    except BadInput:  # one that may not be listed
        return []


def _listed(paths: list[Path]) -> str:
    more = f" and {len(paths) - NAMED} more" if len(paths) > NAMED else ""
    return one_line(", ".join(str(path) for path in paths[:NAMED])) + more
