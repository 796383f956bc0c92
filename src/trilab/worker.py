"""One process of a training on several: `python -m trilab.worker FOLDER`, started by torchrun, never by hand."""

import os
import sys
from pathlib import Path

from rich.console import Console

from trilab.config import load
from trilab.folder import speak, train_and_record


def main() -> None:
    """Read the run's config.yaml and train its share."""
    folder = Path(sys.argv[1])
    config = load(folder / "config.yaml")
    alone = os.environ["TRILAB_ALONE"] == "1"
    if alone:
        speak()
    console = Console() if alone and os.environ["RANK"] == "0" else None
    train_and_record(config, folder, console=console, alone=alone)


if __name__ == "__main__":
    main()
