"""`trilab export`: a trained model in a form that other programs read, without trilab."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Literal

from trilab.errors import BadInput
from trilab.named_run import checkpoint_of

if TYPE_CHECKING:
    from torch import Tensor

    from trilab.trained import Trained

Format = Literal["safetensors", "torch-export", "onnx"]

# the module of this package that writes a format, and the packages of others that it needs
_WRITERS: dict[Format, tuple[str, tuple[str, ...]]] = {
    "safetensors": ("trilab.export.safetensors", ("safetensors",)),
    "torch-export": ("trilab.export.torch_export", ()),
    "onnx": ("trilab.export.onnx", ("onnx", "onnxscript")),
}

ROUNDING = 1e-4
"""Difference of logits, by the largest logit or 1 if that is more, which is taken for rounding."""


def export(run: Path, *, format: Format, out: Path | None = None, trust: bool = False) -> Path:  # noqa: A002
    """Write a model's weights, what it is, its characters and how to use it, into a folder of its own.

    What was written is read again and run on texts of several lengths before the folder takes its name: it gives the
    model's logits, or there is no folder.

    Args:
        run: a run's folder, of which `checkpoint_of` takes one, or a .ckpt file.
        out: the folder to make; None is export/<format> in the run's own, for last.ckpt export/last-<format>.
        trust: as `load_trained` takes it.
    Returns:
        The folder.
    Raises:
        BadInput: no model there, a package that is not installed, a folder that is there already or cannot be made, or
            an operation that the format does not have; the message names it.
    """
    writer = _writer(format)
    file = checkpoint_of(run)
    out = _place(file, format) if out is None else out
    _refuse_taken(out)

    from trilab.export.card import write_card
    from trilab.trained import load_trained

    trained = load_trained(file, trust=trust)
    try:
        with _folder_for(out) as unfinished:
            writer.write(trained, unfinished)
            write_card(
                trained,
                unfinished,
                format=format,
                usage=writer.USAGE,
                difference=_compared(writer, trained, unfinished),
            )
            _open_to_others(unfinished)
            unfinished.rename(out)
    except OSError as error:
        raise BadInput(f"{out} cannot be written: {error.strerror}. Give another folder with --out.") from error
    return out


@contextmanager
def _folder_for(out: Path) -> Iterator[Path]:
    """A folder beside `out`, to be given its name; where it is not, nothing is left, nor a folder made to hold it."""
    missing = [folder for folder in out.parents if not folder.exists()]
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}.", suffix=".unfinished"))
        try:
            yield unfinished
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    except BaseException:
        for folder in missing:
            with suppress(OSError):  # another export may have come into it meanwhile
                folder.rmdir()
        raise


def _refuse_taken(out: Path) -> None:
    """An empty folder may be filled; whatever else is there is somebody's."""
    try:
        free = not any(out.iterdir()) if out.is_dir() else not os.path.lexists(out.resolve())
    except (
        OSError,
        ValueError,
    ) as error:  # a name that is too long, or has a zero in it; a folder that may not be read
        raise BadInput(f"{str(out)!r} cannot be written: {error}. Give another folder with --out.") from error
    if not free:
        raise BadInput(f"{out} is there already, and is left as it is. Remove it, or give another folder with --out.")


def _writer(format: Format) -> ModuleType:  # noqa: A002
    """The module that writes it: `write(trained, folder)`, `logits(trained, folder, tokens)` and `USAGE`."""
    module, needed = _WRITERS[format]
    if missing := [package for package in needed if find_spec(package) is None]:
        raise BadInput(
            f"--format {format} needs {' and '.join(missing)}, which {'are' if len(missing) > 1 else 'is'} not "
            "installed: pip install 'trilab[export]'."
        )
    return import_module(module)


def _place(file: Path, format: Format) -> Path:  # noqa: A002
    name = format if file.stem == "best" else f"{file.stem}-{format}"
    return (file.parent.parent if file.parent.name == "checkpoints" else file.parent) / "export" / name


def _compared(writer: ModuleType, trained: "Trained", folder: Path) -> float | None:
    """The largest difference between the model's logits and what was written gives; None if it cannot be run here."""
    import torch

    draws, size = torch.Generator().manual_seed(0), trained.model.block_size
    largest = 0.0
    for time in sorted({1, min(2, size), size // 2 + 1, max(1, size - 1), size}):
        for batch in (1, 3):
            tokens = torch.randint(len(trained.vocabulary), (batch, time), generator=draws)
            found: Tensor | None = writer.logits(trained, folder, tokens)
            if found is None:
                return None
            with torch.no_grad():
                wanted = trained.model(tokens)
            difference = float((found - wanted).abs().max())
            if not difference <= ROUNDING * max(1.0, float(wanted.abs().max())):
                raise BadInput(
                    f"What was written gives other logits than the model: they differ by {difference:g} on {batch} "
                    f"texts of {time} characters. Nothing is left of it."
                )
            largest = max(largest, difference)
    return largest


def _open_to_others(folder: Path) -> None:
    """As far as the user's umask does: mkdtemp and the writers of some formats shut everybody else out."""
    mask = os.umask(0)
    os.umask(mask)
    for file in folder.iterdir():
        file.chmod(0o666 & ~mask)
    folder.chmod(0o777 & ~mask)
