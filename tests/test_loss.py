"""Cross-entropy against hand values, and the precision it is computed in."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from trilab.loss import mean_nats, summed_nats

HALF = [torch.bfloat16, torch.float16]


def test_a_hand_computed_case() -> None:
    logits = torch.tensor([[[1.0, 3.0], [5.0, 5.0]]]).log()  # (1, 2, 2): shares 1/4, 3/4 and 1/2, 1/2
    targets = torch.tensor([[1, 0]])
    nats = math.log(4 / 3) + math.log(2)
    assert summed_nats(logits, targets).item() == pytest.approx(nats, rel=1e-6)
    assert mean_nats(logits, targets).item() == pytest.approx(nats / 2, rel=1e-6)


@pytest.mark.parametrize("loss", [mean_nats, summed_nats])
@pytest.mark.parametrize("dtype", [*HALF, torch.float32, torch.float64])
def test_uniform_logits_give_ln_v_in_every_dtype(loss: Callable[[Tensor, Tensor], Tensor], dtype: torch.dtype) -> None:
    found = loss(torch.zeros(1, 1, 65, dtype=dtype), torch.zeros(1, 1, dtype=torch.int64))
    assert found.item() == pytest.approx(math.log(65), rel=1e-6)


@pytest.mark.parametrize("dtype", [*HALF, torch.float32, torch.float64])
def test_means_are_float32_and_sums_float64(dtype: torch.dtype) -> None:
    logits, targets = torch.zeros(2, 3, 5, dtype=dtype), torch.zeros(2, 3, dtype=torch.int64)
    assert mean_nats(logits, targets).dtype == torch.float32
    assert summed_nats(logits, targets).dtype == torch.float64


def test_many_small_terms_are_not_lost_in_the_sum() -> None:
    # in float32 a running sum of 2^24 stands still when 1 is added
    logits = torch.tensor([[0.0, -(2.0**24)], [-1.0, 0.0], [-1.0, 0.0]])[None]
    targets = torch.tensor([[1, 0, 0]])
    small = math.log(1 + math.e)
    assert summed_nats(logits, targets).item() - 2.0**24 == pytest.approx(2 * small, rel=1e-6)


@pytest.mark.parametrize("dtype", HALF)
def test_logits_far_apart_stay_finite_in_half_precision(dtype: torch.dtype) -> None:
    logits = torch.tensor([[[-3e4, 3e4]]], dtype=dtype)
    assert mean_nats(logits, torch.tensor([[0]])).item() == pytest.approx(6e4, rel=0.01)


def test_the_gradient_comes_back_in_the_dtype_of_the_logits() -> None:
    logits = torch.zeros(1, 2, 4, dtype=torch.bfloat16, requires_grad=True)
    mean_nats(logits, torch.tensor([[0, 1]])).backward()
    assert logits.grad is not None
    assert logits.grad.dtype == torch.bfloat16
    assert torch.equal(logits.grad[0, 0], torch.tensor([-0.375, 0.125, 0.125, 0.125], dtype=torch.bfloat16))
