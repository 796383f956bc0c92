"""Text from a model: lengths, the look back, temperature, repeatability."""

import pytest
import torch
from torch import Tensor

from trilab.agg.none import Identity
from trilab.agg.softmax import SoftmaxMean
from trilab.generate import generate
from trilab.model import LanguageModel

V, T = 11, 8


@pytest.fixture
def model() -> LanguageModel:
    return LanguageModel(V, T, SoftmaxMean, n_embd=16).eval()


def draws(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def prompt(batch: int, time: int) -> Tensor:
    return torch.randint(V, (batch, time), generator=draws(1))


@pytest.mark.parametrize("time", [1, T - 1, T, T + 1, 3 * T])
@pytest.mark.parametrize("count", [0, 1, 3 * T])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_prompt_is_kept_and_count_ids_of_the_vocabulary_follow(
    model: LanguageModel, time: int, count: int, temperature: float
) -> None:
    written = generate(model, prompt(2, time), count, temperature=temperature, generator=draws())
    assert written.shape == (2, time + count)
    assert written.dtype == torch.int64
    assert torch.equal(written[:, :time], prompt(2, time))
    assert written.min() >= 0
    assert written.max() < V


def test_only_the_last_block_size_characters_count(model: LanguageModel) -> None:
    long = prompt(1, 3 * T)
    other = long.clone()
    other[:, : 2 * T] = (other[:, : 2 * T] + 1) % V
    for tokens in (other, long[:, -T:]):
        assert torch.equal(
            generate(model, long, 20, generator=draws())[:, -20:],
            generate(model, tokens, 20, generator=draws())[:, -20:],
        )
    other[:, -T] = (long[:, -T] + 1) % V  # the oldest that still counts
    assert not torch.equal(model(long[:, -T:])[:, -1], model(other[:, -T:])[:, -1])


def test_the_model_is_never_given_more_than_block_size_nor_less_than_there_is() -> None:
    seen = []

    class Watched(LanguageModel):
        def forward(self, tokens: Tensor) -> Tensor:
            seen.append(tokens.shape[1])
            return super().forward(tokens)

    generate(Watched(V, 4, Identity, n_embd=4).eval(), prompt(1, 2), 5, generator=draws())
    assert seen == [2, 3, 4, 4, 4]


def test_temperature_0_takes_the_likeliest_each_time_and_draws_nothing(model: LanguageModel) -> None:
    generator = draws()
    before = generator.get_state()
    written = generate(model, prompt(2, 3), 30, temperature=0.0, generator=generator)
    assert torch.equal(generator.get_state(), before)
    for end in range(3, 33):
        assert torch.equal(written[:, end], model(written[:, max(0, end - T) : end])[:, -1].argmax(-1))


def test_one_seed_writes_one_text_and_another_seed_another(model: LanguageModel) -> None:
    first, again, other = (generate(model, prompt(1, 3), 50, generator=draws(seed)) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("temperature", [1.0, 0.5, 2.0])
def test_characters_are_drawn_as_often_as_the_model_says(temperature: float) -> None:
    model = LanguageModel(V, T, Identity, n_embd=16).eval()
    start = torch.full((20_000, 1), 3)
    written = generate(model, start, 1, temperature=temperature, generator=draws())[:, 1]
    wanted = (model(start[:1])[0, -1] / temperature).softmax(-1)
    assert torch.allclose(written.bincount(minlength=V) / 20_000, wanted, atol=0.015)


@pytest.mark.parametrize("temperature", [1e-3, 1e-30, 1e-40])
def test_a_temperature_close_to_0_is_close_to_greedy(model: LanguageModel, temperature: float) -> None:
    cold, greedy = (generate(model, prompt(2, 3), 20, temperature=t, generator=draws()) for t in (temperature, 0.0))
    assert torch.equal(cold, greedy)


def test_the_global_random_state_is_left_alone_and_no_gradient_is_kept(model: LanguageModel) -> None:
    before = torch.get_rng_state()
    written = generate(model, prompt(1, 3), 5, generator=draws())
    assert torch.equal(torch.get_rng_state(), before)
    assert not written.requires_grad
