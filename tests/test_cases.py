"""What people who train language models with this stack have tripped on, each as it should be."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from trilab import checkpoint

from .conftest import Outcome

Train = Callable[..., Outcome]

READS = """
import sys, torch
content = torch.load(sys.argv[1], weights_only=True)
print(content["trilab"]["step"], type(content["trilab"]["config"]).__name__)
"""


def test_a_relative_path_is_meant_from_where_the_command_was_given(train: Train, text: Path) -> None:
    done = train("hydra.job.chdir=true", f"data.path={text.name}", "callbacks.sample_chars=0")
    assert done.code == 0, done.err
    assert done.summary["status"] == "finished"


@pytest.mark.slow
def test_a_checkpoint_loads_in_a_process_that_knows_nothing_of_trilab(train: Train) -> None:
    run = train("agg=softmax", "callbacks.sample_chars=0").run
    for name in ("last.ckpt", "best.ckpt"):
        done = subprocess.run(
            [sys.executable, "-I", "-c", READS, run / "checkpoints" / name], capture_output=True, text=True, check=True
        )
        assert done.stdout.split() == ["4", "dict"]


def test_weights_that_a_gpu_wrote_are_read_without_one(train: Train) -> None:
    path = train("agg=softmax", "callbacks.sample_chars=0").run / "checkpoints" / "last.ckpt"
    content = checkpoint.load(path)
    [*_, name] = content["state_dict"]
    expected = content["state_dict"][name].clone()
    tags = torch.serialization._package_registry
    tags.insert(0, (0, lambda storage: "cuda:0", lambda storage, tag: None))  # as a storage on a GPU is tagged
    try:
        torch.save(content, path)
    finally:
        tags.pop(0)
    assert b"cuda:0" in path.read_bytes()
    assert torch.equal(checkpoint.load(path)["state_dict"][name], expected)


def test_no_file_of_a_run_has_a_name_that_a_command_line_would_take_apart(train: Train) -> None:
    done = train("agg=softmax", "callbacks.sample_chars=0")
    names = [path.relative_to(done.outputs).as_posix() for path in done.outputs.rglob("*")]
    assert names
    assert not [name for name in names if set(name) & set("=,[]{}()' ")]
