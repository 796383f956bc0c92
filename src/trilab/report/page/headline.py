"""What the runs say, in a sentence or two and four lists."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from trilab.report.page.written import counted, difference, listed, loss, p_value, text
from trilab.report.rows import Row
from trilab.report.terms import IN_WORDS

if TYPE_CHECKING:
    from trilab.report import Report

VERDICTS = ("better", "equal", "undecided", "worse")


@dataclass(frozen=True)
class Verdict:
    """Rows of which the same is known."""

    verdict: str
    rows: tuple[tuple[int, Row], ...]
    """Place and row, the lowest loss first."""


def verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """Every verdict that a row has."""
    found = []
    for verdict in VERDICTS:
        same = tuple(
            (place, row) for place, row in enumerate(rows) if row.comparison and row.comparison.verdict == verdict
        )
        if same:
            found.append(Verdict(verdict, same))
    return found


def headline(report: "Report") -> list[Markup]:
    """The result, and how much of it is sure: a sentence or two, with the rows' names set off."""
    return [Markup(sentence) for sentence in _sentences(report)]


def _sentences(report: "Report") -> list[str]:
    if not report.rows:
        return ["No run has finished yet: there is nothing to compare."]
    best, base, measure = report.rows[0], report.baseline, IN_WORDS[report.terms.measure]
    if len(report.rows) == 1:
        return [f"{_named(best)} comes to a {measure} of {_nats(best)}. There is no other row to compare it with."]
    if base is None:
        return [
            f"{_named(best)} has the lowest {measure}, {_nats(best)}.",
            "Nothing says how sure that is: there is no baseline to compare with.",
        ]
    others = [row for row in report.rows if row.comparison]
    better = [(d.mean, row) for row in others if _is_better(row) and (d := row.difference) and d.mean is not None]
    if better and (best.is_baseline or best.twin == base.name):  # over seeds of its own it is the lowest
        _, best = min(better, key=lambda each: each[0])
    if best.is_baseline or best.twin == base.name:
        first = f"Nothing has a lower {measure} than the baseline {_named(base)}, {_nats(base)}."
    else:
        first = _best(best, base, measure, report.terms.margin)
    return [first, _rest(others, base, report.terms.margin)] if others else [first]


def _is_better(row: Row) -> bool:
    return row.comparison is not None and row.comparison.verdict == "better"


def _named(row: Row) -> Markup:
    return Markup("<b><bdi>{}</bdi></b>").format(escape(text(row.name)))


def _nats(row: Row) -> str:
    return f"{loss(row.headline.mean)} nats per character ({counted(len(row.seeds), 'seed')})"


def _best(best: Row, base: Row, measure: str, margin: float) -> str:
    comparison, paired = best.comparison, best.difference
    if comparison is None:
        why = f"but was validated on other characters than {_named(base)}"
        return f"{_named(best)} has the lowest {measure}, {_nats(best)}, {why}."
    if paired is None or paired.mean is None:
        return f"{_named(best)} has the lowest {measure}, {_nats(best)}, but no seed in common with {_named(base)}."
    own, other = (statistics.mean(row.headline.by_seed[seed] for seed in paired.seeds) for row in (best, base))
    losses = f"{measure} {loss(own)} against {loss(other)}"
    interval = ""
    if paired.low is not None and paired.high is not None:
        interval = f"95 % interval {difference(paired.low)} to {difference(paired.high)}"
        if paired.high < 0:
            interval = f"95 % interval {loss(-paired.high)} to {loss(-paired.low)}"
    if comparison.verdict in ("better", "worse"):  # worse in the seeds that both have, if others made it the lowest
        p = comparison.p_adjusted
        sure = [interval, f"Holm-adjusted p {'= ' * (p >= 0.001)}{p_value(p)}" if p is not None else ""]
        how_sure = ", ".join([*(part for part in sure if part), counted(paired.n, "seed")])
        by = f"by {loss(abs(paired.mean))} nats per character ({how_sure})"
        return f"{_named(best)} is {comparison.verdict} than the baseline {_named(base)} {by}: {losses}."
    if comparison.verdict == "equal":
        return (
            f"{_named(best)} has the lowest loss, but is equal to the baseline {_named(base)} within {margin:g} nats "
            f"({interval}, {counted(paired.n, 'seed')}): {losses}."
        )
    if paired.n < 2:
        said = "with one seed it is not known how much another would move it"
        if comparison.over == "text" and interval:
            said += f"; {interval} over stretches of text"
    else:
        said = f"{interval}, {counted(paired.n, 'seed')}" if interval else counted(paired.n, "seed")
        if comparison.seeds_needed:
            said += f"; about {comparison.seeds_needed:,} would decide"
    side = "below" if paired.mean < 0 else "above"
    return (
        f"{_named(best)} has the lowest {measure}, {loss(best.headline.mean)}, {loss(abs(paired.mean))} nats "
        f"per character {side} the baseline {_named(base)}; that is undecided ({said})."
    )


def _rest(others: Sequence[Row], base: Row, margin: float) -> str:
    """How many of the rows that are compared have which verdict."""
    words = {
        "better": "better",
        "worse": "worse",
        "equal": f"equal within {margin:g} nats",
        "undecided": "undecided",
    }
    counts = []
    for verdict in ("better", "worse", "equal", "undecided"):
        rows = [row for row in others if row.comparison and row.comparison.verdict == verdict]
        if rows:
            counts.append(f"{len(rows)} {words[verdict]}")
    said = f"Of {counted(len(others), 'row')} compared with {_named(base)}: {listed(counts)}."
    undecided = [row for row in others if row.comparison and row.comparison.verdict == "undecided"]
    needed = [row.comparison.seeds_needed for row in undecided if row.comparison and row.comparison.seeds_needed]
    if needed and len(needed) == len(undecided):
        said += f" About {max(needed):,} seeds a row would decide {'it' if len(needed) == 1 else 'them'}."
    return said
