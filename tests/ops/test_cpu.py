"""The compiled kernels give the same bits on every processor, and take torch's own threads."""

import ctypes
import subprocess
import sys
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


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted as Linux lists them")
def test_kernels_make_no_threads_beside_those_that_torch_has() -> None:
    code = (
        "import os, threading, torch; torch.set_num_threads(4)\n"
        "from trilab.ops.causal_attention import causal_attention\n"
        "from trilab.ops.prefix import prefix_sum\n"
        "x, heads = torch.randn(8, 512, 256), torch.randn(8, 4, 256, 32)\n"
        "number, seen, over = lambda: len(os.listdir('/proc/self/task')), [], threading.Event()\n"
        "def watch():\n"
        "    while not over.is_set(): seen.append(number())\n"
        "watcher = threading.Thread(target=watch)\n"
        "watcher.start(); x.exp(); torch.mm(x[0], x[0].T); before = number()\n"
        "for _ in range(40): prefix_sum(x); causal_attention(heads, heads, heads, 256, scale=1.0)\n"
        "over.set(); watcher.join(); print(before, max(seen))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    before, most = map(int, done.stdout.split())
    assert 4 < before == most  # torch's four, one of them this one, and the watcher
