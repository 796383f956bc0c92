"""`trilab check`: strategies by name, by class or in a stack → every law's verdict, one row each."""

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import torch
from rich.console import Console
from rich.text import Text

from trilab.agg.base import Aggregation
from trilab.build import build_model
from trilab.compose import choosing, composed, strategy_names
from trilab.config import Config, strategies
from trilab.errors import BadInput
from trilab.laws import (
    CONSTRUCTION_LAWS,
    LAWS,
    Law,
    Make,
    Verdict,
    batch,
    causality_perturbation,
    causality_prefix,
    compiled,
    gradient,
    stream,
)
from trilab.model import LanguageModel

# What is asked of a whole model too; the others look at a strategy's own table, loop, dtypes and code.
MODEL_LAWS = (causality_prefix, causality_perturbation, batch, stream, gradient)
VOCAB_SIZE = 11
RAISES = "raises "  # how a verdict on an exception begins


@dataclass(frozen=True)
class Candidate:
    """What is judged: a strategy by itself and in models, or a stack, in gpt only.

    makes: by where it is tried ("alone", "gpt", "flat"): seed → a new one.
    """

    name: str
    makes: dict[str, Make]


@dataclass(frozen=True)
class Row:
    """The worst verdict of one law on one candidate, and where it was tried then."""

    name: str
    tried: str
    verdict: Verdict

    def plain(self) -> dict[str, Any]:
        """As JSON can hold it: a figure that is not finite is null."""
        told = asdict(self.verdict)
        worst = told["worst"] if math.isfinite(told["worst"]) else None
        where = {"passed": self.verdict.passed, "where": self.verdict.where}
        return {"strategy": self.name, "in": self.tried, **told, "worst": worst, **where}


def check(words: Sequence[str], *, n_embd: int, block_size: int, inductor: bool, as_json: bool) -> bool:
    """Judge what the words name and print a row for each law as soon as it is known, or at the end a JSON list.

    Args:
        words: names of strategies, dotted paths of classes, stacks in brackets, each followed by its knob=value words;
            none: every strategy of conf/agg.
        n_embd: channels.
        block_size: most tokens.
        inductor: torch.compile with its code generator.
    Returns:
        Whether every law holds.
    Raises:
        BadInput: what cannot be built.
    """
    torch.set_num_threads(1)  # the tensors are tiny
    console = Console(soft_wrap=True)
    found = candidates(words, n_embd=n_embd, block_size=block_size)
    width = max(len(name) for name in ("strategy", *(candidate.name for candidate in found)))
    if not as_json:
        console.print(Text(f"{'strategy':{width}}  {'law':22}  {'worst':>8}  {'allowed':>8}", style="bold"))
    rows: list[Row] = []
    for candidate in found:
        raised: set[str] = set()
        for row in judged(candidate, inductor=inductor):
            rows.append(row)
            if not as_json:
                console.print(_line(row, width, raised))
    failed = sum(not row.verdict.passed for row in rows)
    idle = sum(not row.verdict.compared for row in rows)
    if as_json:
        print(json.dumps([row.plain() for row in rows], indent=2, ensure_ascii=False))
    else:
        ok = len(rows) - failed - idle
        untried = f", {idle} with nothing to compare" if idle else ""
        console.print(Text(f"{len(found)} checked, {len(rows)} verdicts: {ok} ok, {failed} FAILS{untried}"))
    return not failed


def candidates(words: Sequence[str], *, n_embd: int, block_size: int) -> list[Candidate]:
    """What the words name, built once, so that all that cannot be built is refused before the first law is tried.

    Raises:
        BadInput: an unknown name or knob, a class that is no strategy, sizes that do not fit together.
    """
    sizes = [f"model.n_embd={n_embd}", f"model.n_head={1 if n_embd % 2 else 2}", f"data.block_size={block_size}"]
    sizes.append("model.dropout=0.1")
    found: list[Candidate] = []
    for name, knobs in grouped(words):
        stack = name.startswith("[")
        if stack and n_embd == 1:
            raise BadInput(
                f"--n-embd 1 with {name}: a stack is judged in model=gpt, whose LayerNorm makes one channel the same "
                "for every token. Write --n-embd 2 or more."
            )
        if stack and knobs:
            raise BadInput(
                f"{knobs[0]} follows a stack: its knobs stand in it, as in '[{{window:{{size:2}}}},attention]'."
            )
        if stack:
            given = [f"model.agg_per_layer={name}", f"model.n_layer={max(3, name.count(',') + 1)}"]
        else:
            given = choosing(name, knobs)
        models = (
            ("gpt",) if stack else ("gpt", "flat") if n_embd > 1 else ("flat",)
        )  # gpt needs two channels: see above
        makes: dict[str, Make] = {}
        for model in models:
            config = composed([f"model={model}", *given, *sizes])
            makes[model] = partial(_model, config)
            if not stack:
                makes["alone"] = partial(_alone, config)
        for make in makes.values():
            with torch.random.fork_rng(devices=[]):
                make(0)
        found.append(Candidate(" ".join([name, *knobs]), makes))
    return found


def judged(candidate: Candidate, *, inductor: bool) -> Iterator[Row]:
    """Law by law, the worst verdict over all that it is tried on."""
    tries: list[tuple[str, Callable[[Make], Verdict], bool]] = [
        *((law.__name__, partial(_on_one, law, inductor=inductor), law in MODEL_LAWS) for law in LAWS),
        *((law.__name__, law, True) for law in CONSTRUCTION_LAWS),
    ]
    for name, law, of_models in tries:
        rows = [
            Row(candidate.name, tried, _verdict(name, partial(law, make)))
            for tried, make in candidate.makes.items()
            if tried == "alone" or of_models
        ]
        if rows:
            yield max(rows, key=lambda row: (row.verdict.excess, row.verdict.compared))


def _on_one(law: Law, make: Make, *, inductor: bool) -> Verdict:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        subject = make(0)
    return compiled(subject, backend="inductor") if law is compiled and inductor else law(subject)


def _verdict(law: str, judge: Callable[[], Verdict]) -> Verdict:
    try:
        return judge()
    except Exception as error:  # the strategy's own code may raise anything; the other laws are still told
        lines = str(error).splitlines()
        return Verdict(
            law, math.inf, 0, f"{RAISES}{type(error).__name__}: {lines[0] if lines else ''}", None, None, None
        )


def _alone(config: Config, _seed: int) -> Aggregation:
    aggregation = strategies(config)[0](config.model["n_embd"], config.data.block_size)
    assert isinstance(aggregation, Aggregation)
    return aggregation


def _model(config: Config, seed: int) -> LanguageModel:
    return build_model(replace(config, seed=seed), VOCAB_SIZE)


def grouped(words: Sequence[str]) -> list[tuple[str, list[str]]]:
    """[name, knob=value, name] → each name with its knobs; agg=name and agg.knob=value mean the same.

    Raises:
        BadInput: a knob before any name, a word that is no name, a stack whose brackets do not match.
    """
    if not words:
        return [(name, []) for name in strategy_names()]
    grouped: list[tuple[str, list[str]]] = []
    for word in words:
        name = word.removeprefix("agg=")
        if name.startswith("[") or "=" not in name:
            _refuse_what_names_nothing(name)
            grouped.append((name, []))
        elif grouped:
            grouped[-1][1].append(name.removeprefix("agg."))
        else:
            raise BadInput(f"{word} is a knob of no strategy: write the strategy before it, as in attention n_head=2.")
    return grouped


def _refuse_what_names_nothing(name: str) -> None:
    if name.startswith("["):
        if not name.endswith("]") or any(name.count(one) != name.count(two) for one, two in ("[]", "{}")):
            raise BadInput(f"{name} is no stack: its brackets do not match. Write '[window,window,attention]'.")
    elif not name.strip():
        raise BadInput(f"'{name}' is no strategy. Write a name, as in trilab check attention, or none for all of them.")
    elif "." in name and not re.fullmatch(r"\w+(\.\w+)+", name):
        raise BadInput(f"{name} is no dotted path of a class: a class Mean in the file bad.py is written bad.Mean.")


def _line(row: Row, width: int, raised: set[str]) -> Text:
    """A row for the screen; what a strategy has raised before, and so stands in `raised`, is not told again."""
    verdict = row.verdict
    numbers = f"{verdict.worst:8.1e}  {verdict.allowed:8.1e}" if verdict.compared else f"{'–':>8}  {'–':>8}"
    line = Text(f"{row.name:{width}}  {verdict.law:22}  {numbers}  ")
    if not verdict.compared:
        return line.append("nothing to compare", "dim")
    if verdict.passed:
        return line.append("ok", "green")
    where = "raises as above" if verdict.what in raised else verdict.where
    if verdict.what.startswith(RAISES):
        raised.add(verdict.what)
    return line.append("FAILS", "bold red").append(f"  {row.tried}: {where}")
