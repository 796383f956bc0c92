"""A run's folder or a checkpoint → the model in it, ready to read and write text."""

from dataclasses import dataclass
from pathlib import Path

from trilab import checkpoint
from trilab.build import build_model
from trilab.config import Config, read
from trilab.errors import BadInput
from trilab.model import LanguageModel
from trilab.vocabulary import Vocabulary


@dataclass(frozen=True)
class Trained:
    """A model in evaluation mode on the CPU, and what its checkpoint says of it."""

    model: LanguageModel
    vocabulary: Vocabulary
    config: Config
    path: Path
    """The checkpoint."""


def load_trained(path: Path) -> Trained:
    """Load a model; the text that it was trained on is not needed.

    Args:
        path: a run's folder, of which the best checkpoint is taken, or a .ckpt file.
    Raises:
        BadInput: no run or checkpoint there, or one that cannot be read.
    """
    if not path.exists():
        raise BadInput(f"{path}: there is no such run or checkpoint.")
    if path.is_dir() and not (path / "checkpoints").is_dir():
        raise BadInput(f"{path} is no run: a run's folder has checkpoints/ in it.")
    file = path / "checkpoints" / "best.ckpt" if path.is_dir() else path
    content = checkpoint.load(file)
    vocabulary = Vocabulary(content["trilab"]["vocabulary"])
    config = read(content["trilab"]["config"])
    model = build_model(config, len(vocabulary))
    model.load_state_dict(checkpoint.model_weights(content))
    return Trained(model.eval(), vocabulary, config, file)
