"""looks.json: at how many seeds an experiment is looked at, on what terms, and what each look may spend.

A sweep with `sweep.until_decided=true` writes it before its first run. What the looks have decided is written nowhere:
it follows from this plan and the losses (`sequential.look_by_look`), for the sweep and for every report alike.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from trilab.atomic import read_whole, replacing
from trilab.errors import BadInput
from trilab.sequential import Spending

FEWEST = 3
"""Seeds at the first look, at least."""


@dataclass(frozen=True)
class Looks:
    """What is settled before the first look."""

    spending: Spending
    baseline: str
    measure: str
    margin: float
    """Nats per character."""
    seen: int = 0
    """Seeds whose runs had finished before: what they came to may have been the reason to go on."""

    @property
    def terms(self) -> dict[str, Any]:
        """On which verdicts are passed."""
        return {"baseline": self.baseline, "measure": self.measure, "margin": self.margin}


def settle(experiment: Path, looks: Looks) -> Looks:
    """Write the plan, or take the one that is there: a sweep that goes on looks where it would have looked.

    Args:
        experiment: outputs/<experiment_name>, which exists.
    Raises:
        BadInput: there is another last look in it, or other terms; it is broken, or cannot be written.
    """
    path = _file(experiment)
    before = read_looks(experiment)
    if before is None:
        plan = {**asdict(looks.spending), **looks.terms, "seen": looks.seen}
        try:
            with replacing(path) as file:
                file.write(f"{json.dumps(plan)}\n".encode())
        except OSError as error:
            raise BadInput(
                f"{path} cannot be written: {error.strerror}. Free the place, or set paths.outputs."
            ) from error
        return looks
    settled = {"sweep.max_seeds": before.spending.last} | {f"report.{key}": of for key, of in before.terms.items()}
    asked = {"sweep.max_seeds": looks.spending.last} | {f"report.{key}": of for key, of in looks.terms.items()}
    other = [key for key in settled if settled[key] != asked[key]]
    if other:
        raise BadInput(
            f"{', '.join(f'{key}={asked[key]}' for key in other)}, but {path} was settled for "
            f"{', '.join(f'{key}={settled[key]}' for key in other)}: with other looks after the first results the "
            "verdicts would be wrong more often than they say. Keep what was settled, or begin anew under another "
            "experiment_name, with other seeds."
        )
    return before


def read_looks(experiment: Path) -> Looks | None:
    """What was settled; None where nobody has.

    Raises:
        BadInput: the file is there and is no such plan.
    """
    path = _file(experiment)
    try:
        content = json.loads(read_whole(path))
        wrong = {key: content[key] for key in ("first", "last", "every", "seen") if type(content[key]) is not int}
        if wrong:
            raise ValueError(f"{wrong} must be whole numbers")
        spending = Spending(**{key: content[key] for key in ("alpha", "first", "last", "every")})
        return Looks(
            spending, str(content["baseline"]), str(content["measure"]), float(content["margin"]), content["seen"]
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, LookupError, RecursionError) as error:
        said = f"{type(error).__name__}: {error}"
        raise BadInput(f"{path} cannot be read as the plan of looks ({said}). Restore it.") from error


def has_looks(experiment: Path) -> bool:
    """Whether somebody has settled when to look at this experiment."""
    return _file(experiment).exists()


def looks_of(experiment: Path, configs: Iterable[Mapping[str, Any]], usual: Looks) -> tuple[Looks | None, str]:
    """The plan by which an experiment's verdicts are to be judged; None where nobody looked before the end.

    Where looks.json is gone or broken, the configs of the runs tell as much as is needed to be careful: that seeds were
    added until all was decided, to how many at most. Looks are then counted from `FEWEST` seeds on.

    Args:
        configs: of the experiment's runs, as plain values, whatever they hold.
        usual: the terms that hold where the plan does not tell them.
    Returns:
        The plan, and what a reader must know of it, a sentence; empty where it is what was written.
    """
    try:
        settled = read_looks(experiment)
        why = "looks.json is gone"
    except BadInput:
        settled = None
        why = "looks.json cannot be read"
    if settled:
        return settled, ""
    most = max(filter(None, map(_most_seeds, configs)), default=None)
    if most is not None:
        return replace(
            usual, spending=Spending(first=FEWEST, last=most)
        ), f"{why}: looks are taken to be at {FEWEST} … {most} seeds."
    if _file(experiment).exists():
        return None, f"{why}: if seeds were added until all was decided, the verdicts are wrong more often than 5 %."
    return None, ""


def _most_seeds(config: Mapping[str, Any]) -> int | None:
    section = config.get("sweep")
    if not isinstance(section, dict) or section.get("until_decided") is not True:
        return None
    most = section.get("max_seeds")
    return most if type(most) is int and most >= FEWEST else None


def _file(experiment: Path) -> Path:
    return experiment / "looks.json"
