"""The cluster that these tests run on, brought up once; a machine that cannot have it skips them and says why."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from . import namespaces, slurm


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small text, the same file for all tests, so that they can share what was trained on it."""
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("".join(random.Random(0).choices("abcdefghij \n", k=2200)))
    return path


@pytest.fixture(scope="session", name="slurm")
def _slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[slurm.Slurm]:
    if reason := slurm.missing():
        pytest.skip(reason)
    with slurm.cluster(tmp_path_factory.mktemp("slurm")) as up:
        yield up


@pytest.fixture
def link() -> Iterator[namespaces.Link]:
    """Two nodes and the link between them."""
    if reason := namespaces.missing():
        pytest.skip(reason)
    with namespaces.two_nodes() as made:
        yield made
