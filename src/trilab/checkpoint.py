"""Checkpoints that stand alone: weights, vocabulary and plain config in one file, loadable with weights_only=True."""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.plugins.io import TorchCheckpointIO

from trilab.atomic import replacing
from trilab.errors import BadInput

VERSION = 1


def describe(config: Mapping[str, Any], characters: str) -> dict[str, Any]:
    """What a checkpoint says of itself beside its weights.

    Args:
        config: resolved, plain values.
        characters: the vocabulary, in the order of its ids.
    """
    return {"version": VERSION, "config": dict(config), "vocabulary": characters}


def load(path: Path) -> dict[str, Any]:
    """A whole checkpoint, on the CPU; nothing in the file is executed.

    Raises:
        BadInput: no such file, not a checkpoint, or one that trilab did not write.
    """
    if path.is_dir():
        raise BadInput(f"ckpt={path} is a folder; name the file, such as {path / 'checkpoints' / 'last.ckpt'}.")
    if not path.is_file():
        raise BadInput(f"ckpt={path}: there is no such file.")
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()  # torch itself does not look at the sums that it has stored
        if damaged:
            raise ValueError(f"{damaged} is not what was written")
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # what a foreign or broken file makes the reader raise can be anything
        raise BadInput(
            f"ckpt={path} is not a readable checkpoint ({type(error).__name__}): cut off, damaged, a file of another "
            "kind, or one that holds code, which is never run. Give a .ckpt file that trilab wrote."
        ) from error
    if not isinstance(content, dict) or not isinstance(content.get("trilab"), dict):
        raise BadInput(f"ckpt={path} was not written by trilab: it holds no vocabulary and no config.")
    if content["trilab"].get("version") != VERSION:
        raise BadInput(
            f"ckpt={path} has format version {content['trilab'].get('version')}; this trilab reads version {VERSION}."
        )
    missing = [name for name in ("config", "vocabulary", "step", "best") if name not in content["trilab"]]
    missing += [name for name in ("state_dict",) if name not in content]
    if missing:
        raise BadInput(f"ckpt={path} is not complete: it holds no {', no '.join(missing)}.")
    return content


def model_weights(content: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """The language model's own state_dict from a loaded checkpoint."""
    return {k.removeprefix("model."): v for k, v in content["state_dict"].items() if k.startswith("model.")}


class AtomicCheckpoints(TorchCheckpointIO):
    """Writes beside the target, then renames: a checkpoint is whole or not there, whenever the process is killed.

    The last.ckpt before the latest stays as previous.ckpt.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any | None = None) -> None:
        """Write one file, flushed to the disk before it takes its name."""
        path = Path(path)
        previous = path.with_name("previous.ckpt") if path.name == "last.ckpt" else None
        with replacing(path, previous=previous) as file:
            torch.save(checkpoint, file)
