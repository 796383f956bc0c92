"""An overview as JSON, for scripts."""

from collections.abc import Sequence
from typing import Any

from trilab.overview.experiment import STATES, Overview, Standing
from trilab.overview.rows import Difference, Row


def in_json(overview: Overview, rows: Sequence[Row], note: str) -> dict[str, Any]:
    """All that the screen shows, as plain JSON values, null where something is not known."""
    return {
        "folder": overview.folder.as_posix(),
        "counts": {state: overview.counts[state] for state in STATES},
        "seconds_left": overview.seconds_left,
        "over": overview.over,
        "rows": [
            {
                "name": row.name,
                "is_baseline": row.is_baseline,
                "val_loss": next(reversed(row.curve.values()), None),
                "curve": [[step, loss] for step, loss in row.curve.items()],
                "difference": _difference_in_json(row.difference),
                "runs": [_run_in_json(standing) for standing in row.standings],
            }
            for row in rows
        ],
        "note": note or None,
    }


def _run_in_json(standing: Standing) -> dict[str, Any]:
    return {
        "run": standing.folder.name,
        "label": standing.label,
        "seed": standing.seed,
        "state": standing.state,
        "step": standing.step,
        "max_steps": standing.max_steps,
        "steps_per_second": standing.steps_per_second,
        "val_loss": standing.val_losses[max(standing.val_losses)] if standing.val_losses else None,
        "reason": standing.reason or None,
        "log": standing.log.as_posix() if standing.log else None,
    }


def _difference_in_json(difference: Difference | None) -> dict[str, Any] | None:
    if difference is None:
        return None
    return {
        "mean": difference.paired.mean,
        "std": difference.paired.std,
        "seeds": list(difference.paired.seeds),
        "steps": [difference.first_step, difference.last_step],
    }
