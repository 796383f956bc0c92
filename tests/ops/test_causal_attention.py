"""The compiled attention is the masked softmax: values, gradients, theirs, whatever the sizes, windows and threads."""

import math
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor, vmap
from torch.utils._python_dispatch import TorchDispatchMode

from trilab.ops import causal_attention as module
from trilab.ops import tiles
from trilab.ops.attention import attention, window_attention
from trilab.ops.causal_attention import (
    MOST_NUMBERS,
    QUERIES,
    causal_attention,
    causal_attention_by_table,
    library,
    registered_causal_attention,
    registered_causal_attention_backward,
    serves,
)
from trilab.ops.tiles import LANES

pytestmark = [
    pytest.mark.skipif(library() is None, reason="there is no C compiler here, or a processor without AVX2"),
    pytest.mark.usefixtures("one_thread"),
]

SCALE = 0.3
# (B, H, T, vectors of LANES numbers in a head, window): tiles of 6 or 8 queries in blocks of 24 and 64, panels of 16 or
# 32 keys and blocks of 64 of them: one more and one less; heads of some and of half panels, windows that begin within a
# panel, and one that no text fills
SIZES = [
    *[(1, 1, 1, 1, 1), (2, 3, 5, 1, 9), (1, 2, 15, 2, 15), (2, 2, 16, 3, 3), (2, 3, 17, 2, 4), (1, 2, 25, 1, 11)],
    *[(2, 1, 31, 1, 31), (1, 2, 32, 1, 5), (1, 1, 33, 2, 33)],
    *[(3, 2, 63, 4, 63), (1, 1, 64, 8, 64), (1, 2, 65, 1, 17), (2, 1, 100, 2, 20), (3, 2, 130, 3, 33)],
    *[(1, 1, 150, 1, 70), (1, 2, 200, 1, 1), (2, 1, 257, 5, 10**9)],
]


class Names(TorchDispatchMode):
    """Of torch's operations, as they are called."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def drawn(batch: int, heads: int, time: int, vectors: int, *, seed: int = 0) -> list[Tensor]:
    torch.manual_seed(seed)
    return [torch.randn(batch, time, heads, vectors * LANES).transpose(1, 2).requires_grad_() for _ in range(3)]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("batch", "heads", "time", "vectors", "window"), SIZES)
def test_it_is_the_masked_softmax_with_gradients(
    batch: int, heads: int, time: int, vectors: int, window: int, threads: int
) -> None:
    torch.set_num_threads(threads)
    inputs = drawn(batch, heads, time, vectors)
    exact = [x.detach().double().requires_grad_() for x in inputs]
    fast = causal_attention(*inputs, window, scale=SCALE)
    slow = causal_attention_by_table(*exact, min(window, time), scale=SCALE)
    torch.testing.assert_close(fast.double(), slow, atol=1e-5, rtol=1e-5)
    cotangent = torch.randn(fast.shape)
    ours, theirs = torch.autograd.grad(fast, inputs, cotangent), torch.autograd.grad(slow, exact, cotangent.double())
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one.double(), other, atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("scale", [0.0, -2.0, 40.0])
def test_affinities_of_any_size_and_sign_are_weighed_as_softmax_weighs_them(scale: float) -> None:
    inputs = drawn(1, 2, 40, 2)
    exact = causal_attention_by_table(*[x.detach().double() for x in inputs], 40, scale=scale)
    torch.testing.assert_close(causal_attention(*inputs, 40, scale=scale).double(), exact, atol=1e-4, rtol=1e-4)


def test_its_bits_do_not_depend_on_the_number_of_threads() -> None:
    def all_of_it() -> list[Tensor]:
        inputs = drawn(5, 3, 90, 2)
        y = causal_attention(*inputs, 90, scale=SCALE)
        return [y, *torch.autograd.grad(y.sin().sum(), inputs)]

    found = []
    for number in (1, 2, 7):
        torch.set_num_threads(number)
        found.append(all_of_it())
    assert all(torch.equal(one, other) for more in found[1:] for one, other in zip(found[0], more, strict=True))


@pytest.mark.parametrize("window", [7, 50])
def test_what_lies_outside_of_the_window_changes_no_bit_of_values_or_gradients(window: int) -> None:
    def up_to(changed: slice) -> list[Tensor]:
        inputs = drawn(2, 2, 50, 2)
        others = drawn(2, 2, 50, 2, seed=1)
        with torch.no_grad():
            for x, other in zip(inputs, others, strict=True):
                x[:, :, changed] = other[:, :, changed]
        y = causal_attention(*inputs, window, scale=SCALE)[:, :, 30]
        return [y, *(x[:, :, max(0, 31 - window) : 31] for x in torch.autograd.grad(y.sin().sum(), inputs))]

    here = up_to(slice(0, 0))
    for changed in (slice(31, None), slice(0, max(0, 31 - window))):
        assert all(torch.equal(one, other) for one, other in zip(here, up_to(changed), strict=True))


def test_queries_keys_and_values_may_lie_in_memory_as_they_like() -> None:
    q, k, v = drawn(2, 3, 20, 1)
    expected = causal_attention(q, k, v, 20, scale=SCALE)
    together = torch.cat([x.transpose(1, 2).flatten(2) for x in (q, k, v)], 2)  # (B, T, 3·H·D)
    parts = [part.unflatten(2, (3, LANES)).transpose(1, 2) for part in together.chunk(3, 2)]
    assert not parts[0].transpose(1, 2).is_contiguous()
    assert torch.equal(causal_attention(*parts, 20, scale=SCALE), expected)
    turned = [x.mT.contiguous().mT for x in (q, k, v)]
    assert torch.equal(causal_attention(*turned, 20, scale=SCALE), expected)
    cotangent = torch.randn(expected.shape).mT.contiguous().mT
    ours = torch.autograd.grad(expected, (q, k, v), cotangent)
    again = torch.autograd.grad(causal_attention(q, k, v, 20, scale=SCALE), (q, k, v), cotangent.contiguous())
    assert all(torch.equal(one, other) for one, other in zip(ours, again, strict=True))


def test_gradients_have_gradients() -> None:
    inputs = drawn(1, 2, 9, 1)
    exact = [x.detach().double().requires_grad_() for x in inputs]

    def of_gradients(y: Tensor, given: list[Tensor]) -> tuple[Tensor, ...]:
        first = torch.autograd.grad(y.square().sum(), given, create_graph=True)
        return torch.autograd.grad(sum((x.square().sum() for x in first), torch.zeros(())), given)

    ours = of_gradients(causal_attention(*inputs, 4, scale=SCALE), inputs)
    theirs = of_gradients(causal_attention_by_table(*exact, 4, scale=SCALE), exact)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one.double(), other, atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize("which", [0, 1, 2])
def test_what_is_not_a_number_is_not_hidden(which: int) -> None:
    inputs = drawn(1, 1, 40, 1)
    with torch.no_grad():
        inputs[which][0, 0, 20, 3] = math.nan
    y = causal_attention(*inputs, 40, scale=SCALE)[0, 0]
    assert y[20].isnan().any()
    assert y[21:].isnan().any() == (which > 0)
    assert not y[:16].isnan().any()
    assert torch.autograd.grad(y.sum(), inputs[1])[0].isnan().any()


def test_weights_too_small_for_a_float_are_zero_and_not_some_other_number() -> None:
    q = torch.tensor([[1.0] * LANES] * 2)[None, None]
    k = torch.tensor([[0.0] * LANES, [1.0] * LANES])[None, None]
    v = torch.tensor([[1e30] * LANES, [1.0] * LANES])[None, None]
    y = causal_attention(q, k, v, 2, scale=100.0)  # affinities of 0 and 800, or 1600
    assert torch.equal(y[0, 0, 1], torch.ones(LANES))


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((8, 1, 64, LANES + 1), torch.float32),
        ((8, 1, 64, LANES), torch.float64),
        ((8, 1, 64, LANES), torch.bfloat16),
        ((0, 1, 64, LANES), torch.float32),
        ((8, 1, 32, LANES), torch.float32),
    ],
    ids=["an odd head", "double", "half", "nothing", "a few"],
)
def test_where_it_does_not_serve_torch_does_the_same(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    q, k, v = (torch.randn(shape, dtype=dtype) for _ in range(3))
    assert not serves(q, k, v, shape[2])
    expected = causal_attention_by_table(q.double(), k.double(), v.double(), shape[2], scale=SCALE)
    found = attention(q, k, v, scale=SCALE)
    torch.testing.assert_close(found.double(), expected, atol=2e-2 if dtype == torch.bfloat16 else 1e-5, rtol=1e-2)


def test_it_serves_where_keys_stay_near_a_window_s_in_texts_of_any_length() -> None:
    q, k, v = (torch.empty(2, 1, MOST_NUMBERS, LANES) for _ in range(3))
    assert serves(q, k, v, MOST_NUMBERS // LANES - QUERIES)
    assert not serves(q, k, v, MOST_NUMBERS // LANES - QUERIES + 1)
    here = [x[:, :, : MOST_NUMBERS // LANES] for x in (q, k, v)]
    assert serves(*here, 10**9)


def test_it_serves_where_each_thread_has_a_head() -> None:
    q, k, v = (torch.empty(2, 2, 100, LANES) for _ in range(3))
    served = []
    for number in (4, 5):
        torch.set_num_threads(number)
        served.append(serves(q, k, v, 100))
    assert served == [True, False]


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # of torch's kernel under vmap
def test_who_looks_into_operations_sees_those_of_torch() -> None:
    q, k, v = (x.detach() for x in drawn(2, 2, 200, 1))
    assert serves(q[:1], k[:1], v[:1], 200)
    expected = attention(q, k, v, scale=SCALE)
    with Names() as seen:
        torch.testing.assert_close(attention(q, k, v, scale=SCALE), expected)
    assert any("scaled_dot_product" in name for name in seen.names)
    mapped = vmap(lambda q, k, v: attention(q[None], k[None], v[None], scale=SCALE)[0])(q, k, v)
    torch.testing.assert_close(mapped, expected)


def test_the_operations_are_registered_as_torch_asks() -> None:
    inputs = drawn(2, 2, 20, 1)
    torch.library.opcheck(registered_causal_attention, (*inputs, 5, SCALE))
    inputs = [x.detach() for x in inputs]
    y, logs = registered_causal_attention(*inputs, 5, SCALE)
    torch.library.opcheck(registered_causal_attention_backward, (*inputs, y, torch.randn_like(y), logs, 5, SCALE))


@pytest.mark.parametrize("window", [70, 3])
def test_compiled_it_is_called_as_it_is_elsewhere(window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    called = []

    def noted(*given: Any) -> tuple[Tensor, Tensor]:
        called.append(given[3])
        return forward(*given)

    forward = module._forward
    inputs = drawn(8, 2, 70, 2)

    def averages(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return window_attention(q, k, v, window, scale=SCALE)

    usual = averages(*inputs)
    cotangent = torch.randn(usual.shape)
    gradients = torch.autograd.grad(usual, inputs, cotangent)
    monkeypatch.setattr(module, "_forward", noted)
    found = torch.compile(averages, backend="aot_eager", fullgraph=True)(*inputs)
    assert called == [window]
    assert torch.equal(found, usual)
    for one, other in zip(torch.autograd.grad(found, inputs, cotangent), gradients, strict=True):
        assert torch.equal(one, other)


def test_attention_and_its_windows_call_it(monkeypatch: pytest.MonkeyPatch) -> None:
    called = []

    def noted(*given: Tensor | int, scale: float) -> Tensor:
        called.append(given[3])
        return causal_attention(*given, scale=scale)  # type: ignore[arg-type]

    monkeypatch.setattr("trilab.ops.attention.causal_attention", noted)
    inputs = drawn(8, 2, 70, 2)
    attention(*inputs, scale=SCALE)
    window_attention(*inputs, 3, scale=SCALE)
    attention(*inputs, scale=SCALE, dropout=0.1)
    attention(inputs[0][:, :, -1:], *inputs[1:], scale=SCALE)
    assert called == [70, 3]


def test_memory_is_linear_in_the_length_of_the_text() -> None:
    """In a process of its own, whose peak nothing else has raised: the table of pairs alone would take 1 GB."""
    code = (
        "import resource, torch; torch.set_num_threads(1)\n"
        "from trilab.ops.causal_attention import causal_attention\n"
        f"inputs = [torch.randn(1, 1, 2**14, {LANES}, requires_grad=True) for _ in range(3)]\n"
        "causal_attention(*[x[:, :, :16] for x in inputs], 16, scale=1.0).sum().backward()\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "before = peak()\n"
        "causal_attention(*inputs, 2**14, scale=1.0).sum().backward()\n"
        "print(peak() - before)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 64_000  # kB


@pytest.mark.parametrize(("machine", "capability"), [("x86_64", "DEFAULT"), ("AMD64", "DEFAULT")])
def test_a_processor_without_fused_products_has_no_kernels(
    machine: str, capability: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiles.platform, "machine", lambda: machine)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    assert library.__wrapped__() is None
