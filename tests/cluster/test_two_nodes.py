"""Two nodes train one run; a link that is cut ends both with an error, and the same commands go on from there."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from ..conftest import QUICK, ROOT
from . import remains
from .background import at_step
from .namespaces import Link, Node

pytestmark = pytest.mark.cluster

SAYS_SO = (
    r"(?m)^Interrupted: the connection to another process broke \(.+\)\. The same command goes on from .+ checkpoint\.$"
)
STEPS = 250
RUN = (
    "agg=attention",
    "seed=0",
    "trainer=ddp",
    "trainer.devices=1",
    "trainer.num_nodes=2",
    "trainer.timeout=10",
    f"trainer.max_steps={STEPS}",
    "trainer.val_every=50",
    "trainer.log_every=10",
    "trainer.checkpoint_every=30",
)


@dataclass(frozen=True)
class Ended:
    """How one node's command ended."""

    code: int
    said: str


def test_a_cut_link_ends_both_nodes_with_an_error_and_the_same_commands_go_on(
    link: Link, tmp_path: Path, text: Path
) -> None:
    with _both(link, tmp_path / "cut", text) as nodes:
        run = at_step(tmp_path / "cut", 70)
        link.cut()
        cut = time.monotonic()
        broken = _ended(nodes)
    assert time.monotonic() - cut < 60
    for node in broken:
        assert node.code != 0, node.said
        ours = node.said.partition("torch/distributed/elastic/")[0]  # what follows is torchrun's own report
        assert re.search(SAYS_SO, ours), node.said
        assert "Traceback" not in ours, node.said
    assert remains.summary(run)["status"] == "interrupted"
    seen = remains.step(run)
    assert 0 < seen < STEPS

    link.mend()
    for folder in (tmp_path / "cut", tmp_path / "whole"):
        with _both(link, folder, text) as nodes:
            for node in _ended(nodes):
                assert node.code == 0, node.said
    assert remains.of(run) == remains.of(at_step(tmp_path / "whole", STEPS))


@contextmanager
def _both(link: Link, folder: Path, text: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """The command of the documentation, on both nodes."""
    folder.mkdir(exist_ok=True)
    with ExitStack() as started:
        nodes = [
            started.enter_context(_started(node, number, link.nodes[0].address, folder, text))
            for number, node in enumerate(link.nodes)
        ]
        try:
            yield nodes
        finally:
            for node in nodes:
                node.kill()


def _started(node: Node, number: int, master: str, folder: Path, text: Path) -> subprocess.Popen[str]:
    torchrun = [
        *(sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--node-rank", str(number)),
        *("--nproc-per-node", "1", "--master-addr", master, "--master-port", "29500"),
    ]
    return subprocess.Popen(
        [*node.inside, *torchrun, str(ROOT / "train.py"), "paths.outputs=outputs", *QUICK, f"data.path={text}", *RUN],
        cwd=folder,
        env=os.environ | {"GLOO_SOCKET_IFNAME": node.interface, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _ended(nodes: list[subprocess.Popen[str]]) -> list[Ended]:
    said = [node.communicate(timeout=120)[0] for node in nodes]
    return [Ended(node.returncode, words) for node, words in zip(nodes, said, strict=True)]
