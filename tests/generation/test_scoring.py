"""What a text costs a model."""

import math
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from trilab.agg.attention import SelfAttention
from trilab.agg.none import Identity
from trilab.errors import BadInput
from trilab.generation.known_text import known_text
from trilab.generation.scoring import score, text_nats
from trilab.model import LanguageModel
from trilab.trained import Trained

from .test_known_text import knowing

V = 7


def model_of(block_size: int) -> LanguageModel:
    return LanguageModel(V, block_size, SelfAttention, n_embd=8, residual=True, init_std=0.5).double().eval()


def text_of(length: int) -> Tensor:
    return torch.randint(V, (length,), generator=torch.Generator().manual_seed(length))


def one_by_one(model: LanguageModel, tokens: Tensor) -> tuple[Tensor, list[int]]:
    """The slow truth: each token from a window that begins where the fast path says, and how far back that looks."""
    size, inputs = model.block_size, len(tokens) - 1
    nats, looked_back = [], []
    for place in range(1, len(tokens)):
        begin, stride = 0, size - size // 2
        while begin + size < place:  # the first window that guesses it
            begin = min(begin + stride, max(0, inputs - size))
        logits = model(tokens[None, begin:place])[0, -1]
        nats.append(-logits.log_softmax(-1)[tokens[place]])
        looked_back.append(place - begin)
    return torch.stack(nats).detach(), looked_back


@pytest.mark.parametrize("block_size", [1, 2, 5, 8])
@pytest.mark.parametrize("length", [2, 3, 8, 9, 10, 17, 40])
def test_each_character_but_the_first_is_guessed_once_from_half_a_block_or_more(block_size: int, length: int) -> None:
    model, tokens = model_of(block_size), text_of(length)
    expected, looked_back = one_by_one(model, tokens)
    assert np.allclose(text_nats(model, tokens.numpy()), expected, atol=1e-6)  # the loss is float32
    for place, seen in enumerate(looked_back, 1):
        assert min(place, block_size // 2 + 1) <= seen <= block_size


def test_a_text_that_fits_into_one_window_is_one_forward_pass() -> None:
    model, tokens = model_of(16), text_of(12)
    logits = model(tokens[None, :-1]).detach()
    expected = torch.nn.functional.cross_entropy(logits[0], tokens[1:], reduction="none")
    assert np.allclose(text_nats(model, tokens.numpy()), expected, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int32])
def test_ids_of_every_width_cost_the_same(dtype: type) -> None:
    model, tokens = model_of(5), text_of(23)
    narrow = tokens.numpy().astype(dtype)
    assert np.array_equal(text_nats(model, narrow), text_nats(model, tokens.numpy()))


def test_it_costs_windows_in_proportion_to_the_text() -> None:
    model, read = model_of(8), []
    model.register_forward_pre_hook(lambda _, args: read.append(args[0].numel()))
    for length in (4_000, 8_000):
        read.clear()
        text_nats(model, text_of(length).numpy())
        assert 2 * length - 32 < sum(read) < 2 * length + 32


def lettered(text: str, characters: str = "\nabcde") -> tuple[LanguageModel, Trained]:
    plain = knowing(characters)
    model = LanguageModel(len(characters), 4, Identity, n_embd=8).eval()
    return model, replace(plain, model=model)


def test_lines_add_up_to_the_whole_and_a_line_end_counts_to_its_line() -> None:
    text = "abc\n\nde\nab"
    model, trained = lettered(text)
    scored = score(model, known_text(text, trained, origin="", skip=False))
    lines = [*scored.lines()]
    nats = text_nats(model, trained.vocabulary.encode(text))
    assert [line for line, _ in lines] == ["abc", "", "de", "ab"]
    assert [loss.characters for _, loss in lines] == [3, 1, 3, 2]  # the first character is not guessed
    for (_, loss), (begin, end) in zip(lines, [(0, 3), (3, 4), (4, 7), (7, 9)], strict=True):
        assert loss.nats == pytest.approx(float(nats[begin:end].sum()))
    ended = score(model, known_text(f"{text}\n", trained, origin="", skip=False))
    assert [loss.characters for _, loss in ended.lines()] == [3, 1, 3, 3]  # and begins no line after it
    assert scored.whole.characters == 9
    assert scored.whole.nats == pytest.approx(sum(loss.nats for _, loss in lines))
    assert scored.whole.nats_per_char == pytest.approx(float(nats.mean()))
    assert scored.whole.bits_per_char == pytest.approx(float(nats.mean()) / math.log(2))


def test_characters_left_out_cost_nothing_and_their_line_stays() -> None:
    text = "Xaéb\nXX\ncd"
    model, trained = lettered(text, "abcde")  # knows no line end either
    scored = score(model, known_text(text, trained, origin="", skip=True))
    lines = [*scored.lines()]
    assert [(line, loss.characters) for line, loss in lines] == [("Xaéb", 1), ("XX", 0), ("cd", 2)]
    assert lines[1][1].nats_per_char is None
    plain = score(model, known_text("abcd", trained, origin="", skip=False))
    assert scored.whole == plain.whole


@pytest.mark.parametrize("text", ["", "a", "XaX"])
def test_a_text_in_which_nothing_can_be_guessed_is_refused(text: str) -> None:
    model, trained = lettered(text)
    with pytest.raises(BadInput, match=r"The text has [01] characters? that the model knows"):
        score(model, known_text(text, trained, origin="", skip=True))


def test_losses_that_are_no_numbers_are_told() -> None:
    model, trained = lettered("")
    model.token_embedding_table.weight.data[0] = math.nan
    with pytest.raises(BadInput, match="losses are NaN or infinite"):
        score(model, known_text("a\nb", trained, origin="", skip=False))


@pytest.mark.parametrize("skip", [False, True])
def test_a_long_text_costs_some_bytes_a_character(skip: bool) -> None:
    trained = knowing("\nabcde")
    model = LanguageModel(6, 256, Identity).eval()
    text = "abcde dec\n".replace(" ", "X" if skip else "e") * 5_000
    score(model, known_text(text[:2000], trained, origin="", skip=skip))  # what is made once
    tracemalloc.start()
    try:
        scored = score(model, known_text(text, trained, origin="", skip=skip))
        characters = sum(loss.characters for _, loss in scored.lines())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert characters == len(scored.known.tokens) - 1
    assert peak / len(text) < 12
