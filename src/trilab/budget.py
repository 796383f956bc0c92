"""Budgets: a config → the same one with the width, or the number of steps, that meets them."""

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from trilab.agg.base import Aggregation
from trilab.build import build_on_meta
from trilab.config import Config, read
from trilab.errors import BadInput
from trilab.model import LanguageModel

log = logging.getLogger("trilab")

WIDEST = 2**16  # channels; wider ones are not looked at
FAR_OFF = 10.0  # percent of the parameters asked for, from where it is no good match


def matched(config: Config, vocab_size: int) -> Config:
    """The config with model.n_embd and trainer.max_steps set as match.params and match.flops ask; says what it chose.

    Without budgets it is the config as it is. Matching twice changes nothing more.

    Args:
        vocab_size: characters that the model knows.
    Raises:
        BadInput: a budget that no width or no number of steps can meet; the message says why.
    """
    params, flops = config.match.params, config.match.flops
    if params is None and flops is None:
        return config
    if params is not None:
        if not config.model.get("lm_head", True):
            raise BadInput(
                f"match.params={params} sizes model.n_embd, but with model.lm_head=false there are as many channels as "
                "characters. Choose another model, or leave match.params out."
            )
        n_embd, found = width(
            params,
            lambda n_embd: build_on_meta(_with(config, "model", n_embd=n_embd), vocab_size),
            multiple=int(config.model.get("n_head", 1)),
        )
        config = _with(config, "model", n_embd=n_embd)
        off = 100 * (found / params - 1)
        say = log.info if abs(off) <= FAR_OFF else log.warning
        say("match.params=%d: model.n_embd=%d gives %s (%+.1f %%)", params, n_embd, f"{found:,}", off)
    if flops is not None:
        once = config.data.batch_size * training_flops(build_on_meta(config, vocab_size), config.data.block_size)
        steps = round(flops / once)
        if steps < 1:
            raise BadInput(f"match.flops={flops:g} is less than one step of {config.name} takes: {once:.3g}.")
        config = _with(config, "trainer", max_steps=steps)
        log.info("match.flops=%g: trainer.max_steps=%s of %.3g each", flops, f"{steps:,}", once)
    return config


def width(params: int, build: Callable[[int], LanguageModel], multiple: int) -> tuple[int, int]:
    """The number of channels whose model has as close to `params` parameters as can be.

    Args:
        params: trainable parameters wanted.
        build: channels → model; may refuse a width with BadInput.
        multiple: channels are among the multiples of this, evenly spaced from the first one that `build` takes.
    Returns:
        Channels and parameters.
    Raises:
        BadInput: no width comes near, or `build` takes none.
    """

    def size(n_embd: int) -> int:
        return sum(p.numel() for p in build(n_embd).parameters() if p.requires_grad)

    first, step = _widths(size, multiple)
    if params < size(first):
        raise BadInput(f"match.params={params} is less than the smallest model has: {size(first):,} at n_embd={first}.")
    low, high = 0, 1  # steps; size(first + low · step) ≤ params
    while size(first + high * step) <= params:
        low, high = high, 2 * high
        if first + high * step > WIDEST:
            raise BadInput(
                f"match.params={params} needs more than {WIDEST:,} channels, or more than channels can give."
            )
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if size(first + middle * step) <= params else (low, middle)
    best = min((low, high), key=lambda steps: abs(size(first + steps * step) - params))
    return first + best * step, size(first + best * step)


def _widths(size: Callable[[int], int], multiple: int) -> tuple[int, int]:
    """The smallest multiple that can be built, and how far the next one is: a strategy may need an even number a head.

    Raises:
        BadInput: none can, or only one.
    """
    found: list[int] = []
    for n_embd in range(multiple, 65 * multiple, multiple):
        with suppress(BadInput):
            size(n_embd)
            found.append(n_embd)
        if len(found) == 2:
            return found[0], found[1] - found[0]
    size(multiple)  # not a matter of the width: let it say what is wrong
    raise BadInput(
        f"match.params: of the widths up to {64 * multiple} the model takes {found or 'none'}: nothing to size."
    )


def training_flops(model: LanguageModel, time: int) -> int:
    """Operations of one forward and backward pass over one row of `time` characters.

    Raises:
        BadInput: a strategy that does not say what it costs.
    """
    for module in model.modules():
        if isinstance(module, Aggregation) and not module.flops_known:
            raise BadInput(
                f"{type(module).__name__} does not say what it costs: it has a `mix` of its own but no `mix_flops`, "
                "the number of operations that this takes. match.flops cannot do without."
            )
    return model.flops(time).training


def _with(config: Config, section: str, **keys: Any) -> Config:
    return read({**config.tree, section: {**config.tree[section], **keys}})
