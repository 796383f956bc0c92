"""What a character costs: from the carried state, or by reading the whole context anew; early in a text, and late."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from trilab.bench.machine import machine
from trilab.bench.measured import Measured, Series
from trilab.bench.telling import Tell
from trilab.bench.turns import take_turns
from trilab.build import build_model
from trilab.compose import composed, strategy_names
from trilab.errors import BadInput
from trilab.generation.generate import draw, stream
from trilab.generation.sampling import Sampling
from trilab.model import LanguageModel

STREAMING, RECOMPUTING = "streaming", "recomputing the context"
LATE, WHOLE = "a character at the end of the context", "a character, over the whole text"
FAR = "a character of a text without end"
VOCAB_SIZE = 65
NOTES = (
    "One text at a time, model=gpt, untrained: what is drawn does not change what it costs.",
    "Texts without end: model.positions=false, block_size 64, 2 layers, C 128.",
    "For each of their lengths there is a text that has it when turns begin.",
)


@dataclass(frozen=True)
class Sizes:
    """Of the models and texts.

    Args:
        context: characters that the first comparison looks back on.
        keys: its model's.
        strategies: it is made with.
        lengths: of texts without end at which a character is timed.
        without_end: strategies for these; None: all whose state does not grow.
        rounds: of the first comparison, which begins a text in each.
        rounds_without_end: of the second, whose texts only go on.
    """

    context: int
    keys: tuple[str, ...]
    strategies: tuple[str, ...]
    lengths: tuple[int, ...]
    without_end: tuple[str, ...] | None
    rounds: int
    rounds_without_end: int
    timed: int = 16  # characters, of which one is the mean

    def __post_init__(self) -> None:
        if self.timed > min(self.context // 2, *self.lengths):
            raise BadInput(f"{self.timed} timed characters are too many for a context of {self.context}.")


FULL = Sizes(
    256,
    ("model.n_layer=6", "model.n_head=6", "model.n_embd=384"),
    ("attention", "ema", "min_gru"),
    (256, 512, 1024, 2048, 4096),
    None,
    rounds=9,
    rounds_without_end=25,
)
QUICK = Sizes(
    256,
    ("model.n_layer=6", "model.n_head=4", "model.n_embd=128"),
    ("attention", "ema"),
    (256, 1024),
    ("ema", "min_gru"),
    rounds=3,
    rounds_without_end=9,
)


def measure(*, quick: bool, threads: int, device: str, tell: Tell, sizes: Sizes | None = None) -> Measured:
    """Let streaming and recomputing take turns; stream far past the context.

    Args:
        sizes: None: as `quick` says.
    """
    sizes = sizes or (QUICK if quick else FULL)
    torch.set_num_threads(threads)
    found: list[Series] = []
    for strategy in sizes.strategies:
        tell(f"generate: {strategy}, context {sizes.context}")
        found += _against_recomputing(strategy, sizes, device)
    for strategy in strategy_names() if sizes.without_end is None else sizes.without_end:
        model = _model(strategy, ("model.positions=false", "model.n_layer=2", "model.n_embd=128"), 64, device)
        if model.unbounded:
            tell(f"generate: {strategy}, {max(sizes.lengths):,} characters")
            found += _without_end(strategy, model, sizes)
    notes = (*NOTES, f"A turn is {sizes.timed} characters.")
    return Measured("generate", device, quick, machine(threads), RECOMPUTING, tuple(found), notes)


def _model(strategy: str, keys: tuple[str, ...], block_size: int, device: str) -> LanguageModel:
    config = composed((f"agg={strategy}", "model=gpt", *keys, f"data.block_size={block_size}"))
    return build_model(config, VOCAB_SIZE).to(device).eval()


def _against_recomputing(strategy: str, sizes: Sizes, device: str) -> list[Series]:
    model = _model(strategy, sizes.keys, sizes.context, device)
    late: list[float] = []
    late_recomputed: list[float] = []

    def streaming() -> float:
        characters = _streamed(model, unbounded=False)
        first = _seconds(characters, sizes.context - sizes.timed)
        last = _seconds(characters, sizes.timed)
        late.append(last / sizes.timed)
        return (first + last) / sizes.context

    def recomputing() -> float:
        characters = _recomputed(model)
        first = _seconds(characters, sizes.context - sizes.timed)
        last = _seconds(characters, sizes.timed)
        late_recomputed.append(last / sizes.timed)
        return (first + last) / sizes.context

    _seconds(_streamed(model, unbounded=False), sizes.timed)
    _seconds(_recomputed(model), sizes.timed)
    whole = take_turns({STREAMING: streaming, RECOMPUTING: recomputing}, sizes.rounds)
    case = f"{strategy}, context {sizes.context}"
    return [
        Series(case, LATE, STREAMING, "s", tuple(late)),
        Series(case, LATE, RECOMPUTING, "s", tuple(late_recomputed)),
        *(Series(case, WHOLE, way, "s", tuple(values)) for way, values in whole.items()),
    ]


def _without_end(strategy: str, model: LanguageModel, sizes: Sizes) -> list[Series]:
    texts = {f"at {length:,}": (length, _streamed(model, unbounded=True)) for length in sizes.lengths}
    for length, characters in texts.values():
        _seconds(characters, length)

    def turn(characters: Iterator[Tensor]) -> float:
        return _seconds(characters, sizes.timed) / sizes.timed

    turns = {case: partial(turn, characters) for case, (_, characters) in texts.items()}
    found = take_turns(turns, sizes.rounds_without_end)
    return [Series(case, FAR, strategy, "s", tuple(found[case]), size=length) for case, (length, _) in texts.items()]


def _seconds(characters: Iterator[Tensor], number: int) -> float:
    """That so many more take; each is on the CPU or followed by one that is, so no device is still at work."""
    began = time.perf_counter()
    for _ in range(number):
        next(characters)
    return time.perf_counter() - began


def _begin(model: LanguageModel) -> tuple[Tensor, torch.Generator]:
    device = model.token_embedding_table.weight.device
    return torch.zeros(1, 1, dtype=torch.int64, device=device), torch.Generator().manual_seed(0)


def _streamed(model: LanguageModel, *, unbounded: bool) -> Iterator[Tensor]:
    tokens, generator = _begin(model)
    return stream(model, tokens, generator=generator, unbounded=unbounded)


@torch.no_grad()
def _recomputed(model: LanguageModel) -> Iterator[Tensor]:
    """As gpt.py generates: for each character the model reads all before it, up to block_size."""
    tokens, generator = _begin(model)
    sampling = Sampling()
    while True:
        logits = model(tokens[:, -model.block_size :])[:, -1]
        token = draw(logits, sampling, generator).to(tokens.device)
        yield token
        tokens = torch.cat([tokens, token[:, None]], 1)
