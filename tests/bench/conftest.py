"""Measurements that nobody made, for what is said of them."""

from collections.abc import Callable
from typing import Any

import pytest

from trilab.bench.measured import Measured, Series

MACHINE: dict[str, Any] = {
    "processor": "An Abacus",
    "cores": 2,
    "threads": 1,
    "gpu": None,
    "system": "Linux x86_64",
    "python": "3.11.7",
    "torch": "2.13.0",
    "lightning": "2.6.6",
}

Make = Callable[..., Measured]


@pytest.fixture
def made() -> Make:
    """`made("train", [Series(…), …], reference="…")`."""

    def make(kind: str, series: list[Series], *, reference: str, quick: bool = False, device: str = "cpu") -> Measured:
        return Measured(kind, device, quick, MACHINE, reference, tuple(series), ("A note.",))

    return make
