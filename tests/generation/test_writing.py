"""What a trained model writes after a prompt."""

from collections.abc import Iterator
from itertools import islice

import pytest
import torch

from trilab.agg.none import Identity
from trilab.agg.softmax import SoftmaxMean
from trilab.errors import BadInput
from trilab.generation.generate import generate
from trilab.generation.sampling import Sampling
from trilab.generation.writing import until, write
from trilab.init import seed_of
from trilab.model import LanguageModel
from trilab.trained import Trained

from .test_known_text import knowing

LETTERS = "\nabcdefgh"


@pytest.fixture
def trained() -> Trained:
    plain = knowing(LETTERS)
    return Trained(LanguageModel(9, 4, SoftmaxMean, n_embd=16).eval(), plain.vocabulary, plain.config, plain.path)


def written(trained: Trained, prompt: str = "abc", **options: object) -> str:
    return "".join(write(trained, prompt, **{"count": 40, **options}))  # type: ignore[arg-type]


def test_the_characters_are_those_of_the_tokens_that_follow_the_prompt(trained: Trained) -> None:
    prompt = torch.from_numpy(trained.vocabulary.encode("abc")).long()[None]
    generator = torch.Generator().manual_seed(seed_of(7, "text 2"))
    tokens = generate(trained.model, prompt, 40, sampling=Sampling(top_k=5), generator=generator)
    text = written(trained, sampling=Sampling(top_k=5), seed=7, number=2)
    assert text == trained.vocabulary.decode(tokens[0, 3:].tolist())
    assert written(trained, count=0) == ""


def test_a_text_is_a_function_of_seed_and_number_alone(trained: Trained) -> None:
    texts = {(seed, number): written(trained, seed=seed, number=number) for seed in (0, 1, -1) for number in (1, 2, 3)}
    torch.manual_seed(5)
    assert all(written(trained, seed=seed, number=number) == text for (seed, number), text in texts.items())
    assert len(set(texts.values())) == 9
    assert written(trained, seed=10**40)


def test_without_a_prompt_it_looks_back_on_a_line_end_or_the_first_character_which_is_not_written() -> None:
    for characters, start in ((LETTERS, "\n"), ("bcd", "b")):
        trained = knowing(characters)
        assert written(trained, "", seed=1) == written(trained, start, seed=1)
        assert len(written(trained, "")) == 40


def test_it_ends_with_the_first_stop_that_comes_and_keeps_it(trained: Trained) -> None:
    text = written(trained, count=100, seed=3)
    for stop in (text[0], text[5:7], text[20:30], text[-1]):
        assert written(trained, count=100, seed=3, stops=[stop]) == text[: text.index(stop) + len(stop)]
    early, late = text[10:14], text[50:54]
    assert written(trained, count=100, seed=3, stops=[late, early]) == text[: text.index(early) + 4]
    assert written(trained, count=100, seed=3, stops=["\n" * 9]) == text  # which never comes


def test_a_stop_counts_in_what_is_written_and_not_in_the_prompt(trained: Trained) -> None:
    text = written(trained)
    assert len(written(trained, stops=["c"])) > 0
    assert len(written(trained, stops=[f"bc{text[0]}"])) > 1


def test_nothing_is_drawn_after_a_stop() -> None:
    def characters() -> Iterator[str]:
        yield from "to be"
        raise AssertionError("asked for more")

    assert "".join(until(characters(), ["x", " be"])) == "to be"


def test_the_text_comes_character_by_character(trained: Trained) -> None:
    endless = write(trained, "abc", count=10**30)
    assert "".join(islice(endless, 40)) == written(trained)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"prompt": "abé"}, r"The prompt has a character .* 'é' \(U\+00E9, first at position 2\)"),
        ({"stops": ["a", ""]}, "--stop is empty"),
        ({"stops": ["aé"]}, r"--stop, which could never come, has a character that is not .* 'é' \(U\+00E9"),
        ({"unbounded": True}, "--unbounded needs a model without positions"),
    ],
)
def test_what_cannot_be_written_is_refused_before_anything_is(trained: Trained, options: dict, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        write(trained, **{"prompt": "abc", "count": 3, **options})


def test_unbounded_goes_on_from_the_state() -> None:
    plain = knowing(LETTERS)
    model = LanguageModel(9, 4, Identity, n_embd=16, positions=False).eval()
    free = Trained(model, plain.vocabulary, plain.config, plain.path)
    assert written(free, "abcdefgh", unbounded=True) == written(free, "h")
