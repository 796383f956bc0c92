"""How a character is chosen: temperature, top_k, top_p."""

import math

import pytest
import torch
from torch import Tensor

from trilab.errors import BadInput
from trilab.generation.generate import draw
from trilab.generation.sampling import Sampling

LOGITS = torch.tensor([[1.0, 3.0, 2.0, 3.0, -1.0]])


def chances(sampling: Sampling, logits: Tensor = LOGITS) -> Tensor:
    """(V,) shares of many draws."""
    drawn = draw(logits.expand(40_000, -1), sampling, torch.Generator().manual_seed(0))
    return drawn.bincount(minlength=logits.shape[1]) / 40_000


def among(*ids: int, temperature: float = 1.0) -> Tensor:
    """(V,) what the model says of these characters, as if there were no others."""
    kept = torch.full_like(LOGITS[0], -math.inf)
    kept[list(ids)] = LOGITS[0, list(ids)]
    return (kept / temperature).softmax(-1)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_characters_are_drawn_as_often_as_the_model_says(temperature: float) -> None:
    wanted = among(0, 1, 2, 3, 4, temperature=temperature)
    assert torch.allclose(chances(Sampling(temperature)), wanted, atol=0.01)


@pytest.mark.parametrize(("k", "kept"), [(1, [1]), (2, [1, 3]), (3, [1, 2, 3]), (5, range(5)), (10**30, range(5))])
def test_top_k_leaves_the_k_likeliest_and_of_equal_ones_the_first(k: int, kept: list[int]) -> None:
    assert torch.allclose(chances(Sampling(top_k=k)), among(*kept), atol=0.01)


def test_of_many_equal_ones_the_first_counts_as_the_likeliest() -> None:
    even = torch.zeros(1, 65)
    for first in (Sampling(0.0), Sampling(top_k=1), Sampling(top_p=1e-9)):
        assert draw(even, first, torch.Generator().manual_seed(0)).tolist() == [0]


@pytest.mark.parametrize(
    ("p", "kept"),
    # the model says .094, .395, .145 …: the first two have .698 together, the third brings it to .844 … 1
    [(1e-9, [1]), (0.39, [1]), (0.41, [1, 3]), (0.78, [1, 3]), (0.8, [1, 2, 3]), (0.99, [0, 1, 2, 3]), (1.0, range(5))],
)
def test_top_p_leaves_the_fewest_likeliest_that_have_p_together(p: float, kept: list[int]) -> None:
    assert torch.allclose(chances(Sampling(top_p=p)), among(*kept), atol=0.01)


def test_top_p_counts_on_what_temperature_and_top_k_leave() -> None:
    # of three the likeliest two have .84 and not .79; at temperature 5 of all five only .5
    assert torch.allclose(chances(Sampling(top_k=3, top_p=0.83)), among(1, 3), atol=0.01)
    assert torch.allclose(chances(Sampling(5.0, top_p=0.6)), among(1, 2, 3, temperature=5.0), atol=0.01)


@pytest.mark.parametrize("temperature", [1e-6, 1e-30, 1e-40, 5e-324])
def test_a_temperature_close_to_0_takes_the_likeliest(temperature: float) -> None:
    assert chances(Sampling(temperature), torch.tensor([[0.1, 0.3, 0.2, 0.2999]])).tolist() == [0, 1, 0, 0]


@pytest.mark.parametrize("temperature", [1e300, math.inf])
def test_an_endless_temperature_draws_evenly_and_top_k_still_takes_the_likeliest(temperature: float) -> None:
    assert torch.allclose(chances(Sampling(temperature)), torch.full((5,), 0.2), atol=0.01)
    assert chances(Sampling(temperature, top_k=1)).tolist() == [0, 1, 0, 0, 0]
    assert chances(Sampling(temperature, top_k=2)).tolist() == pytest.approx([0, 0.5, 0, 0.5, 0], abs=0.01)


def test_temperature_0_takes_the_likeliest_and_draws_nothing() -> None:
    generator = torch.Generator().manual_seed(0)
    before = generator.get_state()
    assert draw(LOGITS, Sampling(0.0, top_k=3, top_p=0.5), generator).tolist() == [1]
    assert torch.equal(generator.get_state(), before)


def test_every_row_is_chosen_for_by_itself() -> None:
    rows = torch.tensor([[0.0, 9.0, 0.0], [9.0, 0.0, 0.0], [0.0, 0.0, 9.0]])
    assert draw(rows, Sampling(top_k=1), torch.Generator()).tolist() == [1, 0, 2]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_logits_that_are_no_numbers_are_told_and_not_drawn_from(temperature: float, wrong: float) -> None:
    with pytest.raises(BadInput, match="logits are NaN or infinite"):
        draw(torch.tensor([[0.0, wrong, 1.0]]), Sampling(temperature), torch.Generator())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"temperature": -1.0}, "--temperature -1 must be 0"),
        ({"temperature": math.nan}, "--temperature nan must be 0"),
        ({"temperature": -math.inf}, "--temperature -inf must be 0"),
        ({"top_k": 0}, "--top-k 0 must be 1 or more"),
        ({"top_k": -3}, "--top-k -3 must be 1 or more"),
        ({"top_p": 0.0}, "--top-p 0 must be above 0"),
        ({"top_p": 1.5}, "--top-p 1.5 must be above 0"),
        ({"top_p": math.nan}, "--top-p nan must be above 0"),
    ],
)
def test_numbers_out_of_range_are_refused(arguments: dict[str, float], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        Sampling(**arguments)
