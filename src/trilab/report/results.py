"""Reports → tables and pictures in a Markdown page, each in its place.

    python -m trilab.report.results docs/results.md outputs

The page is written by hand but for what stands between `<!-- begin part03 curves -->` and `<!-- end part03 -->`: that
is made from outputs/part03, with the pictures that are named. They go into a folder of the page's name, docs/results/.
"""

import argparse
import re
import statistics
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from markupsafe import Markup

from trilab.atomic import replacing
from trilab.errors import BadInput
from trilab.report import Report, Row, make_report
from trilab.report.page.costs import cost_charts
from trilab.report.page.lines import chart, curves, positions, same_everywhere
from trilab.report.page.looks import looks
from trilab.report.references import Reference
from trilab.report.runs import number
from trilab.report.terms import IN_WORDS
from trilab.report.variants import Variant, group

_PART = re.compile(r"(<!-- begin ([\w.-]+)((?: \w+)*) -->\n).*?(<!-- end \2 -->)", re.DOTALL)
_HEADERS = (
    *("strategy", "seeds", "loss", "spread", "difference", "95 % interval", "verdict"),
    *("parameters", "steps", "training FLOPs"),  # no seconds: runs side by side slow one another down
)


def main() -> None:
    """Fill a page from experiments' folders. Exit code 0 or 2 (bad input)."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path, help="a Markdown page with marks")
    parser.add_argument("outputs", type=Path, help="the folder that holds the experiments")
    given = parser.parse_args()
    try:
        fill(given.page, given.outputs)
    except BadInput as error:
        print(error, file=sys.stderr)
        sys.exit(2)


def fill(page: Path, outputs: Path) -> None:
    """Write every part of a page anew from the experiment that its marks name, and its pictures beside the page.

    Args:
        page: Markdown with marks; what stands outside of them is kept.
        outputs: the folder that holds the experiments.
    Raises:
        BadInput: the page cannot be read, has no marks, or names an experiment or a picture that there is not.
    """
    try:
        text = page.read_text(encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{page} cannot be read: {error.strerror}.") from error
    parts, beside = {}, {}
    for _, name, kinds, _ in _PART.findall(text):
        report = make_report(outputs / name)
        drawn = pictures(report)
        for kind in kinds.split():
            if kind not in drawn:
                raise BadInput(
                    f"{page}: of {name} there is no picture {kind!r}. There are: {', '.join(drawn) or 'none'}."
                )
            beside[page.with_suffix("") / f"{name}-{kind}.svg"] = drawn[kind]
        parts[name] = part(report, {kind: f"{page.stem}/{name}-{kind}.svg" for kind in kinds.split()})
    if not parts:
        raise BadInput(f"{page} has no place for results: <!-- begin NAME --> and, below it, <!-- end NAME -->.")
    for path, picture in beside.items():
        _write(path, picture)
    _write(page, _PART.sub(lambda found: f"{found[1]}\n{parts[found[2]]}\n{found[4]}", text))


def part(report: Report, drawn: dict[str, str]) -> str:
    """What a page says of one experiment: its table, what to know about it, its pictures.

    Args:
        report: of the experiment.
        drawn: a picture's kind, such as "curves" → its address, as the page links it.
    """
    said = [_table(report), _legend(report), ""]
    said += [*(f"- {_cell(note)}" for note in report.notes), *[""] * bool(report.notes)]
    if report.terms.choose:
        said += [_choices(report, report.terms.choose), ""]
    said += [f"![{report.name}: {kind}]({address})" for kind, address in drawn.items()]
    return "\n".join(said) + "\n"


def _table(report: Report) -> str:
    shown: list[Row | Reference] = [*report.rows, *(line for line in report.references if not line.whole_context)]
    shown.sort(key=lambda each: (each.headline.mean if isinstance(each, Row) else each.loss, each.name))
    lines = [_row(each) if isinstance(each, Row) else _reference(each) for each in shown]
    return _markdown(_HEADERS, lines)


def _row(row: Row) -> list[str]:
    difference, comparison = row.difference, row.comparison
    interval = difference.interval if difference else None
    over_text = " (over text)" if comparison and comparison.over == "text" else ""
    more = f", {comparison.seeds_needed} seeds would decide" if comparison and comparison.seeds_needed else ""
    return [
        _cell(row.name),
        str(len(row.seeds)),
        f"{row.headline.mean:.4f}",
        _number(row.headline.std, ".4f"),
        "baseline" if row.is_baseline else _number(difference.mean if difference else None, "+.4f"),
        f"{interval[0]:+.4f} to {interval[1]:+.4f}{over_text}" if interval else "",
        f"{comparison.verdict}{more}" if comparison else "",
        _number(row.n_params, ","),
        _number(_steps(row), ",.0f"),
        _number(row.training_flops, ".2e"),
    ]


def _reference(line: Reference) -> list[str]:
    return [f"*{_cell(line.name)}*", "", f"*{line.loss:.4f}*", *[""] * (len(_HEADERS) - 3)]


def _steps(row: Row) -> float | None:
    known = [steps for run in row.runs if (steps := number(run.summary.get("steps"))) is not None]
    return statistics.mean(known) if known else None


def _legend(report: Report) -> str:
    said = [
        f"Loss: {IN_WORDS[report.terms.measure]}, nats per character, mean over seeds; spread: its standard deviation",
        "over them. *Slanted*: predictors that are not trained, on the same text.",
    ]
    if report.baseline:
        said += [
            f"Differences are to {_cell(report.baseline.name)}, paired by seed, with 95 % t-intervals; verdicts are",
            f"Holm-adjusted, and equal is what surely differs by less than {report.terms.margin:g} nats.",
        ]
    return "\n" + "\n".join(said)


def _choices(report: Report, key: str) -> str:
    """Mean validation loss of every value that there was to choose from: what each row's value was chosen by."""
    variants = group(report.runs)
    values = sorted({variant.settings[key] for variant in variants if key in variant.settings}, key=_as_number)
    chosen = {row.name for row in report.rows}
    lines = []
    for label in dict.fromkeys(variant.label for variant in variants):
        of_value = {v.settings.get(key): v for v in variants if v.label == label}
        lines.append([_cell(label), *(_choice(of_value.get(value), chosen) for value in values)])
    title = f"Mean final validation loss by {key}; **chosen**:\n\n"
    return title + _markdown(("strategy", *values), lines)


def _choice(variant: Variant | None, chosen: set[str]) -> str:
    if variant is None:
        return ""
    loss = f"{statistics.mean(variant.val_losses.values()):.4f}"
    return f"**{loss}**" if variant.name in chosen else loss


def _as_number(value: str) -> tuple[float, str]:
    try:
        return float(value), value
    except ValueError:
        return float("inf"), value


def _markdown(headers: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """The first column to the left, the others to the right."""
    rows = [headers, ["---", *["---:"] * (len(headers) - 1)], *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _cell(text: str) -> str:
    """Text that stays text in Markdown."""
    return re.sub(r"([\\`*_{}\[\]<>|#])", r"\\\1", text)


def _number(value: float | None, spec: str) -> str:
    return "" if value is None else format(value, spec)


def pictures(report: Report) -> dict[str, str]:
    """Learning curves, loss by position, and loss against parameters, flops and seconds, as files: kind → SVG."""
    look = looks(report.rows)
    found: dict[str, Markup] = {}
    lines = chart(
        curves(report.rows, look),
        report.val_references,
        about=("curves", "Learning curves", "Validation loss over steps, mean and range over seeds."),
        x_title="step",
        zoomed=True,
    )
    by_position = chart(
        positions(report.rows, look),
        same_everywhere(report.val_references),
        about=("positions", "Loss by position", "Final validation loss by position in the window."),
        x_title="characters read so far, of the window",
        zoomed=False,
    )
    found |= {"curves": lines.drawing} if lines else {}
    found |= {"positions": by_position.drawing} if by_position else {}
    found |= {cost.cost.key: cost.drawing for cost in cost_charts(report.rows, report.references, look)}
    return {kind: standing_alone(drawing) for kind, drawing in found.items()}


def standing_alone(drawing: Markup) -> str:
    """A chart of the page as a file of its own, which brings its looks along."""
    opened = str(drawing).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    return opened.replace(">", f">{_STYLE}", 1) + "\n"


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            file.write(text.encode())
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror}. Choose a place that can be written to.") from error


_STYLE = """
<style>
svg { --ink: #1c1e21; --soft: #5a5f66; --rule: #dedfda; --paper: #fdfdfb; background: var(--paper); padding: 12px;
  font: 12px system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
.look-0 { --look: #0072b2; --dash: none; } .look-1 { --look: #d55e00; --dash: 7 3; }
.look-2 { --look: #00855f; --dash: 2 3; } .look-3 { --look: #a8437f; --dash: 10 3 2 3; }
.look-4 { --look: #a87400; --dash: 4 2; } .look-5 { --look: #5b4fb3; --dash: 12 4; }
.look-baseline { --look: var(--ink); --dash: none; } .look-plain { --look: #9aa0a6; --dash: none; }
text { fill: var(--ink); } .tick, .title { fill: var(--soft); } .end { text-anchor: end; }
.middle { text-anchor: middle; } .grid { stroke: var(--rule); } .axis { stroke: var(--soft); }
.stroke { fill: none; stroke: var(--look); stroke-width: 1.75; stroke-dasharray: var(--dash); }
.look-baseline .stroke { stroke-width: 2.25; } .look-baseline .label { font-weight: 600; }
.band { fill: var(--look); opacity: .13; } .leader { fill: none; stroke: var(--look); opacity: .6; }
.dot { fill: var(--paper); stroke: var(--look); stroke-width: 2; } .on-front .dot { fill: var(--look); }
.front { fill: none; stroke: var(--soft); stroke-dasharray: 3 3; } .reach, .cursor { display: none; }
.reference line { stroke: var(--soft); stroke-dasharray: 2 4; }
.reference text { fill: var(--soft); font-style: italic; }
</style>
"""


if __name__ == "__main__":
    main()
