"""A report as report.json: plain values for other programs, floats in full precision."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from trilab.report.rows import OverSeeds, Row
from trilab.report.runs import one_line
from trilab.stats import Comparison

if TYPE_CHECKING:
    from trilab.report import Report

VERSION = 1


def json_text(report: "Report") -> str:
    """The whole report but curves, tables and samples, which stand in the runs' own folders."""
    return json.dumps(as_plain(report), indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def verdicts(report: "Report") -> list[dict[str, Any]]:
    """The table of verdicts: name → value, one dict a row, all with the same names; reference lines come last."""
    compared = ("difference", "low", "high", "p_holm", "verdict", "over", "seeds_needed")
    rows: list[dict[str, Any]] = []
    for row in report.rows:
        told = _comparison(row.comparison) if row.comparison else {}
        rows.append(
            {
                "strategy": row.name,
                "seeds": len(row.seeds),
                row.measure: row.headline.mean,
                **{name: told.get(name) for name in compared},
                "n_params": row.n_params,
                "training_flops": row.training_flops,
                "seconds": row.seconds,
            }
        )
    for line in report.references:
        if rows and not line.whole_context:
            untrained = dict.fromkeys(rows[0]) | {"strategy": line.name, report.rows[0].measure: line.loss}
            rows.append(untrained)
    return rows


def as_plain(report: "Report") -> dict[str, Any]:
    """Report → dicts, lists, numbers and text."""
    terms = report.terms
    return {
        "version": VERSION,
        "experiment": report.name,
        "terms": {
            "measure": terms.measure,
            "baseline": report.baseline.name if report.baseline else None,
            "margin": terms.margin,
            "choose": terms.choose,
        },
        "looks": asdict(report.spending) if report.spending else None,
        "rows": [_row(row) for row in report.rows],
        "references": [
            {"name": line.name, "loss": line.loss, "text": line.text, "whole_context": line.whole_context}
            for line in report.references
        ],
        "differing": {key: dict(of) for key, of in report.differing.items()},
        "not_finished": [
            {"run": one_line(run.folder.name), "status": run.status, "reason": run.reason}
            for run in report.not_finished
        ],
        "missing": [one_line(name) for name in report.missing],
        "provenance": {name: dict(values) for name, values in report.provenance.values.items()},
        "notes": list(report.notes),
    }


def _row(row: Row) -> dict[str, Any]:
    return {
        "name": row.name,
        "is_baseline": row.is_baseline,
        "same_bits_as": row.twin,
        "chosen_from": list(row.chosen_from),
        "losses": {measure: _over_seeds(losses) for measure, losses in row.losses.items()},
        **({} if row.answer_accuracy is None else {"answer_accuracy": row.answer_accuracy}),
        "comparisons": {measure: _comparison(comparison) for measure, comparison in row.comparisons.items()},
        "n_params": row.n_params,
        "flops_per_char": row.flops_per_char,
        "training_flops": row.training_flops,
        "state_size": row.state_size,
        "seconds": row.seconds,
        "chars_per_second": row.chars_per_second,
        "loss_by_position": row.loss_by_position,
        "settings": dict(row.variant.settings),
        "runs": [{"run": one_line(run.folder.name), "seed": run.seed, "command": run.command} for run in row.runs],
    }


def _over_seeds(losses: OverSeeds) -> dict[str, Any]:
    by_seed: Mapping[int, float] = losses.by_seed
    return {"mean": losses.mean, "std": losses.std, "by_seed": {str(seed): loss for seed, loss in by_seed.items()}}


def _comparison(comparison: Comparison) -> dict[str, Any]:
    difference = comparison.difference
    return {
        "difference": difference.mean,
        "low": difference.low,
        "high": difference.high,
        "p": difference.p,
        "p_holm": comparison.p_adjusted,
        "verdict": comparison.verdict,
        "over": comparison.over,
        "seeds": list(difference.seeds),
        "unpaired": list(difference.unpaired),
        "unpaired_baseline": list(difference.unpaired_baseline),
        "seeds_needed": comparison.seeds_needed,
    }
