"""Finished runs → what they are worth: a table in the terminal, report.csv, a picture.

Reads result files only, so it works after a crash, on another machine, and without torch.
"""

import io
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.text import Text

from trilab.atomic import replacing
from trilab.errors import BadInput
from trilab.report.runs import STATUSES, Run, one_line, read_runs
from trilab.report.table import Row, csv_text, find_baseline, in_encoding, make_rows, make_table
from trilab.report.variants import Variant, group

__all__ = ["Report", "Row", "Run", "make_report", "report", "show", "write_svg"]


@dataclass(frozen=True)
class Report:
    """What an experiment's runs say."""

    folder: Path
    runs: tuple[Run, ...]
    """All of them, in the order of the folders' names."""
    rows: tuple[Row, ...]
    """One a variant, the lowest mean val loss first."""
    notes: tuple[str, ...]
    """What a reader must know to read the rows rightly, a sentence each."""

    @property
    def not_finished(self) -> tuple[Run, ...]:
        """Failed, then unfinished, then unreadable runs."""
        runs = (run for run in self.runs if run.status != "finished")
        return tuple(sorted(runs, key=lambda run: STATUSES.index(run.status)))


def report(folder: Path, *, baseline: str = "none", console: Console | None = None) -> Report:
    """Write report.csv into an experiment's folder and print the table.

    Args:
        folder: outputs/<experiment_name>.
        baseline: the row that differences are taken to, by name.
        console: where to print; the terminal by default.
    Raises:
        BadInput: the folder does not exist, has no run, or cannot be written.
    """
    made = make_report(folder, baseline=baseline)
    console = console or Console()
    path = folder / "report.csv"
    _write(path, csv_text(made.rows))
    show(made, console)
    console.print(Text(in_encoding(f"The same in full precision: {one_line(path.as_posix())}", console), "dim"))
    return made


def make_report(folder: Path, *, baseline: str = "none") -> Report:
    """Read an experiment's runs and compare them; writes and prints nothing. Arguments and errors as in `report`."""
    runs = read_runs(folder)
    variants = group(runs)
    base, why_not = find_baseline(variants, baseline)
    rows = make_rows(variants, base)
    notes = [why_not] if why_not and variants else []
    notes += _seed_notes(rows, base) + _repeat_notes(variants) + _leak_notes(variants)
    return Report(folder, tuple(runs), tuple(rows), tuple(notes))


def show(report: Report, console: Console) -> None:
    """Print the table, what to know about it, and the runs that are not in it."""
    counts = Counter(run.status for run in report.runs)
    heading = ", ".join(f"{counts[status]} {status}" for status in STATUSES if counts[status])
    name = in_encoding(one_line(report.folder.resolve().name), console)
    console.print(Text.assemble((name, "bold"), f": {heading}"))
    if report.rows:
        console.print(make_table(report.rows, console))
        console.print(
            Text(
                "val loss: final, nats per character, mean over seeds; spread: sample standard deviation over seeds; "
                "difference: to the baseline, paired by seed.",
                "dim",
            )
        )
    else:
        console.print(Text("No run has finished yet: there is nothing to compare."))
    for note in report.notes:
        console.print(Text(in_encoding(note, console)))
    for run in report.not_finished:
        line = f"{run.status}: {one_line(run.folder.name)}: {run.reason}"
        console.print(Text(in_encoding(line, console), "red" if run.status == "failed" else "yellow"))


def write_svg(report: Report, path: Path, *, width: int = 100) -> None:
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


def _seed_notes(rows: Iterable[Row], base: Variant | None) -> list[str]:
    """Which seeds are not in a difference, because only one of the two rows has them."""
    notes = []
    for row in rows:
        paired = row.difference
        if base is None or paired is None or not (paired.unpaired or paired.unpaired_baseline):
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
