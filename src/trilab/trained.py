"""A run's folder or a checkpoint → the model in it, ready to read and write text."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from torch import Tensor, nn

from trilab import checkpoint
from trilab.build import build_model, build_on_meta
from trilab.config import Config, read
from trilab.errors import BadInput
from trilab.model import LanguageModel
from trilab.named_run import checkpoint_of
from trilab.report.runs import one_line
from trilab.trust import refuse_foreign_code
from trilab.vocabulary import Vocabulary

MOST_SAID = 300  # characters of what a foreign config makes our checks say

MOST_BARE_LAYERS = 1000
"""Layers of a loaded model that may have no weights at all; more of them than weights is no run of trilab's."""


@dataclass(frozen=True)
class Trained:
    """A model in evaluation mode on the CPU, and what its checkpoint says of it."""

    model: LanguageModel
    vocabulary: Vocabulary
    config: Config
    path: Path
    """The checkpoint."""


def load_trained(path: Path, *, trust: bool = False) -> Trained:
    """Load a model; the text that it was trained on is not needed.

    Nothing in the file is executed, and no class that it names is imported unless it is trilab's own. What its config
    makes is compared with its weights, by names and shapes, before any of it takes memory.

    Args:
        path: a run's folder, of which `checkpoint_of` takes one, or a .ckpt file.
        trust: import classes outside trilab too, which runs their code: for those who know where the file comes from.
    Raises:
        BadInput: no run or checkpoint there, or one that cannot be read or trusted.
    """
    file = checkpoint_of(path)
    content = checkpoint.load(file, mapped=True)
    own, weights = content["trilab"], checkpoint.model_weights(content)
    vocabulary = _vocabulary(own["vocabulary"], file)
    if not trust:
        refuse_foreign_code(own["config"], f"ckpt={file}")
    try:
        config = read(own["config"])
        _refuse_bare_layers(config, weights)
        unbuilt = build_on_meta(config, len(vocabulary))
        checkpoint.refuse_other_weights(unbuilt, weights)
        _refuse_large_tables(unbuilt)
        checkpoint.refuse_numbers_that_are_none(weights)
        model = build_model(config, len(vocabulary))
    except BadInput as error:
        raise BadInput(f"ckpt={file} cannot be loaded: {_said(str(error))}") from error
    except Exception as error:  # what a foreign config makes of our classes, or of a user's, can be anything
        said = _said(f"its config makes no model ({type(error).__name__}: {error})")
        raise BadInput(f"ckpt={file} cannot be loaded: {said}") from error
    model.load_state_dict(weights)
    return Trained(model.eval(), vocabulary, config, file)


def _said(why: str) -> str:
    said = one_line(why)
    return said if len(said) <= MOST_SAID else f"{said[:MOST_SAID]}…"


def _vocabulary(characters: str, file: Path) -> Vocabulary:
    if not characters or any(one >= other for one, other in pairwise(characters)):
        raise BadInput(f"ckpt={file} has a vocabulary that is not distinct characters in order of code point.")
    return Vocabulary(characters)


def _refuse_bare_layers(config: Config, weights: Mapping[str, Tensor]) -> None:
    layers = config.model.get("n_layer", 1)
    if isinstance(layers, int) and layers > max(MOST_BARE_LAYERS, len(weights)):
        raise BadInput(f"model.n_layer={layers} is more than its {len(weights)} weights can be of.")


def _refuse_large_tables(model: nn.Module) -> None:
    """What a config makes beside the weights is compared with the memory, before it is made."""
    kept = model.state_dict()
    tables = sum(b.numel() * b.element_size() for b in model.buffers()) - sum(
        b.numel() * b.element_size() for name, b in model.named_buffers() if name in kept
    )
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if tables > memory // 2:
        raise BadInput(
            f"its config makes tables of {tables:,} bytes beside the weights; here are {memory:,} of memory."
        )
