"""Config → model."""

import inspect

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
