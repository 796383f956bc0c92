"""What each position takes from each earlier one, layer by layer: pictures in the loggers, numbers in tables.npz."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from lightning.pytorch import Trainer
from numpy.typing import NDArray

from trilab.atomic import replacing
from trilab.callbacks.showing import Showing
from trilab.colours import colours
from trilab.learner import evaluating
from trilab.loggers import log_picture
from trilab.model import LanguageModel

if TYPE_CHECKING:
    from PIL import Image

SIDE = 256  # pixels of one table's side, at least
HEADS = 8  # of a table, at most
POSITIONS = 64  # that are kept in the file


class WeightTables(Showing):
    """Logs every layer's table on the first characters of the validation text; keeps it as it was and as learned.

    Args:
        tokens: (1, T) ids that data-dependent weights look at.
        fresh: the model as it was before the first step: initial values depend on the config and the seed alone.
        path: tables.npz, written at the end: arrays "before/layer_0", "after/layer_0", … as `tables` gives them, up to
            the first POSITIONS positions; read with allow_pickle=False.
        every, val_every: when, see `Showing`.
    """

    def __init__(
        self,
        tokens: torch.Tensor,
        *,
        fresh: Callable[[], LanguageModel],
        path: Path,
        every: int | None = None,
        val_every: int = 1,
    ) -> None:
        super().__init__(every=every, val_every=val_every)
        self.tokens = tokens
        self.fresh = fresh
        self.path = path

    def show(self, model: LanguageModel, trainer: Trainer) -> None:
        """Draw and log; at the end write the file."""
        found = tables(model, self.tokens)
        for name, table in found.items():
            log_picture(trainer.loggers, f"weights/{name}", strip(table), trainer.global_step)
        if trainer.global_step >= trainer.max_steps and found:
            both = {"before": tables(self.fresh(), self.tokens), "after": found}
            arrays: dict[str, Any] = {
                f"{when}/{name}": table[:, :POSITIONS, :POSITIONS]
                for when, layers in both.items()
                for name, table in layers.items()
            }
            with replacing(self.path) as file:
                np.savez(file, **arrays)


def tables(model: LanguageModel, tokens: torch.Tensor) -> dict[str, NDArray[np.float32]]:
    """Name → (H, T, T) weights of every layer that has a table, H ≤ HEADS.

    Args:
        tokens: (1, T) ids that data-dependent weights look at.
    Returns:
        "layer_0" …; row t is position t.
    """
    with evaluating(model), torch.no_grad():
        found = model.weights(tokens.to(model.token_embedding_table.weight.device))
    return {
        f"layer_{layer}": table[0, :HEADS].float().cpu().numpy()
        for layer, table in enumerate(found)
        if table is not None
    }


def strip(table: NDArray[np.float32]) -> "Image.Image":
    """(H, T, T) weights → their pictures side by side."""
    from PIL import Image  # here, since a training begins long before there is a picture

    heads = [draw(head.astype(np.float64)) for head in table]
    picture = Image.new("RGB", (sum(h.width for h in heads) + 4 * (len(heads) - 1), heads[0].height), "white")
    for index, head in enumerate(heads):
        picture.paste(head, (index * (head.width + 4), 0))
    return picture


def draw(table: NDArray[np.float64]) -> "Image.Image":
    """(T, T) weights → a square picture; row t is position t, bright where the weight is large, cold where negative."""
    from PIL import Image

    pixels = colours(table / (np.abs(table).max() or 1.0))  # (T, T, 3)
    zoom = max(1, -(-SIDE // len(table)))
    return Image.fromarray(pixels.repeat(zoom, axis=0).repeat(zoom, axis=1))
