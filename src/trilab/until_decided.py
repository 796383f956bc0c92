"""sweep.until_decided=true: after the seeds given, which runs are added until every difference is decided."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trilab.config import Config
from trilab.errors import BadInput
from trilab.folder import is_finished
from trilab.looks import FEWEST, Looks, settle
from trilab.sequential import Spending

if TYPE_CHECKING:
    from trilab.report import Report, Row


@dataclass(frozen=True)
class Job:
    """One run of a sweep."""

    overrides: tuple[str, ...]
    """What is given for it on the command line, or as if it were: key=value."""
    config: Config
    folder: Path

    @property
    def variant(self) -> tuple[str, ...]:
        """All that is given but the seed."""
        return tuple(given for given in self.overrides if given.lstrip("+").partition("=")[0] != "seed")


class UntilDecided:
    """The runs of one experiment in a sweep, looked at when all have ended, and the runs that each look adds.

    A look reads the experiment's folder as the report does and judges by `sequential.look_by_look`, so that sweep and
    report cannot disagree. What it finds decided gets no more seeds. To the rest, and to the baseline, the next seed is
    added, up to `sweep.max_seeds`.

    Why the 5 % hold: the looks are settled before the first run, at n = first … max_seeds seeds, where `first` is the
    number of seeds given, at least 3. Each may spend an equal part of 5 %, Holm-adjusted over the whole family. The
    parts sum to 5 %, so a wrong claim anywhere in the family, at any look, has at most that probability, however the
    looks depend on one another and whenever the seeds stop (see `Spending`): 5 % for claims that something differs, and
    5 % for claims that it is equal.

    A look takes the seeds in ascending order and knows of none beyond those that the sweep has added so far. Given
    again, the same command therefore looks at the same losses, comes to the same verdicts, and adds the same runs.

    Args:
        jobs: of one experiment, with the seeds given.
        compose: the run of these overrides.
    Raises:
        BadInput: more seeds are given than `max_seeds`; the baseline is not among the jobs; `report.choose` is set.
    """

    def __init__(self, jobs: Sequence[Job], compose: Callable[[Sequence[str]], Job]) -> None:
        _check(jobs)
        self.jobs = list(jobs)
        self.experiment = jobs[0].folder.parent
        self._compose = compose
        seeds = {job.config.seed for job in jobs}
        most = jobs[0].config.sweep.max_seeds
        self.spending = Spending(first=max(FEWEST, len(seeds)), last=most)
        self._told: set[str] = set()
        self._ended = False

    def settle(self) -> None:
        """Write the plan of looks down, before the first run; or go on by the one that is there.

        Raises:
            BadInput: another one was settled for this experiment, or the file is broken.
        """
        terms = self.jobs[0].config.report
        seen = {job.config.seed for job in self.jobs if is_finished(job.folder)}
        plan = Looks(self.spending, terms.baseline, terms.measure, terms.margin, len(seen))
        self.spending = settle(self.experiment, plan).spending

    def further(self, say: Callable[[str], None]) -> list[Job]:
        """What to train next, after all that was to be trained before has ended one way or the other.

        Args:
            say: takes a line: what a look has decided, or why there are no more.
        Returns:
            The runs; none when it has come to its end.
        """
        if self._ended:
            return []
        from trilab.report import make_report  # only where there is something to look at

        last_seed = max(job.config.seed for job in self.jobs)
        try:
            report = make_report(self.experiment, up_to=last_seed)  # on the terms that were settled
        except BadInput as error:  # no run has left anything
            return self._end(say, str(error))
        if report.baseline is None:
            return self._end(say, report.notes[0] if report.notes else "No run has finished.")
        n = len(report.baseline.seeds)
        broken = {job.variant: job.folder.name for job in self.jobs if not is_finished(job.folder)}
        open_ = self._open(report)
        baseline = self._variants(report.baseline)
        if n >= self.spending.first:
            self._tell(report, n, say)
        if lost := broken.keys() & set(baseline):
            return self._end(say, f"The baseline's {broken[lost.pop()]} did not finish.")
        for variant in sorted(open_.keys() & broken.keys()):
            say(f"{open_.pop(variant)} stays undecided and gets no more seeds: {broken[variant]} did not finish.")
        if not open_:
            return self._end(say, "")
        if n >= self.spending.last:
            return self._end(say, f"sweep.max_seeds={self.spending.last} is reached.")
        count = max(1, self.spending.first - n)
        added = [
            self._compose([*variant, f"seed={seed}"])
            for seed in range(last_seed + 1, last_seed + 1 + count)
            for variant in dict.fromkeys([*baseline, *open_])
        ]
        self.jobs += added
        return added

    def _variants(self, row: "Row") -> list[tuple[str, ...]]:
        folders = {run.folder for run in (*row.variant.runs, *row.variant.repeats)}
        return list(dict.fromkeys(job.variant for job in self.jobs if job.folder in folders))

    def _open(self, report: "Report") -> dict[tuple[str, ...], str]:
        """Variants of this sweep that are not decided yet → their names."""
        rows = [row for row in report.rows if row.comparison and row.comparison.verdict == "undecided"]
        return {variant: row.name for row in rows for variant in self._variants(row)}

    def _tell(self, report: "Report", n: int, say: Callable[[str], None]) -> None:
        verdicts = {row.name: row.comparison.verdict for row in report.rows if row.comparison}
        new = {name: v for name, v in verdicts.items() if v != "undecided" and name not in self._told}
        rest = [name for name, verdict in verdicts.items() if verdict == "undecided"]
        self._told |= new.keys()
        decided = ", ".join(f"{name} {verdict}" for name, verdict in new.items()) or "nothing new"
        open_ = f"undecided: {', '.join(rest)}" if rest else "nothing is undecided"
        spending = self.spending
        spent = sum(spending.level(look) for look in spending.looks if look <= n)
        say(
            f"Look at {n} seeds of at most {spending.last}: {decided}; {open_}; "
            f"spent so far {100 * spent:.3g} of {100 * spending.alpha:g} %"
        )

    def _end(self, say: Callable[[str], None], why: str) -> list[Job]:
        self._ended = True
        if why:
            say(f"{self.experiment.name}: no more seeds are added. {why}")
        return []


def _check(jobs: Sequence[Job]) -> None:
    config = jobs[0].config
    names = list(dict.fromkeys(job.config.name for job in jobs))
    baseline = config.report.baseline
    if not any(baseline == name or baseline.startswith(f"{name} ") for name in names):
        raise BadInput(
            f"sweep.until_decided=true adds seeds to the baseline too, but report.baseline={baseline} is not among "
            f"the runs of this sweep: {', '.join(names)}. Add it, or set report.baseline to one of them."
        )
    if config.report.choose is not None:
        raise BadInput(
            f"sweep.until_decided=true and report.choose={config.report.choose} do not go together: which rows are "
            "compared would change from look to look. Choose first, then compare what was chosen."
        )
    seeds = {job.config.seed for job in jobs}
    if len(seeds) > config.sweep.max_seeds:
        raise BadInput(
            f"{len(seeds)} seeds are given, which is more than sweep.max_seeds={config.sweep.max_seeds}: raise it."
        )
