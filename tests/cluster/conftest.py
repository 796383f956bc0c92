"""The cluster that these tests run on, brought up once; a machine that cannot have it skips them and says why."""

from collections.abc import Iterator

import pytest

from . import namespaces, slurm


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
