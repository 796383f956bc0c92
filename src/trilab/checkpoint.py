"""Checkpoints that stand alone: weights, vocabulary and plain config in one file, loadable with weights_only=True."""

import reprlib
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from trilab.archive import Unreadable, look_through
from trilab.errors import BadInput

VERSION = 1

_OWN: dict[str, type] = {"config": dict, "vocabulary": str, "step": int, "best": dict}
_RIGHT = "Give a .ckpt file that trilab wrote."


def describe(config: Mapping[str, Any], characters: str) -> dict[str, Any]:
    """What a checkpoint says of itself beside its weights.

    Args:
        config: resolved, plain values.
        characters: the vocabulary, in the order of its ids.
    """
    return {"version": VERSION, "config": dict(config), "vocabulary": characters}


def load(path: Path, *, mapped: bool = False) -> dict[str, Any]:
    """A whole checkpoint, on the CPU; nothing in the file is executed.

    Args:
        mapped: tensors stay in the file until they are read, so that one that nobody reads takes no memory. Whoever
            asks for it lets go of them before the file may be written to again.
    Raises:
        BadInput: no such file, not a checkpoint, or one that trilab did not write.
    """
    _refuse_all_but_files(path)
    try:
        look_through(path)
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except Unreadable as error:
        raise BadInput(f"ckpt={path} is not a readable checkpoint: it {error}. {_RIGHT}") from error
    except Exception as error:  # what a foreign or broken file makes the readers raise can be anything
        raise BadInput(
            f"ckpt={path} is not a readable checkpoint ({type(error).__name__}): it is cut off, damaged, or of another "
            f"kind. {_RIGHT}"
        ) from error
    if not isinstance(content, dict) or not isinstance(content.get("trilab"), dict):
        raise BadInput(f"ckpt={path} was not written by trilab: it holds no vocabulary and no config.")
    own = content["trilab"]
    version = own.get("version")
    if type(version) is not int or version != VERSION:
        raise BadInput(f"ckpt={path} has format version {reprlib.repr(version)}; this trilab reads version {VERSION}.")
    missing = [name for name in _OWN if name not in own] + [n for n in ("state_dict",) if n not in content]
    if missing:
        raise BadInput(f"ckpt={path} is not complete: it holds no {', no '.join(missing)}.")
    wrong = [name for name, kind in _OWN.items() if not isinstance(own[name], kind)]
    weights = content["state_dict"]
    if not isinstance(weights, dict) or not all(isinstance(n, str) and torch.is_tensor(w) for n, w in weights.items()):
        wrong.append("state_dict")
    if wrong:
        raise BadInput(f"ckpt={path} is not as trilab writes it: its {wrong[0]} is something else. {_RIGHT}")
    return content


def _refuse_all_but_files(path: Path) -> None:
    """A pipe would be waited for without end, and a device read without end."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise BadInput(f"ckpt={path}: there is no such file.") from None
    except (OSError, ValueError) as error:  # a link to itself, a name that is too long, a zero in it
        raise BadInput(
            f"ckpt={path} cannot be read: {error.strerror if isinstance(error, OSError) else error}."
        ) from error
    if stat.S_ISDIR(found.st_mode):
        raise BadInput(f"ckpt={path} is a folder; name the file, such as {path / 'checkpoints' / 'last.ckpt'}.")
    if not stat.S_ISREG(found.st_mode):
        raise BadInput(f"ckpt={path} is a pipe or a device, no file. {_RIGHT}")


def model_weights(content: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """The language model's own state_dict from a loaded checkpoint."""
    return {k.removeprefix("model."): v for k, v in content["state_dict"].items() if k.startswith("model.")}


def refuse_other_weights(model: nn.Module, weights: Mapping[str, torch.Tensor]) -> None:
    """Compare names, shapes and kinds of numbers, also with a model that has no values yet.

    Raises:
        BadInput: they are not this model's; the message says which weight, as of "it".
    """
    kept = model.state_dict()
    if unlike := sorted(kept.keys() ^ weights.keys()):
        here = "has no" if unlike[0] in kept else "has"
        raise BadInput(f"it {here} {unlike[0]!r:.100}, unlike the model of its config.")
    for name, wanted in kept.items():
        found = weights[name]
        if found.shape != wanted.shape:
            raise BadInput(
                f"its {name} has the shape {(*found.shape,)!r:.100}, the model of its config {(*wanted.shape,)}."
            )
        if found.dtype != wanted.dtype and not (found.is_floating_point() and wanted.is_floating_point()):
            raise BadInput(f"its {name} holds {found.dtype}, the model of its config {wanted.dtype}.")


def refuse_numbers_that_are_none(weights: Mapping[str, torch.Tensor]) -> None:
    """NaN and infinity.

    Raises:
        BadInput: there is one; the message says in which weight, as of "it".
    """
    for name, tensor in weights.items():
        if not torch.isfinite(tensor).all():
            raise BadInput(f"its {name} holds numbers that are not finite: no text can come of them.")
