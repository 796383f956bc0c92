"""`data=recall`: keys with values, then the keys again: which value was it?"""

import numpy as np

from trilab.corpora.drawn import Episodes, lower, upper
from trilab.corpus import Corpus
from trilab.errors import BadInput


def read(
    *, episode: int, characters: int = 1_000_000, seed: int = 0, pairs: int = 4, keys: int = 16, values: int = 16
) -> Corpus:
    r"""Associative recall with many questions: `\n`, key value key value …, `?`, then key answer key answer …

    An episode shows `pairs` distinct keys, each with a value drawn uniformly and independently. Then it asks for keys
    among them, uniformly, again and again until it is full; each question is followed by that key's value, an answer.
    One character of filler is left over where the episode is odd.

    The source itself loses Σ_{i < pairs} ln(keys - i) + pairs · ln values + questions · ln pairs nats an episode, and
    nothing on answers. Guessing a value blindly costs ln values.

    Args:
        episode: characters of an episode.
        characters: of the whole text, about; at most `drawn.MOST_CHARACTERS`.
        seed: of the text; the seed of a run does not change it.
        pairs: shown before the questions.
        keys: lower-case letters to choose keys from (then Han characters).
        values: upper-case letters to choose values from (then Hangul syllables).
    Raises:
        BadInput: pairs that do not fit the episode, or are more than there are keys; a size out of range.
    Source:
        Arora, Eyuboglu, Timalsina, Johnson, Poli, Zou, Rudra, Ré, Zoology: Measuring and improving recall in efficient
        language models, 2023 (MQAR). There questions come at distances drawn from a power law, with filler between
        them; here they come one after the other, and there is a mark before the first.
    """
    key_symbols, value_symbols = lower("keys", keys), upper("values", values)
    if not 1 <= pairs <= keys:
        raise BadInput(f"data.pairs={pairs} must lie between 1 and data.keys={keys}: keys of an episode are distinct.")
    asked_from = 2 * pairs + 2
    questions = (episode - asked_from) // 2
    if questions < 1:
        most = f"at most data.pairs={(episode - 4) // 2} fit" if episode >= 6 else "not even one pair fits"
        raise BadInput(
            f"data.pairs={pairs} need episodes of at least {asked_from + 2} characters, with one question; into "
            f"data.episode={episode}, which is data.block_size unless it is set, {most}."
        )
    made = Episodes("recall", episode=episode, characters=characters, seed=seed)
    n, draws = len(made), made.draws
    sizes = [len(part) for part in np.array_split(np.arange(n), n // 1024 + 1)]  # so that many keys need little memory
    orders = [draws.raw(size, keys).argsort(1, kind="stable")[:, :pairs] for size in sizes]
    shown = np.concatenate(orders)  # (n, pairs), distinct in each row
    of_shown = draws.below(values, n, pairs)
    asked = draws.below(pairs, n, questions)  # which of the pairs
    key, value = slice(1, asked_from - 1, 2), slice(2, asked_from - 1, 2)
    question = slice(asked_from, asked_from + 2 * questions, 2)
    answer = slice(asked_from + 1, asked_from + 2 * questions, 2)
    made.text[:, key] = key_symbols[shown]
    made.text[:, value] = value_symbols[of_shown]
    made.text[:, asked_from - 1] = "?"
    made.text[:, question] = key_symbols[np.take_along_axis(shown, asked, 1)]
    made.text[:, answer] = value_symbols[np.take_along_axis(of_shown, asked, 1)]
    made.nats[:, key] = np.log(keys - np.arange(pairs))
    made.nats[:, value] = np.log(values)
    made.nats[:, question] = np.log(pairs)
    made.answers[:, answer] = True
    return made.corpus()
