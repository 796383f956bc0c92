"""The model as a program of torch's own operations, which PyTorch runs without trilab."""

from functools import lru_cache
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from trilab.export.any_length import program, quiet
from trilab.trained import Trained

USAGE = """\
import torch
model = torch.export.load("model.pt2").module()
logits = model(torch.tensor([[1, 2, 3]]))  # (1, 3) ids -> (1, 3, V)

The file was written by PyTorch {torch}; another version may not read it.
"""


def write(trained: Trained, folder: Path) -> None:
    """Write model.pt2.

    Raises:
        BadInput: as `program`.
    """
    found = program(trained.model)
    with quiet():
        torch.export.save(found, folder / "model.pt2")


@torch.no_grad()
def logits(trained: Trained, folder: Path, tokens: Tensor) -> Tensor:
    """What the file gives: (B, T) ids → (B, T, V)."""
    return cast(Tensor, _read(folder / "model.pt2")(tokens))


@lru_cache(maxsize=1)
def _read(path: Path) -> nn.Module:
    with quiet():
        return torch.export.load(path).module()
