"""The Triton kernels give the numbers of their loops: in Triton's interpreter anywhere, on a card if there is one."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from trilab.ops.prefix import prefix_loop, prefix_mean
from trilab.ops.scan import scan, scan_loop

needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")
needs_card = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")


@needs_triton
@pytest.mark.slow  # Triton reads the variable when it is imported: a process of its own
@pytest.mark.parametrize("what", ["prefix", "scan", "future"])
def test_in_the_interpreter_they_are_their_loops_with_gradients(what: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", Path(__file__).with_name("interpreted.py"), what],
        env=os.environ | {"TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


@needs_triton
@needs_card
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_on_a_card_they_are_their_loops_with_gradients(dtype: torch.dtype) -> None:
    x = torch.randn(2, 300, 70, device="cuda").to(dtype).requires_grad_()
    exact = x.detach().double().requires_grad_()
    a, b = (torch.rand(2, 300, 70, device="cuda", dtype=torch.float64) for _ in range(2))
    for fast, slow in (
        (prefix_mean(x), prefix_loop(exact, mean=True)),
        (scan(a.float(), x, b.float()), scan_loop(a, exact, b)),
    ):
        torch.testing.assert_close(fast, slow.to(fast.dtype), rtol=2e-2, atol=2e-2)
        cotangent = torch.randn_like(slow)
        (ours,) = torch.autograd.grad(fast, x, cotangent.to(fast.dtype))
        (theirs,) = torch.autograd.grad(slow, exact, cotangent)
        torch.testing.assert_close(ours, theirs.to(dtype), rtol=2e-2, atol=2e-2)


def test_without_a_card_triton_is_not_imported() -> None:
    code = (
        "import sys, torch; from trilab.ops.prefix import prefix_mean; from trilab.ops.scan import scan;"
        "x = torch.ones(1, 3, 2, requires_grad=True); scan(x, prefix_mean(x)).sum().backward();"
        "raise SystemExit('triton' in sys.modules or 'torch._dynamo' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
