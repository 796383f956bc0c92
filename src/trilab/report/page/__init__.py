"""A report as one HTML page that needs nothing else: no network, no fonts, no files beside it."""

import base64
import hashlib
import shlex
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from trilab.report.page import intervals, written
from trilab.report.page.costs import cost_charts
from trilab.report.page.gallery import gallery
from trilab.report.page.headline import headline, verdicts
from trilab.report.page.lines import chart, curves, positions, same_everywhere
from trilab.report.page.looks import looks
from trilab.report.page.verdict_table import table
from trilab.report.runs import one_line
from trilab.report.terms import IN_WORDS

if TYPE_CHECKING:
    from trilab.report import Report

__all__ = ["page_html"]

_SAMPLE_LENGTH = 600  # characters of a sample


def page_html(report: "Report") -> str:
    """The whole page. Everything that comes from files is escaped; whatever UTF-8 cannot hold is replaced.

    Args:
        report: as `make_report` returns it.
    """
    environment = _environment()
    style, script = (Markup(_source(environment, name)) for name in ("page.css", "page.js"))
    look = looks(report.rows)
    steps, places = curves(report.rows, look), positions(report.rows, look)
    n_seeds = max((line.n_seeds for line in steps), default=1)
    return environment.get_template("page.html").render(
        report=report,
        margin=f"{report.terms.margin:g}",
        measure=IN_WORDS[report.terms.measure],
        style=style,
        script=script,
        style_hash=_hash(style),
        script_hash=_hash(script),
        headline=headline(report),
        verdicts=verdicts(report.rows),
        looks=look,
        table=table(report),
        axis=_axis(report),
        curves=chart(
            steps,
            report.val_references,
            about=("curves", "Learning curves", "Validation loss over training steps, a line a row, mean over seeds."),
            x_title="step",
            zoomed=True,
        ),
        n_seeds=n_seeds,
        costs=cost_charts(report.rows, report.references, look),
        positions=chart(
            places,
            same_everywhere(report.val_references),
            about=("positions", "Loss by position", "Final validation loss by position in the window, a line a row."),
            x_title="characters read so far, of the window",
            zoomed=False,
            with_gain=True,
        ),
        gallery=gallery(report.rows),
        samples=_samples(report),
        commands=_commands(report),
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("trilab.report.page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_final,
    )
    filters = (written.loss, written.difference, written.count, written.counted, written.listed, written.shortened)
    environment.filters |= {f.__name__: f for f in filters}
    return environment


def _final(value: Any) -> Any:
    """What an expression of a template comes to: no number leaves without being told how to be written."""
    if isinstance(value, float):
        raise TypeError(f"{value} must be written by a filter.")
    return written.text(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _source(environment: Environment, name: str) -> str:
    assert environment.loader is not None
    return environment.loader.get_source(environment, name)[0]


def _hash(content: str) -> str:
    """As a content security policy names what it lets through."""
    return f"sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}"


def _axis(report: "Report") -> Markup:
    scale = intervals.shared_axis(report.rows, report.terms.margin)
    return intervals.axis(scale, report.terms.margin) if scale else Markup("")


def _samples(report: "Report") -> list[dict[str, Any]]:
    """Of each row's first seed that wrote one."""
    found = []
    for place, row in enumerate(report.rows):
        run = next((run for run in row.runs if run.sample), None)
        if run and run.sample:
            text = run.sample[:_SAMPLE_LENGTH]
            cut = len(run.sample) > _SAMPLE_LENGTH
            found.append({"place": place, "name": row.name, "seed": run.seed, "text": text, "cut": cut})
    return found


def _commands(report: "Report") -> list[dict[str, Any]]:
    """What trains each row again."""
    place = one_line((report.folder / "report.json").as_posix())
    return [
        {
            "place": number,
            "name": row.name,
            "reproduce": shlex.join(["trilab", "reproduce", place, "--row", row.name]),
            "runs": list(_said(run.command for run in row.runs)),
        }
        for number, row in enumerate(report.rows)
    ]


def _said(commands: Iterable[object]) -> Iterable[str]:
    return (one_line(command) for command in commands if isinstance(command, str))
