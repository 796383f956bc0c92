"""Kernels made of tiles: of the widest registers, and of those that fewer processors lack."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trilab.ops.tiles import LANES


@pytest.mark.slow  # how wide they are is found out when torch is loaded: a process of its own
@pytest.mark.skipif(LANES == 8, reason="there are no wider registers here")
@pytest.mark.parametrize("tests", ["test_causal_attention.py", "test_triangular_product.py"])
def test_where_registers_are_narrow_the_kernels_compute_the_same(tests: str) -> None:
    torchs_own = "not test_where_it_does_not_serve"  # which torch refuses in bfloat16, told of a plainer processor
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(Path(__file__).with_name(tests))]
    environment = os.environ | {"ATEN_CPU_CAPABILITY": "avx2"}
    done = subprocess.run([*command, "-k", torchs_own], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout
