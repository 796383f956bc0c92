"""What a measurement ran on, without a date: the same machine tells the same."""

import importlib.metadata
import os
import platform
from typing import Any

from trilab.folder import processor


def machine(threads: int) -> dict[str, Any]:
    """Processor, cores, threads, graphics card, versions.

    Args:
        threads: CPU threads of each way.
    """
    import torch

    return {
        "processor": processor(),
        "cores": cores(),
        "threads": threads,
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "lightning": importlib.metadata.version("lightning"),
    }


def cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if "sched_getaffinity" in dir(os) else os.cpu_count() or 1


def in_words(told: dict[str, Any]) -> str:
    """One line."""
    parts = [
        str(told["gpu"] or ""),
        f"{told['processor']}, {told['cores']} core{'s' * (told['cores'] != 1)}",
        f"{told['threads']} thread{'s' * (told['threads'] != 1)}",
        f"{told['system']}",
        f"Python {told['python']}, torch {told['torch']}, lightning {told['lightning']}",
    ]
    return "; ".join(part for part in parts if part)
