"""A trained model and the beginning of a text → the characters that it writes."""

from collections.abc import Iterator, Sequence

import torch

from trilab.errors import BadInput
from trilab.generation.generate import AS_THE_MODEL_SAYS, stream
from trilab.generation.sampling import Sampling
from trilab.init import seed_of
from trilab.trained import Trained


def write(
    trained: Trained,
    prompt: str,
    *,
    count: int,
    sampling: Sampling = AS_THE_MODEL_SAYS,
    seed: int = 1337,
    number: int = 1,
    stops: Sequence[str] = (),
    unbounded: bool = False,
) -> Iterator[str]:
    """The characters that follow a prompt, one by one, each as soon as it is drawn.

    Args:
        prompt: how the text begins. A model must have something to look back on: without a prompt that is a line end,
            or the first character of a vocabulary without one, which is not part of what is written.
        count: characters at most.
        seed, number: text `number` of a seed (the first is 1) is a function of these two, however many are written.
        stops: the text ends once it ends with one of these; what the prompt ends with does not count.
        unbounded: past block_size go on from the carried state; see `generate.stream`.
    Raises:
        BadInput: a character of the prompt or of a stop that the model does not know, an empty stop, or unbounded and
            a model that cannot be.
    """
    for stop in stops:
        if not stop:
            raise BadInput("--stop is empty: give the text to stop after, or leave it out.")
        trained.vocabulary.encode(stop, "--stop, which could never come,")
    ids = trained.vocabulary.encode(prompt or trained.vocabulary.start, "The prompt")
    following = stream(
        trained.model,
        torch.from_numpy(ids).long()[None],
        sampling=sampling,
        generator=torch.Generator().manual_seed(seed_of(seed, f"text {number}")),
        unbounded=unbounded,
    )
    tokens = (int(token) for _, token in zip(range(count), following, strict=False))
    characters = (trained.vocabulary.characters[token] for token in tokens)
    return until(characters, stops) if stops else characters


def until(characters: Iterator[str], stops: Sequence[str]) -> Iterator[str]:
    """Characters up to the first of the stops, which is the last that comes."""
    longest = max(map(len, stops))
    tail = ""
    for character in characters:
        yield character
        tail = (tail + character)[-longest:]
        if tail.endswith(tuple(stops)):
            return
