"""Tokens from a model: lengths, the look back, one step a character, repeatability."""

import gc
import tracemalloc
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from trilab.agg.attention import SelfAttention
from trilab.agg.cumsum import CumsumMean
from trilab.agg.none import Identity
from trilab.agg.softmax import SoftmaxMean
from trilab.agg.window import WindowMean
from trilab.build import build_model
from trilab.config import read
from trilab.errors import BadInput
from trilab.generation.generate import draw, generate, stream
from trilab.generation.sampling import Sampling
from trilab.model import LanguageModel, MakeAggregation, ModelState

from ..conftest import STRATEGIES
from ..test_config import composed

V, T = 11, 8
GREEDY = Sampling(temperature=0)


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
    written = generate(model, prompt(2, time), count, sampling=Sampling(temperature), generator=draws())
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


def test_up_to_block_size_each_character_is_one_step_and_past_it_the_last_block_size_are_read_anew() -> None:
    steps, read = [], []

    class Watched(LanguageModel):
        def forward(self, tokens: Tensor) -> Tensor:
            read.append(tokens.shape[1])
            return super().forward(tokens)

        def step(self, tokens: Tensor, state: ModelState) -> tuple[Tensor, ModelState]:
            steps.append(state[0])
            return super().step(tokens, state)

    generate(Watched(V, 4, Identity, n_embd=4).eval(), prompt(1, 2), 5, generator=draws())
    assert steps == [0, 1, 2, 3]
    assert read == [4, 4]


def recomputed(model: LanguageModel, tokens: Tensor, count: int, sampling: Sampling) -> Tensor:
    """The slow truth: the whole text is read again for each character."""
    generator = draws()
    for _ in range(count):
        token = draw(model(tokens[:, -model.block_size :])[:, -1], sampling, generator)
        tokens = torch.cat([tokens, token[:, None]], 1)
    return tokens


@pytest.mark.parametrize("name", STRATEGIES)
def test_text_from_carried_states_is_the_text_of_the_whole_model(name: str) -> None:
    model = build_model(read(composed("model=gpt", f"agg={name}", f"data.block_size={T}", "model.n_layer=2")), V).eval()
    for time in (1, T + 1):
        for sampling in (GREEDY, Sampling(), Sampling(0.8, top_k=5, top_p=0.9)):
            written = generate(model, prompt(3, time), 2 * T, sampling=sampling, generator=draws())
            assert torch.equal(written, recomputed(model, prompt(3, time), 2 * T, sampling)), (time, sampling)


def test_unbounded_goes_on_from_the_state_past_block_size_where_nothing_depends_on_the_position() -> None:
    model = LanguageModel(V, T, CumsumMean, n_embd=16, positions=False).double().eval()
    longer = LanguageModel(V, 5 * T, CumsumMean, n_embd=16, positions=False).double().eval()
    assert model.unbounded
    written = generate(model, prompt(2, 3), 4 * T, sampling=GREEDY, generator=draws(), unbounded=True)
    assert torch.equal(written, generate(longer, prompt(2, 3), 4 * T, sampling=GREEDY, generator=draws()))


FORGETFUL = [Identity, partial(WindowMean, size=3), partial(SelfAttention, n_head=2, window=4, rotary=True)]


@pytest.mark.parametrize("make_agg", FORGETFUL)
def test_a_model_that_forgets_within_block_size_takes_one_step_a_character_for_ever_with_the_same_text(
    make_agg: MakeAggregation, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = LanguageModel(V, T, make_agg, n_embd=16, n_layer=2, positions=False).double().eval()
    assert model.forgets
    expected = {time: recomputed(model, prompt(2, time), 3 * T, Sampling()) for time in (1, 3 * T)}
    monkeypatch.setattr(model, "forward", None)  # whoever reads the text anew fails
    for time, text in expected.items():
        assert torch.equal(generate(model, prompt(2, time), 3 * T, generator=draws()), text)


@pytest.mark.parametrize(
    ("make_agg", "knobs"),
    [
        (Identity, {"positions": True}),
        (CumsumMean, {}),  # its state does not grow, and holds the whole text
        (SoftmaxMean, {}),
        (partial(WindowMean, size=6), {"n_layer": 2}),  # 11 characters back, of 8
        ([Identity, CumsumMean], {"n_layer": 2}),
    ],
)
def test_a_model_that_sees_where_block_size_ends_does_not_forget(make_agg: Any, knobs: dict[str, Any]) -> None:
    assert not LanguageModel(V, T, make_agg, **{"n_embd": 16, "positions": False, **knobs}).forgets
    assert LanguageModel(V, T, partial(WindowMean, size=8), n_embd=16, positions=False).forgets


def test_what_is_written_may_be_trained_on(model: LanguageModel) -> None:
    for tokens in (
        generate(model, prompt(1, 3), 2 * T, generator=draws()),
        next(stream(model, prompt(1, 3), generator=draws()))[:, None],
    ):
        assert not tokens.is_inference()
        model(tokens[:, :T]).sum().backward()


@pytest.mark.parametrize("knobs", [{"make_agg": CumsumMean}, {"make_agg": SoftmaxMean, "positions": False}])
def test_unbounded_is_refused_to_a_model_with_positions_or_a_growing_state(knobs: dict[str, Any]) -> None:
    model = LanguageModel(V, T, n_embd=16, **knobs).eval()
    with pytest.raises(BadInput, match="--unbounded needs a model without positions"):
        generate(model, prompt(1, 1), 1, generator=draws(), unbounded=True)


def test_temperature_0_takes_the_likeliest_each_time_and_draws_nothing(model: LanguageModel) -> None:
    generator = draws()
    before = generator.get_state()
    written = generate(model, prompt(2, 3), 30, sampling=GREEDY, generator=generator)
    assert torch.equal(generator.get_state(), before)
    for end in range(3, 33):
        assert torch.equal(written[:, end], model(written[:, max(0, end - T) : end])[:, -1].argmax(-1))


def test_one_seed_writes_one_text_and_another_seed_another(model: LanguageModel) -> None:
    first, again, other = (generate(model, prompt(1, 3), 50, generator=draws(seed)) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_the_global_random_state_is_left_alone_and_no_gradient_is_kept(model: LanguageModel) -> None:
    before = torch.get_rng_state()
    written = generate(model, prompt(1, 3), 5, generator=draws())
    assert torch.equal(torch.get_rng_state(), before)
    assert not written.requires_grad


def test_tokens_come_as_they_are_drawn_and_none_is_drawn_ahead(model: LanguageModel) -> None:
    generator = draws()
    following = stream(model, prompt(2, 3), generator=generator)
    before = generator.get_state()
    first = next(following)
    assert first.shape == (2,)
    assert not torch.equal(generator.get_state(), before)
    after = generator.get_state()
    whole = generate(model, prompt(2, 3), 3 * T, generator=draws())
    assert torch.equal(generator.get_state(), after)
    rest = [next(following) for _ in range(3 * T - 1)]
    assert torch.equal(torch.stack([first, *rest], 1), whole[:, 3:])


def test_what_writing_holds_does_not_grow_with_the_text(model: LanguageModel) -> None:
    def held() -> int:
        gc.collect()
        return sum(type(thing) is Tensor for thing in gc.get_objects())

    following = stream(model, prompt(1, 3), generator=draws())
    counts = []
    for _ in range(3):
        for _ in range(3 * T):
            next(following)
        counts.append(held())
    assert len(set(counts)) == 1


@pytest.mark.parametrize("unbounded", [False, True])
def test_a_long_prompt_takes_no_memory_beside_itself(unbounded: bool) -> None:
    model = LanguageModel(V, T, CumsumMean, n_embd=16, positions=False).eval()
    peaks = []
    for time in (2 * T, 2_000):
        tokens = prompt(1, time)
        tracemalloc.start()
        next(stream(model, tokens, generator=draws(), unbounded=unbounded))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 20_000  # bytes; a tensor for each character would be 176,000


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_a_seed_draws_alike_on_every_device() -> None:
    model = LanguageModel(V, T, SoftmaxMean, n_embd=16).double().eval()
    here = generate(model, prompt(2, 3), 3 * T, generator=draws())
    there = generate(model.cuda(), prompt(2, 3).cuda(), 3 * T, generator=draws())
    assert torch.equal(there.cpu(), here)
