"""Finished runs → what they are worth: a page, a table in the terminal, report.csv and report.json, a picture.

Reads result files only, so it works after a crash, on another machine, and without torch.
"""

import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from rich.console import Console
from rich.text import Text

from trilab.atomic import replacing
from trilab.errors import BadInput
from trilab.looks import Looks, looks_of
from trilab.report.plans import read_plans
from trilab.report.provenance import Provenance, provenance
from trilab.report.references import Reference, references
from trilab.report.rows import Row, make_rows, measured, same_text
from trilab.report.runs import STATUSES, Run, one_line, read_runs
from trilab.report.table import csv_text, in_encoding, make_table
from trilab.report.terms import IN_WORDS, Terms, terms_of
from trilab.report.variants import Variant, choose, group
from trilab.sequential import Spending

__all__ = ["Report", "Row", "Run", "make_report", "report", "show", "write_svg"]


@dataclass(frozen=True)
class Report:
    """What an experiment's runs say."""

    folder: Path
    terms: Terms
    runs: tuple[Run, ...]
    """All of them, in the order of the folders' names."""
    rows: tuple[Row, ...]
    """One a variant, the lowest mean loss first."""
    references: tuple[Reference, ...]
    """What untrained predictors reach on the text that the rows are judged on, the highest loss first."""
    val_references: tuple[Reference, ...]
    """The same on the validation text, which the learning curves are of."""
    missing: tuple[str, ...]
    """Runs that a sweep has planned and that have not begun."""
    provenance: Provenance
    spending: Spending | None
    """The plan of looks, where seeds were added until all was decided."""
    notes: tuple[str, ...]
    """What a reader must know to read the rows rightly, a sentence each."""

    @property
    def name(self) -> str:
        """The experiment's."""
        return one_line(self.folder.resolve().name)

    @property
    def baseline(self) -> Row | None:
        """The row that the others are compared with, if there is one."""
        return next((row for row in self.rows if row.is_baseline), None)

    @property
    def not_finished(self) -> tuple[Run, ...]:
        """Failed, then unfinished, then unreadable runs."""
        runs = (run for run in self.runs if run.status != "finished")
        return tuple(sorted(runs, key=lambda run: STATUSES.index(run.status)))

    @cached_property
    def differing(self) -> Mapping[str, Mapping[str, str]]:
        """Every key of the config that is not the same in all rows → row → its value there, where it has one."""
        keys = sorted({key for row in self.rows for key in row.variant.settings})
        found = {key: {r.name: r.variant.settings[key] for r in self.rows if key in r.variant.settings} for key in keys}
        return {key: of for key, of in found.items() if len(of) < len(self.rows) or len(set(of.values())) > 1}


def report(
    folder: Path,
    *,
    baseline: str | None = None,
    measure: str | None = None,
    margin: float | None = None,
    choose: str | None = None,
    terms: Terms | None = None,
    console: Console | None = None,
) -> Report:
    """Write report.html, report.json and report.csv into an experiment's folder and print the table.

    Args:
        folder: outputs/<experiment_name>.
        baseline, measure, margin, choose: other terms than the experiment's own, see `Terms`.
        terms: all of them, in place of the experiment's own.
        console: where to print; the terminal by default.
    Raises:
        BadInput: the folder does not exist, has no run, or cannot be written; terms that there are not, or a baseline
            or measure given that no finished run has.
    """
    from trilab.report.page import page_html
    from trilab.report.record import json_text

    made = make_report(folder, baseline=baseline, measure=measure, margin=margin, choose=choose, terms=terms)
    console = console or Console()
    for name, text in (
        ("report.csv", csv_text(made.rows)),
        ("report.json", json_text(made)),
        ("report.html", page_html(made)),
    ):
        _write(folder / name, text)
    show(made, console)
    place = in_encoding(one_line(folder.as_posix()), console)
    # in one piece, however wide the screen is: a path that is broken over two lines cannot be copied
    where = f"The page: {place}/report.html; for programs: report.json, report.csv beside it"
    console.print(Text(where, "dim"), soft_wrap=True)
    return made


def make_report(
    folder: Path,
    *,
    baseline: str | None = None,
    measure: str | None = None,
    margin: float | None = None,
    choose: str | None = None,
    terms: Terms | None = None,
    up_to: int | None = None,
) -> Report:
    """Read an experiment's runs and compare them; writes and prints nothing. Arguments and errors as in `report`.

    Args:
        terms: all of them, in place of the experiment's own.
        up_to: the last seed that is known of; None: all.
    """
    runs = [run for run in read_runs(folder) if up_to is None or run.status != "finished" or run.seed <= up_to]
    own = terms_of(runs)
    usual = Looks(Spending(), own.baseline, own.measure, own.margin)
    looks, of_looks = looks_of(folder, [run.config for run in runs], usual)
    spending = looks.spending if looks else None
    terms = terms or (Terms(**looks.terms) if looks else own)
    terms = terms.but(baseline=baseline, measure=measure, margin=margin, choose=choose)
    variants, chosen_from, of_choice = _chosen(group(runs), terms)
    of_measure = [variant for variant in variants if measured(variant, terms.measure)]
    base, why_not = _find_baseline(variants, terms.baseline)
    if base and base not in of_measure:
        why_not = f"No differences: a run of the baseline {base.name} has no {terms.measure}."
        base = None
    if baseline is not None and base is None and variants:
        raise BadInput(f"--baseline {baseline}: {why_not}")
    if measure is not None and variants and not of_measure:
        raise BadInput(
            f"--measure {measure}: no run has it; a test_loss needs data.test_share above 0, an "
            "answer_loss a text with answers, such as data=recall."
        )
    rows = make_rows(
        of_measure, base, measure=terms.measure, margin=terms.margin, chosen_from=chosen_from, spending=spending
    )
    notes = [why_not] if why_not and variants else []
    notes += [of_looks] if of_looks else []
    notes += _look_notes(rows, looks, terms)
    notes += of_choice
    if chosen_from and terms.measure != "test_loss":
        notes.append(
            "Rows were chosen by the loss that they are compared by, which flatters whoever had more to choose from: "
            "judge by test_loss, on text that nothing was chosen by."
        )
    notes += [f"{v.name}: not compared, a run of it has no {terms.measure}." for v in variants if v not in of_measure]
    notes += [
        f"{v.name}: not compared with {base.name}, it was validated on other characters (see what differs)."
        for v in of_measure
        if base and not same_text(v, base)
    ]
    notes += _seed_notes(rows, base) + _repeat_notes(variants) + _leak_notes(variants)
    finished = [run for run in runs if run.status == "finished"]
    origin = provenance(finished)
    if "package" in origin.mixed or any(len({run.summary.get("code") for run in v.runs}) > 1 for v in variants):
        notes.append("Not all runs were trained by the same code (see on the page where they come from).")
    return Report(
        folder=folder,
        terms=terms,
        runs=tuple(runs),
        rows=tuple(rows),
        references=tuple(references(finished, terms.measure)),
        val_references=tuple(references(finished, "val_loss")),
        missing=tuple(sorted(read_plans(folder).keys() - {run.folder.name for run in runs})),
        provenance=origin,
        spending=spending,
        notes=tuple(notes),
    )


def _chosen(variants: list[Variant], terms: Terms) -> tuple[list[Variant], dict[str, tuple[str, ...]], list[str]]:
    if terms.choose is None:
        return variants, {}, []
    if variants and not any(terms.choose in variant.settings for variant in variants):
        raise BadInput(f"choose={terms.choose} is no key of these runs' configs, such as optim.lr.")
    return choose(variants, terms.choose)


def _find_baseline(variants: Sequence[Variant], baseline: str) -> tuple[Variant | None, str]:
    """The one variant of that name; or None and why not, in a sentence."""
    found = [v for v in variants if v.name == baseline] or [v for v in variants if v.label == baseline]
    if len(found) == 1:
        return found[0], ""
    if found:
        names = ", ".join(repr(variant.name) for variant in found)
        return None, f"No differences: the baseline {baseline!r} could be any of {names}. Choose one by its whole name."
    names = ", ".join(repr(variant.name) for variant in variants) or "none"
    return None, f"No differences: there is no finished run of the baseline {baseline!r}. Rows: {names}."


def show(report: Report, console: Console) -> None:
    """Print the table, what to know about it, and the runs that are not in it."""
    counts = Counter(run.status for run in report.runs)
    heading = ", ".join(f"{counts[status]} {status}" for status in STATUSES if counts[status])
    name = in_encoding(one_line(report.folder.resolve().name), console)
    console.print(Text.assemble((name, "bold"), f": {heading}"))
    if report.rows:
        console.print(make_table(report.rows, report.references, console))
        console.print(Text(in_encoding(_legend(report), console), "dim"))
    else:
        finished = any(run.status == "finished" for run in report.runs)
        why = f"No run has a {report.terms.measure}" if finished else "No run has finished yet"
        console.print(Text(f"{why}: there is nothing to compare."))
    for note in report.notes:
        console.print(Text(in_encoding(note, console)))
    for run in report.not_finished:
        line = f"{run.status}: {one_line(run.folder.name)}: {run.reason}"
        console.print(Text(in_encoding(line, console), "red" if run.status == "failed" else "yellow"))


def _legend(report: Report) -> str:
    """What the columns mean."""
    measure = IN_WORDS[report.terms.measure]
    said = [f"loss: {measure}, nats per character, mean over seeds", "spread: sample standard deviation over seeds"]
    if report.baseline:
        said.append("difference: to the baseline, paired by seed, ± half of its 95 % t-interval")
        said.append(f"verdict: Holm-adjusted over the rows; equal: within {report.terms.margin:g} nats")
    if any(row.comparison and row.comparison.over == "text" for row in report.rows):
        said.append("†: one seed, the interval is over stretches of text and says nothing of other seeds")
    if any(not line.whole_context and not line.is_source for line in report.references):
        said.append("n-gram: counted with Kneser-Ney smoothing, reading the models' windows")
    if any(line.is_source for line in report.references):
        said.append("true source: what wrote the text, on these very characters")
    if any(row.answer_accuracy is not None for row in report.rows):
        said.append("right: share of the answers that are guessed right")
    return f"{'; '.join(said)}."


def write_svg(report: Report, path: Path, *, width: int = 120) -> None:
    """The printed table as a picture: the same bytes for the same report, and no font or file from elsewhere.

    Args:
        report: what to draw.
        path: the file to write; its folder is made if need be.
        width: of the terminal that is drawn, in characters.
    Raises:
        BadInput: the file cannot be written.
    """
    # Everything that rich would else take from the environment is given, the height too.
    console = Console(
        record=True,
        file=io.StringIO(),
        width=width,
        height=100,
        force_terminal=True,
        force_jupyter=False,
        color_system="truecolor",
        legacy_windows=False,
    )
    show(report, console)
    title = f"trilab report {one_line(report.folder.as_posix())}"
    _write(path, console.export_svg(title=title, code_format=_SVG, unique_id="trilab"))


def _look_notes(rows: Sequence[Row], looks: Looks | None, terms: Terms) -> list[str]:
    """That seeds are added until all is decided, what the looks cost, and what they decided."""
    base = next((row for row in rows if row.is_baseline), None)
    if looks is None or base is None:
        return []
    spending = looks.spending
    done = [n for n in spending.looks if n <= len(base.seeds)]
    spent = sum(spending.level(n) for n in done)
    decided: dict[int, list[str]] = {}
    for row in rows:
        if row.comparison and row.comparison.verdict != "undecided":
            decided.setdefault(row.comparison.difference.n, []).append(row.name)
    where = [f"decided at {n} seeds: {', '.join(names)}" for n, names in sorted(decided.items())]
    plan = (
        f"Seeds are added until decided, to at most {spending.last}: each of {len(spending.looks)} looks may spend "
        f"{100 * spending.level(spending.first):.3g} of {100 * spending.alpha:g} % and is what p is held against; "
        f"spent so far {100 * spent:.3g} %"
    )
    notes = ["; ".join([plan, *where]) + "."]
    if any(n < spending.last for n in decided):
        notes.append("Intervals do not account for the looks: of rows decided early they cover less than 95 %.")
    if looks.seen:
        notes.append(f"{looks.seen} seeds had finished before the looks were settled: if that is why, 5 % is too low.")
    other = [f"{name}={getattr(terms, name)}" for name, of in looks.terms.items() if getattr(terms, name) != of]
    if other:
        notes.append(f"The looks were settled for other terms than {', '.join(other)}: 5 % holds for those only.")
    return notes


def _seed_notes(rows: Iterable[Row], base: Variant | None) -> list[str]:
    """Which seeds are not in a difference, because only one of the two rows has them."""
    notes = []
    for row in rows:
        paired = row.difference
        if base is None or paired is None:
            continue
        unused = sorted({*row.seeds} & {run.seed for run in base.runs} - {*paired.seeds})
        if unused:
            notes.append(f"{row.name}: {_seeds(unused)} came after the look that its verdict is of and is not in it.")
        if not (paired.unpaired or paired.unpaired_baseline):
            continue
        only = [
            f"{_seeds(seeds)} only in {name}"
            for name, seeds in ((row.name, paired.unpaired), (base.name, paired.unpaired_baseline))
            if seeds
        ]
        common = f"over {_seeds(paired.seeds)}" if paired.n else "left blank, no seed in common"
        notes.append(f"{row.name}: difference to {base.name} {common}; {', '.join(only)}.")
    return notes


def _repeat_notes(variants: Iterable[Variant]) -> list[str]:
    return [
        f"{variant.name}: {one_line(run.folder.name)} repeats seed {run.seed} with the same config and is not counted."
        for variant in variants
        for run in variant.repeats
    ]


def _leak_notes(variants: Iterable[Variant]) -> list[str]:
    """Which rows are no fair comparison: trained under check.causality=warn although they see the future."""
    notes = []
    for variant in variants:
        checks = [run.summary.get("check") for run in variant.runs]
        if any(isinstance(check, dict) and check.get("leak") for check in checks):
            notes.append(
                f"{variant.name} sees the future (trained with check.causality=warn): no comparison with others."
            )
    return notes


def _seeds(seeds: Iterable[int]) -> str:
    names = [str(seed) for seed in seeds]
    return f"seed{'s' if len(names) > 1 else ''} {', '.join(names)}"


def _write(path: Path, text: str) -> None:
    """Write beside the target and rename: a reader sees the old file or the new one, never half of one."""
    try:
        with replacing(path) as file:
            file.write(text.encode())
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror}. Choose a place that can be written to.") from error


# Rich's own template loads a font from the network. Every piece of text carries its length, so any monospace font fits.
_SVG = """\
<svg class="trilab" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{
  font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px;
  line-height: {line_height}px;
}}
.{unique_id}-title {{ font-family: system-ui, sans-serif; font-size: 18px; font-weight: bold; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix" xml:space="preserve">
{matrix}
</g>
</g>
</svg>
"""
