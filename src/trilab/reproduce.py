"""A report's row, trained again: the same bits, the same within noise, or different and why."""

import json
import math
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console

from trilab.atomic import read_whole
from trilab.config import Config, load, read
from trilab.errors import BadInput
from trilab.folder import RunFailed, attend, is_finished
from trilab.identity import differences
from trilab.report.record import VERSION
from trilab.report.runs import Run, number, one_line, read_run
from trilab.report.terms import IN_WORDS, MEASURES, Measure
from trilab.report.variants import settings
from trilab.stats import CONFIDENCE, paired_difference, sample_std
from trilab.trust import refuse_foreign_code

if TYPE_CHECKING:
    import torch

Verdict = Literal["bit-equal", "within noise", "different"]

ROUNDING = 1e-4
"""Nats per character; less is taken for rounding, whatever the spread.

Another order of summation comes to about 1e-8 in flat models. Deep ones amplify it step by step, to ten times this
limit: there the spread over seeds says what noise is.
"""

_FEWEST = 3  # seeds from which a spread is worth anything
_RECORDED = ("git", "code", "versions", "hardware", "device", "precision", "data")
_CLOCKED = ("chars_per_second",)  # columns of metrics.jsonl


@dataclass(frozen=True)
class RecordedRow:
    """A row of report.json, and its runs as their folders tell of them."""

    name: str
    measure: Measure
    losses: Mapping[int, float]
    """Seed → loss by the measure, of all its seeds."""
    margin: float
    """Nats per character: what the report calls equal."""
    runs: tuple[Run, ...]
    """Those to train again."""

    @property
    def noise(self) -> float:
        """t(0.975, n - 1) · √2 · s, with s the standard deviation of the n losses over the seeds; at least `ROUNDING`.

        Within this lie 95 % of the differences between two trainings that have nothing but the seed unlike: rounding
        that was amplified step by step ends as another seed would, at most. Below 3 seeds it is the report's margin.
        """
        n, spread = len(self.losses), sample_std(self.losses.values())
        if n < _FEWEST or spread is None:
            return max(ROUNDING, self.margin)
        from scipy.stats import t  # type: ignore[import-untyped]

        return max(ROUNDING, float(t.isf((1 - CONFIDENCE) / 2, n - 1)) * math.sqrt(2) * spread)


@dataclass(frozen=True)
class Repeated:
    """What training a run again came to."""

    verdict: Verdict
    said: str
    """The verdict's grounds, with the numbers."""
    loss: float | None
    """By the report's measure; None where it did not finish."""
    unlike: tuple[str, ...]
    """What was recorded of then and is otherwise now, a line each."""


def reproduce(
    record: Path,
    *,
    row: str,
    seed: int | None,
    outputs: Path | None,
    logger: bool,
    console: Console,
    trust: bool = False,
) -> bool:
    """Train a row's runs again, from the config.yaml in their folders, and say how the results compare.

    They go into <outputs>/<experiment>-reproduced/, under their own names. Nothing is overwritten: what is finished
    there is compared as it is, what was broken off goes on.

    Args:
        record: an experiment's report.json, in its place beside the runs; or the experiment's folder.
        row: a row's name.
        seed: of the only run to train; None trains all of the row.
        outputs: the folder for experiments; None is the one that this experiment is in.
        logger: also log to where the runs were logged.
        console: where progress and results are shown.
        trust: import classes outside trilab that the runs' configs name, which runs their code.
    Returns:
        Whether all are bit-equal or within noise. For three seeds or more the mean of the differences must be noise
        too: its 95 % t-interval holds 0, or it is rounding.
    Raises:
        BadInput: no such report, row or seed; a run that is gone, is not the report's any more, or is not trusted.
    """
    record = record / "report.json" if record.is_dir() else record
    found = read_row(record, row, seed)
    if not trust:
        for run in found.runs:
            refuse_foreign_code(run.config, str(run.folder / "config.yaml"))
    place = (outputs or record.resolve().parents[1]) / f"{record.resolve().parent.name}-reproduced"
    again: dict[int, Repeated] = {}
    for run in found.runs:
        command = shlex.join(["trilab", "reproduce", str(record), "--row", row, "--seed", str(run.seed)])
        again[run.seed] = _repeat(run, found, place / run.folder.name, logger=logger, command=command, console=console)
        _tell(row, run.seed, again[run.seed], console)
    return same_over_seeds(found, again, console)


def read_row(record: Path, row: str, seed: int | None) -> RecordedRow:
    """One row of report.json and its runs' folders, which must still be what the report says of them.

    Raises:
        BadInput: as in `reproduce`.
    """
    report = _read(record)
    rows = {str(each["name"]): each for each in report["rows"]}
    if row not in rows:
        raise BadInput(f"{record} has no row {row!r}. Its rows: {', '.join(map(repr, rows)) or 'none'}.")
    try:
        measure: Measure = report["terms"]["measure"]
        margin = float(report["terms"]["margin"])
        losses = {int(k): float(v) for k, v in rows[row]["losses"][measure]["by_seed"].items()}
        runs = [(str(run["run"]), int(run["seed"]), run["command"]) for run in rows[row]["runs"]]
        was = dict(rows[row]["settings"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadInput(f"{record}: the row {row!r} is not as trilab report writes it ({error!r}).") from error
    if seed is not None and seed not in losses:
        raise BadInput(f"The row {row!r} has no seed {seed}. Its seeds: {', '.join(map(str, losses))}.")
    chosen = [run for run in runs if seed in (None, run[1])]
    recorded = []
    for name, of, command in chosen:
        run = _recorded(record, name, was, command)
        if run.summary.get(measure) != losses[of]:
            raise BadInput(
                f"{run.folder} has been trained anew since {record} was written: its {measure} was {losses[of]} and "
                f"is {run.summary.get(measure)}. trilab report {record.parent} writes the report anew."
            )
        recorded.append(run)
    return RecordedRow(row, measure, losses, margin, tuple(recorded))


def _read(record: Path) -> Mapping[str, Any]:
    try:
        content: object = json.loads(read_whole(record).decode("utf-8"))
    except OSError as error:
        raise BadInput(f"{record} cannot be read: {error.strerror}. Name an experiment's report.json.") from error
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{record} is no report.json: {error}. trilab report FOLDER writes one.") from error
    rows = content.get("rows") if isinstance(content, dict) else None
    if (
        not isinstance(content, dict)
        or not isinstance(rows, list)
        or not all(isinstance(row, dict) and "name" in row for row in rows)
    ):
        raise BadInput(f"{record} is no report.json: it has no rows. trilab report FOLDER writes one.")
    if content.get("version") != VERSION:
        raise BadInput(
            f"{record} has version {content.get('version')!r}; this trilab reads version {VERSION}. trilab report "
            f"{record.parent} writes it anew."
        )
    return content


def _recorded(record: Path, name: str, was: Mapping[str, str], command: str | None) -> Run:
    folder = record.parent / name
    if name in ("", ".", "..") or "/" in name or not (folder / "config.yaml").is_file():
        other = f" Its command was: {command}" if command else ""
        raise BadInput(
            f"{folder} is gone, or has no config.yaml. A run is trained again from its folder, beside report.json: the "
            f"report alone does not hold its whole config.{other}"
        )
    run = read_run(folder)
    if run.status != "finished":
        raise BadInput(f"{folder} is {run.status}: {run.reason}. It was finished when {record} was written.")
    if unlike := differences(was, settings(run)):
        raise BadInput(
            f"{folder} is not what {record} tells of: {'; '.join(unlike)}. trilab report {record.parent} writes the "
            "report anew."
        )
    return run


def _repeat(original: Run, row: RecordedRow, folder: Path, *, logger: bool, command: str, console: Console) -> Repeated:
    config = _config(original.folder / "config.yaml", folder, logger)
    _refuse_another(config, folder)
    if is_finished(folder):
        _say([f"{folder} was trained before: compared as it is. Remove it to train again."], console)
    else:
        _say([f"{row.name} seed={original.seed} → {folder}"], console)
        try:
            attend(config, folder, console=console, alone=True, command=command)
        except RunFailed as failed:
            return Repeated("different", f"it did not finish: {one_line(str(failed))}", None, ())
    now = read_run(folder)
    if now.status != "finished":
        return Repeated("different", f"{folder} is {now.status}: {now.reason}", None, ())
    return compared(original, now, row)


def _config(path: Path, folder: Path, logger: bool) -> Config:
    """The recorded config, bound for another folder."""
    was = load(path)
    moved = {
        "experiment_name": folder.parent.name,
        "paths": {"outputs": str(folder.parents[1])},
        "force": False,
        "retry": True,
    }
    return read({**was.tree, **moved, **({} if logger else {"logger": {"name": "none"}})})


def _refuse_another(config: Config, folder: Path) -> None:
    path = folder / "config.yaml"
    unlike = differences(load(path).tree, config.tree) if path.is_file() else []
    if unlike:
        raise BadInput(f"{folder} holds another run: {'; '.join(unlike)}. Give another place with --outputs.")


def compared(then: Run, now: Run, row: RecordedRow) -> Repeated:
    """Two finished runs of one config and seed: what is the same in them, and what is not.

    Bit-equal: every loss in summary.json, all of metrics.jsonl but what a clock wrote, and the weights of last.ckpt
    where both still have them. Within noise: the difference by the row's measure is at most
    `RecordedRow.noise`.
    """
    unlike = _unlike(then.summary, now.summary)
    was, is_ = _losses(then.summary), _losses(now.summary)
    loss = is_.get(row.measure)
    if loss is None or row.measure not in was:
        return Repeated("different", f"one of the two has no {row.measure}", loss, unlike)
    first = _first_unlike(_rows(then.folder / "metrics.jsonl"), _rows(now.folder / "metrics.jsonl"))
    weights = _weights_alike(then.folder, now.folder)
    alike = all(was[key] == is_[key] for key in was.keys() & is_.keys())
    if alike and first is None and weights is not False:
        kept = "all weights of last.ckpt" if weights else "no weights compared: a last.ckpt is gone"
        return Repeated("bit-equal", f"{row.measure} {loss!r}, metrics.jsonl; {kept}", loss, unlike)
    difference = loss - was[row.measure]
    measured = f"{row.measure} was {was[row.measure]:.6f} and is {loss:.6f}: {difference:+.6f}"
    where = "in the weights alone" if first is None else f"first at step {first:,} of metrics.jsonl"
    allowed = (
        f"95 % of trainings with another seed differ by up to {row.noise:.6f}"
        if len(row.losses) >= _FEWEST
        else f"fewer than {_FEWEST} seeds tell no spread: up to {row.noise:g} is taken for noise"
    )
    verdict: Verdict = "within noise" if abs(difference) <= row.noise else "different"
    return Repeated(verdict, f"{measured}, {where}; {allowed}", loss, unlike)


def _losses(summary: Mapping[str, Any]) -> dict[str, float]:
    return {key: value for key in MEASURES if (value := number(summary.get(key))) is not None}


def _rows(metrics: Path) -> list[dict[str, Any]]:
    try:
        lines = [json.loads(line) for line in metrics.read_bytes().splitlines()]
    except (OSError, ValueError):
        return []
    return [line for line in lines if isinstance(line, dict)]


def _first_unlike(then: list[dict[str, Any]], now: list[dict[str, Any]]) -> int | None:
    """The step of the first row that is not the same, in the columns that both have; None if all are."""
    for one, other in zip(then, now, strict=False):
        if any(one[key] != other[key] for key in one.keys() & other.keys() if key not in _CLOCKED):
            return int(one.get("step", 0))
    if len(then) != len(now):
        longer = max(then, now, key=len)
        return int(longer[min(len(then), len(now))].get("step", 0))
    return None


def _weights_alike(then: Path, now: Path) -> bool | None:
    """Whether the weights at the end are the same bits; None where one of the two checkpoints is gone or damaged."""
    from trilab import checkpoint

    try:
        one, other = (_weights(checkpoint.load(folder / "checkpoints" / "last.ckpt")) for folder in (then, now))
    except BadInput:
        return None
    return one.keys() == other.keys() and all(bool((one[name] == other[name]).all()) for name in one)


def _weights(content: Mapping[str, Any]) -> "dict[str, torch.Tensor]":
    from trilab import checkpoint

    return checkpoint.model_weights(content)


def _unlike(then: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[str, ...]:
    """What two summaries record of code, versions, text and hardware, where it is not the same."""
    recorded = [{key: each.get(key) for key in _RECORDED} for each in (then, now)]
    return tuple(one_line(line) for line in differences(*recorded))


def _tell(name: str, seed: int, again: Repeated, console: Console) -> None:
    lines = [f"{name} seed={seed}: {again.verdict}: {again.said}"]
    lines += [f"    {line}" for line in again.unlike]
    if again.verdict != "bit-equal" and again.loss is not None and not again.unlike:
        lines.append(
            "    Code, versions, text and hardware are as they were: either the same config does not give the same "
            "bits on them, or a file of the run was changed."
        )
    _say(lines, console)


def same_over_seeds(row: RecordedRow, again: Mapping[int, Repeated], console: Console) -> bool:
    """Whether all seeds together are noise too, as `reproduce` says; told where it is not plain from each alone."""
    verdicts = [each.verdict for each in again.values()]
    if "different" in verdicts or set(verdicts) == {"bit-equal"} or len(again) < _FEWEST:
        return "different" not in verdicts
    now = {seed: each.loss for seed, each in again.items() if each.loss is not None}
    paired = paired_difference(now, row.losses)
    if paired.mean is None or paired.low is None or paired.high is None:
        return True
    is_noise = abs(paired.mean) <= ROUNDING or paired.low <= 0 <= paired.high
    line = (
        f"{row.name}: {'within noise' if is_noise else 'different'} over {paired.n} seeds: mean difference of the "
        f"{IN_WORDS[row.measure]} {paired.mean:+.6f}, 95 % t-interval {paired.low:+.6f} to {paired.high:+.6f}"
    )
    _say([line], console)
    return is_noise


def _say(lines: Iterable[str], console: Console) -> None:
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
