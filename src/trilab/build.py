"""Config → model."""

import inspect
import os

import torch

from trilab.agg.base import Aggregation
from trilab.config import Config, bind, strategies
from trilab.errors import BadInput
from trilab.model import LanguageModel


def build_model(config: Config, vocab_size: int) -> LanguageModel:
    """The model of this config with its strategies and initial values.

    Raises:
        BadInput: knobs that do not fit together, or a strategy that is no Aggregation.
    """
    make_agg = strategies(config)
    for make, section in zip(make_agg, config.agg, strict=True):
        if not (inspect.isclass(make.func) and issubclass(make.func, Aggregation)):
            raise BadInput(f"agg._target_={section['_target_']} must be a subclass of trilab.agg.base.Aggregation.")

    make_model = bind(config.model, "model", given=("vocab_size", "block_size", "make_agg", "seed"))
    model = make_model(vocab_size, config.data.block_size, make_agg, seed=config.seed)
    assert isinstance(model, LanguageModel)
    return model


def build_on_meta(config: Config, vocab_size: int) -> LanguageModel:
    """The model without its values: sizes only, whatever they are."""
    with torch.device("meta"):
        return build_model(config, vocab_size)


def check_memory(config: Config, vocab_size: int) -> None:
    """Refuse a model whose weights alone are more than this machine's memory.

    The system would promise the memory, and kill whoever fills it.

    Raises:
        BadInput: they are; the message gives both sizes.
    """
    has = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        needs = sum(parameter.nbytes for parameter in build_on_meta(config, vocab_size).parameters())
    except BadInput:
        raise
    except Exception as error:  # a class of the user's own that needs its values: what becomes of it is seen with them
        if "Storage size calculation overflowed" not in str(error):
            return
        needs = 2**63
    if needs > has:
        raise BadInput(
            f"The model's weights would take {needs / 2**30:,.1f} GiB, and this machine has {has / 2**30:,.1f} GiB of "
            "memory. Lower model.n_embd, model.n_layer, data.block_size or the strategy's own sizes."
        )
