"""What a W&B run left on disk, read back without W&B's server: the .wandb file is a log of protobuf records.

The log is LevelDB's: blocks of 32 KiB, in them chunks of (CRC-32, length, kind) and data; a record is one chunk or
several. W&B puts seven bytes of its own before the first.
"""

import json
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wandb.proto.wandb_internal_pb2 import Record

BLOCK = 32768  # bytes
HEADER = struct.Struct("<IHB")
WHOLE, FIRST, _MIDDLE, LAST = 1, 2, 3, 4


@dataclass
class WandbRun:
    """One run as its file tells it."""

    id: str = ""
    name: str = ""
    project: str = ""
    group: str = ""
    job_type: str = ""
    tags: list[str] = field(default_factory=list)
    config: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    """One row a call of log(), in order."""
    summary: dict[str, Any] = field(default_factory=dict)
    """What the run's code put there; the server adds what `metrics` asks for."""
    metrics: dict[str, Any] = field(default_factory=dict)
    """Name or pattern → the protobuf of its define_metric."""
    config_of_charts: dict[str, Any] = field(default_factory=dict)
    """What W&B itself keeps in the config of each chart of a table."""
    artifacts: list[str] = field(default_factory=list)
    exit_code: int | None = None
    """None: never finished."""
    preempted: bool = False


def wandb_runs(outputs: Path) -> list[WandbRun]:
    """Every run below outputs/wandb/, by its name. The link to the latest is not a run of its own."""
    files = (outputs / "wandb").glob("*run-*/run-*.wandb")
    return sorted((read(path) for path in files if not path.parent.is_symlink()), key=lambda run: run.name)


def read(path: Path) -> WandbRun:
    """One .wandb file."""
    run = WandbRun()
    for record in _records(path.read_bytes()):
        match record.WhichOneof("record_type"):
            case "run":
                told = record.run
                run.id, run.name, run.project = told.run_id, told.display_name, told.project
                run.group, run.job_type, run.tags = told.run_group, told.job_type, list(told.tags)
                run.config |= _values(told.config.update)
            case "config":
                run.config |= _values(record.config.update)
            case "history":
                run.history.append(_values(record.history.item))
            case "summary":
                run.summary |= _values(record.summary.update)
            case "metric":
                run.metrics[record.metric.name or record.metric.glob_name] = record.metric
            case "artifact":
                run.artifacts.append(record.artifact.name)
            case "preempting":
                run.preempted = True
            case "exit":
                run.exit_code = record.exit.exit_code
    own = run.config.pop("_wandb", {})  # about versions, and about charts
    run.config_of_charts |= own.get("visualize", {})
    for key in [key for key in run.config if key.startswith("_wandb/")]:
        run.config_of_charts[key] = run.config.pop(key)
    return run


def _values(items: Any) -> dict[str, Any]:
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}


def _records(data: bytes) -> Iterator[Record]:
    assert data[:4] == b":W&B"
    place, parts = 7, b""
    while place + HEADER.size <= len(data):
        left = BLOCK - place % BLOCK
        check, length, kind = HEADER.unpack_from(data, place)
        if left < HEADER.size or kind == 0:  # the rest of a block is filled up with zeros
            place += left
            continue
        chunk = data[place + HEADER.size : place + HEADER.size + length]
        if len(chunk) < length:
            return  # the process was killed while it wrote
        assert zlib.crc32(bytes([kind]) + chunk) == check
        parts = chunk if kind in (WHOLE, FIRST) else parts + chunk
        place += HEADER.size + length
        if kind in (WHOLE, LAST):
            record = Record()
            record.ParseFromString(parts)
            yield record
