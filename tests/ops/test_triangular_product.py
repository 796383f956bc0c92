"""The compiled product with a triangle is the full one: values, gradients, theirs, whatever the sizes and threads."""

import pytest
import torch
from torch import Tensor

from trilab.ops import triangle
from trilab.ops import triangular_product as module
from trilab.ops.tiles import LANES, PANEL
from trilab.ops.triangle import triangular_product, triangular_product_full
from trilab.ops.triangular_product import library, serves, triangular_product_by_kernel

from .test_causal_attention import Names

pytestmark = [
    pytest.mark.skipif(library() is None, reason="there is no C compiler here, or a processor without AVX2"),
    pytest.mark.usefixtures("one_thread"),
]

ROWS = {8: 6, 16: 8}[LANES]  # of a tile, as in tiles.h

# (B, H, panels of T, vectors of N): panels and half panels of columns, whole tiles of rows and less, strips of 16 tiles
# and more, 256 terms and more
SIZES = [(1, 1, 1, 1), (2, 3, 3, 3), (1, 2, 7, 2), (2, 1, 17, 5), (1, 1, 33, 33), (3, 2, 16, 1)]


def drawn(batch: int, heads: int, panels: int, vectors: int) -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    time, columns = panels * PANEL, vectors * LANES
    A, v = torch.randn(heads, time, time).tril() / time**0.5, torch.randn(batch, time, heads * columns)
    return A.requires_grad_(), v.requires_grad_()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("size", SIZES)
def test_it_is_the_full_product_with_gradients(size: tuple[int, int, int, int], threads: int) -> None:
    torch.set_num_threads(threads)
    inputs = drawn(*size)
    exact = [x.detach().double().requires_grad_() for x in inputs]
    fast, slow = triangular_product_by_kernel(*inputs), triangular_product_full(*exact)
    torch.testing.assert_close(fast.double(), slow, atol=1e-5, rtol=1e-5)
    cotangent = torch.randn(fast.shape)
    ours, theirs = torch.autograd.grad(fast, inputs, cotangent), torch.autograd.grad(slow, exact, cotangent.double())
    torch.testing.assert_close(ours[0].tril().double(), theirs[0].tril(), atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(ours[1].double(), theirs[1], atol=1e-5, rtol=1e-5)


def test_its_bits_do_not_depend_on_the_number_of_threads() -> None:
    def all_of_it() -> list[Tensor]:
        inputs = drawn(3, 2, 13, 3)
        y = triangular_product_by_kernel(*inputs)
        return [y, *torch.autograd.grad(y.sin().sum(), inputs)]

    found = []
    for number in (1, 2, 5, 7):
        torch.set_num_threads(number)
        found.append(all_of_it())
    assert all(torch.equal(one, other) for more in found[1:] for one, other in zip(found[0], more, strict=True))


@pytest.mark.parametrize("t", [0, 5, 6, 17, 95, 96, 150])
def test_what_a_later_position_holds_changes_no_bit_of_an_earlier_tile(t: int) -> None:
    A, v = (x.detach() for x in drawn(1, 1, 10, 1))
    before = triangular_product_by_kernel(A, v)
    v[:, t] = torch.nan
    first = t // ROWS * ROWS  # of the tile that it lies in
    assert torch.equal(triangular_product_by_kernel(A, v)[:, :first], before[:, :first])


@pytest.mark.parametrize("wanted", ["table", "values"])
def test_a_gradient_that_nobody_asks_for_is_not_made(wanted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def noted(name: str, A: Tensor, v: Tensor, **others: Tensor | None) -> None:
        made.extend(key for key, x in others.items() if name == "backward" and x is not None)
        call(name, A, v, **others)

    call = module._call
    monkeypatch.setattr(module, "_call", noted)
    A, v = drawn(2, 1, 2, 1)
    (v if wanted == "table" else A).requires_grad_(False)
    triangular_product_by_kernel(A, v).sum().backward()
    assert (A.grad is None, v.grad is None) == (wanted == "values", wanted == "table")
    assert made == ["into", "to_table" if wanted == "table" else "to_v"]


def test_gradients_have_gradients() -> None:
    inputs = drawn(2, 2, 1, 1)
    exact = [x.detach().double().requires_grad_() for x in inputs]

    def of_gradients(y: Tensor, given: tuple[Tensor, ...] | list[Tensor]) -> tuple[Tensor, ...]:
        first = torch.autograd.grad(y.square().sum(), given, create_graph=True)
        return torch.autograd.grad(first[0].tril().square().sum() + first[1].square().sum(), given)

    ours = of_gradients(triangular_product_by_kernel(*inputs), inputs)
    theirs = of_gradients(triangular_product_full(*exact), exact)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one.double(), other, atol=1e-3, rtol=1e-4)


def test_tables_values_and_what_arrives_may_lie_in_memory_as_they_like() -> None:
    A, v = drawn(2, 1, 2, 1)
    expected = triangular_product_by_kernel(A, v)
    gradients = torch.autograd.grad(expected.sum(), (A, v))
    turned = A.detach().mT.contiguous().mT.requires_grad_(), v.detach().mT.contiguous().mT.requires_grad_()
    y = triangular_product_by_kernel(*turned)
    assert torch.equal(y, expected)
    again = torch.autograd.grad(y.sum(), turned)  # its cotangent is one number, seen everywhere
    assert all(torch.equal(one, other) for one, other in zip(again, gradients, strict=True))


@pytest.mark.parametrize(
    ("time", "columns", "dtype"),
    [(PANEL, LANES, torch.float64), (PANEL + 1, LANES, torch.float32), (PANEL, LANES + 1, torch.float32)],
    ids=["double", "an odd length", "an odd head"],
)
def test_where_it_does_not_serve_torch_does_the_same(time: int, columns: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    A, v = torch.randn(1, time, time, dtype=dtype).tril(), torch.randn(1, time, columns, dtype=dtype)
    assert not serves(A, v)
    torch.testing.assert_close(triangular_product(A, v), triangular_product_full(A, v))


def test_it_serves_where_each_thread_has_a_head() -> None:
    A, v = drawn(2, 2, 1, 1)
    served = []
    for number in (4, 5):
        torch.set_num_threads(number)
        served.append(serves(A, v))
    assert served == [True, False]


def test_the_product_calls_it_but_where_somebody_counts_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    called = []

    def noted(A: Tensor, v: Tensor) -> Tensor:
        called.append(v.shape)
        return triangular_product_by_kernel(A, v)

    monkeypatch.setattr(triangle, "triangular_product_by_kernel", noted)
    A, v = (x.detach() for x in drawn(2, 1, 4, 1))
    y = triangular_product(A, v)
    assert called == [v.shape]
    with Names() as seen:
        torch.testing.assert_close(triangular_product(A, v), y)
    assert any("bmm" in name for name in seen.names)
    assert called == [v.shape]
