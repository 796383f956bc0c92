"""How Lightning writes checkpoints here. Apart from reading them, which needs no Lightning and none of its seconds."""

from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.plugins.io import TorchCheckpointIO

from trilab.atomic import replacing


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
