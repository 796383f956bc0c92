"""How much each output moves with each input, as numbers and as a picture in the terminal."""

import pytest
import torch
from torch import Tensor

from trilab.agg.attention import SelfAttention
from trilab.agg.base import lower_triangle
from trilab.influence import draw, future, influence, response


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).double()


@pytest.fixture
def table() -> Tensor:
    """(T, T), negative weights and a zero among them."""
    table = drawn(5, 5).tril()
    table[3, 1] = 0
    return table


@pytest.mark.parametrize("channels", [1, 4, 32])
def test_for_a_fixed_table_the_influence_is_its_absolute_weights(table: Tensor, channels: int) -> None:
    x, other = drawn(2, 5, channels), drawn(2, 5, channels, seed=1)
    torch.testing.assert_close(influence(lambda x: table @ x, x), table.abs())
    torch.testing.assert_close(response(lambda x: table @ x, x, other), table.abs())


def test_two_heads_give_the_root_mean_square_of_their_tables() -> None:
    one, two = drawn(5, 5).tril(), drawn(5, 5, seed=1).tril()
    x = drawn(1, 5, 6)
    got = influence(lambda x: torch.cat([one @ x[..., :3], two @ x[..., 3:]], -1), x)
    torch.testing.assert_close(got, ((one.square() + two.square()) / 2).sqrt())


@pytest.mark.parametrize("channels", [3, 24])
def test_the_influence_is_the_norm_of_the_jacobian(channels: int) -> None:
    torch.manual_seed(0)
    attention, x = SelfAttention(channels, 5).double(), drawn(2, 5, channels)
    jacobian = torch.autograd.functional.jacobian(lambda x: attention(x).sum(0), x)  # (T, C, B, T, C)
    assert isinstance(jacobian, Tensor)
    exact = (jacobian.square().sum((1, 4)) / channels).sqrt().mean(1)
    torch.testing.assert_close(influence(attention, x), exact, rtol=1e-9 if channels <= 16 else 0.5, atol=1e-12)
    assert not future(influence(attention, x)).any()


def test_steps_which_have_no_slope_are_seen_by_other_inputs() -> None:
    def counts(x: Tensor) -> Tensor:
        return (x > 0).double().cumsum(1)

    x = drawn(1, 5, 3)
    assert influence(counts, x).bool().equal(lower_triangle(5))
    assert response(counts, x, -x).bool().equal(lower_triangle(5))


def test_tokens_are_replaced_one_at_a_time() -> None:
    embedding = drawn(7, 4)
    tokens = torch.tensor([[0, 3, 6, 2]])
    moves = response(lambda tokens: embedding[tokens].flip(1), tokens, (tokens + 1) % 7)
    assert moves.bool().equal(torch.eye(4).flip(1).bool())
    assert moves[3, 0].item() == pytest.approx((embedding[1] - embedding[0]).norm().item())


def test_the_parameters_get_no_gradient() -> None:
    attention = SelfAttention(4, 5).double()
    influence(attention, drawn(1, 5, 4))
    assert all(parameter.grad is None for parameter in attention.parameters())


def test_the_future_is_above_the_diagonal_and_more_than_rounding() -> None:
    matrix = torch.eye(4).double()
    matrix[0, 2], matrix[1, 3], matrix[3, 0], matrix[2, 3] = 0.5, 1e-16, 0.5, torch.nan
    assert future(matrix).nonzero().tolist() == [[0, 2], [2, 3]]


def test_a_small_picture_shows_every_position_and_marks_the_future_without_colour() -> None:
    matrix = torch.tensor([[1.0, 0, 0, 0], [0.5, 0.5, 0, 0.1], [0, 0.3, 0.7, 0], [0.01, 0.2, 0.2, 0.6]])
    text = draw(matrix)
    assert text.plain == (
        "input    0 1 2 3\n"
        "output 0 ██      \n"
        "       1 ▒▒▒▒  XX\n"
        "       2   ░░▓▓  \n"
        "       3 ······▒▒\n"
        "█ up to 1, · below 0.2\n"
        "XX moves with a later input"
    )
    assert [text.plain[s.start : s.end] for s in text.spans if s.style == "bold red"] == ["XX", "XX"]


def test_shades_by_powers_of_ten() -> None:
    lines = draw(torch.diag(torch.tensor([1.0, 0.05, 1e-3, 1e-9])), log=True).plain.splitlines()
    assert [line[9:].strip() for line in lines[1:5]] == ["██", "▓▓", "░░", "··"]
    assert lines[5] == "█ up to 1, · below 0.0001"


@pytest.mark.parametrize(("time", "cells"), [(24, 24), (25, 13), (100, 20), (256, 24), (1000, 24)])
def test_a_large_table_is_pooled_by_its_largest_entries(time: int, cells: int) -> None:
    matrix = torch.eye(time)
    matrix[time // 2, time - 1] = 1e-3
    lines = draw(matrix).plain.splitlines()
    rows = lines[1:-2]
    assert lines[-2].startswith("█ up to 1")
    assert len(rows) == cells
    assert [row.count("██") for row in rows] == [1] * cells
    assert sum(row.count("XX") for row in rows) == 1
    assert all(len(line) <= 80 for line in lines)


def test_a_picture_of_nothing_and_of_no_number_is_drawn_too() -> None:
    assert "XX" not in draw(torch.zeros(3, 3)).plain
    assert draw(torch.full((3, 3), torch.nan)).plain.count("XX") == 4
