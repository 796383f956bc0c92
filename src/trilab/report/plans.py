"""planned.jsonl: what a sweep says of its runs before they say it themselves."""

import json
from dataclasses import dataclass
from pathlib import Path

from trilab.atomic import read_whole
from trilab.report.runs import one_line


@dataclass(frozen=True)
class Plan:
    """One run that a sweep means to train."""

    label: str
    seed: int | None
    max_steps: int | None


def read_plans(experiment: Path) -> dict[str, Plan]:
    """Folder's name → what is planned there; lines that are no plans, or half written, are passed over."""
    try:
        lines = read_whole(experiment / "planned.jsonl").splitlines()
    except OSError:
        return {}
    found = {}
    for line in lines:
        try:
            said = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(said, dict) and isinstance(name := said.get("run"), str) and _is_a_name(name):
            label = one_line(str(said.get("label") or name))
            found[name] = Plan(label, whole(said.get("seed")), steps(said.get("max_steps")))
    return found


def whole(value: object) -> int | None:
    """A whole number; None for anything else that a file may hold in its place."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def steps(value: object) -> int | None:
    """A number of steps, 0 or more; None for anything else."""
    found = whole(value)
    return None if found is None or found < 0 else found


def _is_a_name(name: str) -> bool:
    return name not in ("", ".", "..") and "/" not in name and "\0" not in name
