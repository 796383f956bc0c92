"""A picture of what each position takes from each earlier one, layer by layer, as learned."""

import numpy as np
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from numpy.typing import NDArray
from PIL import Image

from trilab.colours import colours
from trilab.learner import Learner, evaluating
from trilab.model import LanguageModel
from trilab.tracking import log_picture

SIDE = 256  # pixels of one table's side, at least


class WeightTables(Callback):
    """Logs every layer's table at the end of training, on the first characters of the validation text.

    Args:
        tokens: (1, T) ids that data-dependent weights look at.
    """

    def __init__(self, tokens: torch.Tensor) -> None:
        self.tokens = tokens

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Draw and log."""
        assert isinstance(pl_module, Learner)
        model = pl_module.whole_model()
        if model is None or not trainer.is_global_zero:
            return
        with evaluating(model):
            found = pictures(model, self.tokens.to(model.token_embedding_table.weight.device))
        for name, picture in found.items():
            log_picture(trainer.loggers, name, picture, trainer.global_step)


def draw(table: NDArray[np.float64]) -> Image.Image:
    """(T, T) weights → a square picture; row t is position t, bright where the weight is large, cold where negative."""
    pixels = colours(table / (np.abs(table).max() or 1.0))  # (T, T, 3)
    zoom = max(1, -(-SIDE // len(table)))
    return Image.fromarray(pixels.repeat(zoom, axis=0).repeat(zoom, axis=1))


def pictures(model: LanguageModel, tokens: torch.Tensor) -> dict[str, Image.Image]:
    """Name → picture for every layer that has a table.

    Args:
        tokens: (1, T) ids that data-dependent weights look at.
    Returns:
        "weights/layer_0" …; a table's heads stand side by side, up to eight of them.
    """
    found = {}
    for layer, table in enumerate(model.weights(tokens)):
        if table is not None:
            heads = [draw(head.double().cpu().numpy()) for head in table[0, :8]]
            strip = Image.new("RGB", (sum(h.width for h in heads) + 4 * (len(heads) - 1), heads[0].height), "white")
            for index, head in enumerate(heads):
                strip.paste(head, (index * (head.width + 4), 0))
            found[f"weights/layer_{layer}"] = strip
    return found
