"""The triangular product, and softmax, are the full ones, values and gradients, at every length; they do less."""

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from trilab.ops import triangle
from trilab.ops.triangle import (
    causal_softmax,
    causal_softmax_full,
    triangular_product,
    triangular_product_flops,
    triangular_product_full,
)

# blocks of 2 rows at least, 8 blocks at most: one block, several, and a last one that is not full
LENGTHS = [1, 2, 3, 4, 15, 16, 17, 33]


@pytest.fixture(autouse=True, params=["side by side", "row by row"])
def _small_blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triangle, "LEAST_ROWS", 2)
    monkeypatch.setattr(triangle, "WIDE", 1 if request.param == "row by row" else 1000)
    torch.manual_seed(0)


def drawn(time: int, heads: int = 2, columns: int = 3, batch: int = 2) -> tuple[Tensor, Tensor]:
    A = torch.randn(heads, time, time, dtype=torch.float64).tril()
    v = torch.randn(batch, time, heads * columns, dtype=torch.float64)
    return A.requires_grad_(), v.requires_grad_()


@pytest.mark.parametrize("time", LENGTHS)
def test_it_is_the_full_product_with_the_gradients_that_a_triangle_has(time: int) -> None:
    A, v = drawn(time)
    fast, slow = triangular_product(A, v), triangular_product_full(A, v)
    torch.testing.assert_close(fast, slow)
    cotangent = torch.randn_like(fast)
    ours = torch.autograd.grad(fast, (A, v), cotangent)
    theirs = torch.autograd.grad(slow, (A, v), cotangent)
    torch.testing.assert_close(ours[0].tril(), theirs[0].tril())
    torch.testing.assert_close(ours[1], theirs[1])


def test_its_gradients_are_those_of_small_differences() -> None:
    table, v = drawn(7)
    assert torch.autograd.gradcheck(lambda table, v: triangular_product(table.tril(), v), (table, v))


@pytest.mark.parametrize("wanted", ["table", "values"])
def test_a_gradient_that_nobody_asks_for_is_not_made(wanted: str) -> None:
    A, v = drawn(16)
    part = A if wanted == "table" else v
    (v if wanted == "table" else A).requires_grad_(False)
    with FlopCounterMode(display=False) as counter:
        triangular_product(A, v).sum().backward()
    once = 2 * 2 * triangular_product_flops(16, 3)  # rows of the batch, heads
    assert counter.get_total_flops() == 2 * once  # forward and one gradient
    assert part.grad is not None


@pytest.mark.parametrize("time", LENGTHS)
def test_the_stated_flops_are_the_counted_ones(time: int) -> None:
    A, v = drawn(time, heads=1, batch=1)
    with FlopCounterMode(display=False) as forward:
        y = triangular_product(A, v)
    with FlopCounterMode(display=False) as backward:
        y.sum().backward()
    stated = triangular_product_flops(time, 3)
    assert (stated, 2 * stated) == (forward.get_total_flops(), backward.get_total_flops())


def test_nine_sixteenths_of_the_full_product_are_left() -> None:
    assert triangular_product_flops(1024, 1) == 2 * 1024**2 * 9 / 16


@pytest.mark.parametrize("t", range(16))
def test_what_a_later_position_holds_never_reaches_an_earlier_block(t: int) -> None:
    A, v = (part.detach() for part in drawn(16))
    before = triangular_product(A, v)
    v[:, t] = torch.nan
    assert torch.equal(triangular_product(A, v)[:, : t - t % 2], before[:, : t - t % 2])


def test_the_arguments_stay_as_they_are_and_need_not_be_contiguous() -> None:
    A, v = drawn(9)
    wide = v.detach().repeat_interleave(2, 2)[..., ::2]
    kept = A.clone(), wide.clone()
    torch.testing.assert_close(triangular_product(A, wide), triangular_product_full(A, wide))
    assert torch.equal(A, kept[0])
    assert torch.equal(wide, kept[1])


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # the compiler's own
def test_it_is_compiled_without_a_break_and_stays_the_same() -> None:
    torch._dynamo.reset()
    A, v = drawn(17)
    quick = torch.compile(lambda A, v: triangular_product(A, v).sin(), backend="aot_eager", fullgraph=True)
    ours, theirs = (
        torch.autograd.grad(f(A, v).sum(), (A, v)) for f in (quick, lambda A, v: triangular_product(A, v).sin())
    )
    torch.testing.assert_close(ours, theirs)
    torch._dynamo.reset()


def seen(time: int) -> Tensor:
    return torch.ones(time, time, dtype=torch.bool).tril()


@pytest.mark.parametrize("time", LENGTHS)
def test_softmax_up_to_the_diagonal_is_the_masked_one_with_gradients(time: int) -> None:
    affinities = torch.randn(time, time, dtype=torch.float64, requires_grad=True)
    fast, slow = causal_softmax(affinities, seen(time)), causal_softmax_full(affinities, seen(time))
    torch.testing.assert_close(fast, slow)
    assert (fast.triu(1) == 0).all()
    cotangent = torch.randn_like(fast)
    ours, theirs = (torch.autograd.grad(y, affinities, cotangent) for y in (fast, slow))
    torch.testing.assert_close(ours, theirs)


def test_softmax_of_the_last_rows_is_that_of_all_rows() -> None:
    affinities = torch.randn(9, 9, dtype=torch.float64)
    for rows in (1, 4):
        torch.testing.assert_close(
            causal_softmax(affinities[-rows:], seen(9)[-rows:]), causal_softmax_full(affinities, seen(9))[-rows:]
        )


def test_what_a_row_must_not_see_may_be_anything() -> None:
    affinities = torch.randn(9, 9).masked_fill(torch.ones(9, 9, dtype=torch.bool).triu(1), torch.nan)
    assert not causal_softmax(affinities, seen(9)).isnan().any()


def test_gradients_of_softmax_have_gradients() -> None:
    affinities = torch.randn(9, 9, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda given: causal_softmax(given, seen(9)) ** 2, affinities)
