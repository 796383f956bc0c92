"""What makes a run this run: the keys that determine its result, and the name of its folder."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

# Keys that cannot change a result: two runs that differ only in these are the same run.
WITHOUT_EFFECT = frozenset(
    {
        *("callbacks", "check", "ckpt", "experiment_name", "force", "label", "logger", "paths", "report"),
        # how a text is found and read: its sha256 stands for what comes of it
        *("data.path", "data.encoding", "data.newline", "data.normalise", "data.separator", "data.prepared"),
        *("retry", "sweep"),
        *("trainer.checkpoint_every", "trainer.checkpoint_minutes", "trainer.log_every", "trainer.timeout"),
    }
)


def flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"data": {"block_size": 8}} → {"data.block_size": 8}, without the keys that cannot change a result.

    A list of sections counts as sections named 0, 1, ….
    """
    found: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
            value = {str(place): item for place, item in enumerate(value)}
        name = f"{prefix}{key}"
        if name in WITHOUT_EFFECT:
            continue
        if isinstance(value, Mapping):
            found |= flat(value, f"{name}.")
        else:
            # 1 and 1.0 are one value, however they were written
            found[name] = int(value) if isinstance(value, float) and value.is_integer() else value
    return found


def differences(was: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """One line, "key was 1 and is now 2", for each key that can change a result and differs."""
    old, new = flat(was), flat(now)
    return [
        f"{key} was {old.get(key, 'not set')} and is now {new.get(key, 'not set')}"
        for key in sorted({*old, *new})
        if old.get(key) != new.get(key)
    ]


def run_name(name: str, seed: int, tree: Mapping[str, Any], text_sha256: str) -> str:
    """The run's folder: <name>-seed<seed>-<hash>, the hash being of all that determines the result.

    Args:
        name: the strategy, or the run's label.
        tree: the resolved config.
        text_sha256: of the text, which stands for wherever it lies.
    Returns:
        A name that every file system takes.
    """
    determined = json.dumps([flat(tree), text_sha256], sort_keys=True)
    safe = "".join(c if c.isascii() and (c.isalnum() or c in "_.-") else "_" for c in name)
    return f"{safe[:100]}-seed{seed}-{hashlib.sha256(determined.encode()).hexdigest()[:8]}"
