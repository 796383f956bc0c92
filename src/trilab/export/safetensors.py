"""The weights alone, in a file that nothing can be hidden in: names, shapes, numbers."""

from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.func import functional_call

from trilab.trained import Trained

USAGE = """\
from safetensors.torch import load_file
weights = load_file("model.safetensors")  # name -> tensor

What the weights are of stands in config.json. Tables that follow from it, such as masks, are not in the file. With
trilab the model is built from them by trilab.model.LanguageModel and load_state_dict.
"""


def write(trained: Trained, folder: Path) -> None:
    """Write model.safetensors; weights that are one tensor in the model are written once for each name."""
    weights = {name: weight.clone().contiguous() for name, weight in trained.model.state_dict().items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


@torch.no_grad()
def logits(trained: Trained, folder: Path, tokens: Tensor) -> Tensor:
    """The model's own operations on the weights of the file: (B, T) ids → (B, T, V)."""
    found: Tensor = functional_call(trained.model, load_file(folder / "model.safetensors"), (tokens,), strict=False)
    return found
