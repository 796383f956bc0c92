"""Runs → variants: runs that differ in nothing but the seed."""

import json
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from trilab.identity import flat
from trilab.report.runs import Run, one_line

JUDGED_ON = ("data.sha256", "data.val_share", "data.test_share")
"""Settings in which two runs that were validated, and tested, on the same characters agree."""
OF_WINDOWS = frozenset({"data.batch_size", "data.block_size", "data.val_chars"})
"""Settings of how a text is read, whichever text it is."""


@dataclass(frozen=True, eq=False)
class Variant:
    """Finished runs of one configuration, one for each seed."""

    name: str
    """Its label, with the keys that tell it from others of that label: 'attention n_head=4'."""
    label: str
    settings: Mapping[str, str]
    """Dotted key → value, of all that determines the result but the seed."""
    runs: tuple[Run, ...]
    """Ascending by seed."""
    repeats: tuple[Run, ...] = ()
    """Runs of a seed that is already in `runs`: not counted."""

    @property
    def val_losses(self) -> dict[int, float]:
        """Seed → final val loss, nats per character."""
        return {run.seed: run.val_loss for run in self.runs}


def group(runs: Iterable[Run]) -> list[Variant]:
    """Finished runs by configuration. Runs that differ in anything but the seed are never put together.

    Of several runs of one configuration and seed the first counts; the others are named in `repeats`.
    """
    members: dict[frozenset[tuple[str, str]], list[Run]] = defaultdict(list)
    for run in runs:
        if run.status == "finished":
            members[frozenset(settings(run).items())].append(run)
    labels = {key: same[0].label for key, same in members.items()}
    variants = []
    for key, same in members.items():
        by_seed: dict[int, Run] = {}
        for run in same:
            by_seed.setdefault(run.seed, run)
        namesakes = [dict(other) for other in members if labels[other] == labels[key]]
        variants.append(
            Variant(
                name=" ".join([labels[key], *distinctions(dict(key), namesakes)]),
                label=labels[key],
                settings=dict(sorted(key)),
                runs=tuple(by_seed[seed] for seed in sorted(by_seed)),
                repeats=tuple(run for run in same if run is not by_seed[run.seed]),
            )
        )
    return variants


def choose(variants: Iterable[Variant], key: str) -> tuple[list[Variant], dict[str, tuple[str, ...]], list[str]]:
    """Of variants that differ in one key alone, the one with the lowest mean val loss; the smaller value wins a tie.

    A variant with fewer finished runs than another is passed over: its mean leaves out what may have been its worst.

    Args:
        key: dotted, such as optim.lr.
    Returns:
        Those that are kept; name → the names that it was chosen from, for each that had others; and what a reader must
        know of the choice, a sentence each.
    """
    rivals: dict[frozenset[tuple[str, str]], list[Variant]] = defaultdict(list)
    for variant in variants:
        rivals[frozenset((k, v) for k, v in variant.settings.items() if k != key)].append(variant)
    kept, chosen_from, notes = [], {}, []
    for same in rivals.values():
        most = max(len(variant.runs) for variant in same)
        whole = [variant for variant in same if len(variant.runs) == most]
        best = min(whole, key=lambda v: (statistics.mean(v.val_losses.values()), *_placed(v, key)))
        kept.append(best)
        if len(same) > 1:
            chosen_from[best.name] = tuple(variant.name for variant in same)
            notes += _edge_note(best, same, key)
        notes += [
            f"{variant.name}: not chosen from, {len(variant.runs)} of {most} seeds have finished."
            for variant in same
            if variant not in whole
        ]
    return kept, chosen_from, notes


def _edge_note(best: Variant, same: list[Variant], key: str) -> list[str]:
    """That the best value may lie beyond those that were tried."""
    values = {variant.name: _placed(variant, key)[0] for variant in same}
    edges = {max(values.values()): "largest", min(values.values()): "smallest"}
    if math.inf in edges or values[best.name] not in edges:  # what is not all numbers has no edge
        return []
    word = edges[values[best.name]]
    place = f"{best.label} chose the {word} {key} offered, {best.settings[key]}"
    return [f"{place}: a better one may lie beyond. Widen the grid."]


def _placed(variant: Variant, key: str) -> tuple[float, str]:
    """What orders variants by a key's value: numbers first."""
    try:
        return float(variant.settings[key]), variant.name
    except (KeyError, ValueError):
        return math.inf, variant.name


def settings(run: Run) -> dict[str, str]:
    """Dotted key → value as one would type it, of all that determines the run's result but the seed.

    The sha256 of the text stands for its path: a path may hold another text by now, a text may have moved.
    """
    found = {key: _typed_by_hand(value) for key, value in flat(run.config).items() if key != "seed"}
    data = run.summary.get("data")
    if isinstance(data, dict) and data.get("sha256"):
        found["data.sha256"] = one_line(str(data["sha256"]))[:12]
    return found


def _typed_by_hand(value: object) -> str:
    """Text stands without quotes."""
    return one_line(value if isinstance(value, str) else json.dumps(value))


def distinctions(own: Mapping[str, str], namesakes: list[dict[str, str]]) -> list[str]:
    """key=value for every key whose value is not the same in all; the key's last part where that is clear enough.

    The sha256 of the text is left out where it follows from what the source of the text was given.
    """
    keys = {key for other in namesakes for key in other}
    differing = sorted(key for key in keys if len({other.get(key) for other in namesakes}) > 1)
    if _sha256_follows(namesakes):
        differing = [key for key in differing if key != "data.sha256"]
    last_parts = Counter(key.rpartition(".")[2] for key in differing)
    return [
        f"{last if last_parts[last := key.rpartition('.')[2]] == 1 else key}={own[key]}"
        for key in differing
        if key in own
    ]


def _sha256_follows(namesakes: Iterable[Mapping[str, str]]) -> bool:
    """Whether sources that were given the same values made the same text."""
    texts: dict[frozenset[tuple[str, str]], set[str | None]] = defaultdict(set)
    for other in namesakes:
        given = {key: value for key, value in other.items() if key.startswith("data.")}
        of_source = frozenset((key, value) for key, value in given.items() if key not in {*OF_WINDOWS, *JUDGED_ON})
        texts[of_source].add(other.get("data.sha256"))
    return all(len(same) == 1 for same in texts.values())
