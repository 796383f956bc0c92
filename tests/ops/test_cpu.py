"""The compiled kernels give the same bits on every processor."""

import ctypes
import subprocess
from collections.abc import Iterator

import pytest
import torch

from trilab.ops import cpu, native, recurrence

pytestmark = pytest.mark.skipif(recurrence.library() is None, reason="there is no C compiler here")


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The kernels as a processor runs them that has no wider registers than all have."""
    target = tmp_path_factory.mktemp("narrow") / "narrow.so"
    subprocess.run(["cc", *native.FLAGS, "-DWIDEST=", str(recurrence.SOURCES[0]), "-o", str(target)], check=True)
    return ctypes.CDLL(str(target))


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    cpu._kernel.cache_clear()


@pytest.mark.parametrize("channels", [1, 7, 8, 24, 129])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_wide_registers_change_no_bit(
    channels: int, dtype: torch.dtype, narrow: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch
) -> None:
    heads = 1 if channels % 3 else 3
    x, into = torch.randn(2, 2, 9, heads, channels // heads, dtype=dtype)
    wide, shared = torch.rand(2, 9, heads, channels // heads, dtype=dtype), torch.rand(2, 9, heads, 1, dtype=dtype)

    def computed() -> list[torch.Tensor]:
        found = [cpu.prefix(x, mean, adjoint) for mean in (False, True) for adjoint in (False, True)]
        found += [cpu.prefix(x.bfloat16(), True, False)]
        for factors in (wide, shared):
            h = cpu.scan(factors, factors, x)
            found += [h, *cpu.scan_backward(factors, factors, x, h, into, True, True)]
        return found

    usual = computed()
    cpu._kernel.cache_clear()
    monkeypatch.setattr(cpu, "library", lambda: narrow)
    assert all(torch.equal(one, other) for one, other in zip(usual, computed(), strict=True))
