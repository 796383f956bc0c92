"""`data=parity`: bits, and every so often whether the ones so far are even or odd."""

import numpy as np

from trilab.corpora.drawn import Episodes, at_least
from trilab.corpus import Corpus
from trilab.errors import BadInput


def read(*, episode: int, characters: int = 1_000_000, seed: int = 0, every: int = 1) -> Corpus:
    r"""Parity: `\n`, then `every` random bits and the parity of all bits so far, `e` or `o`, again and again.

    The parities are the answers. Each follows from the one before it and the bits since, so every + 1 characters are
    enough to look back on, the last bit among them: two with every = 1, where a table of four knows all answers.
    What is left at the end of an episode is filler.

    The source itself loses questions · every · ln 2 nats an episode, questions = (episode - 1) // (every + 1), and
    nothing on answers. Guessing blindly costs ln 2.

    Args:
        episode: characters of an episode.
        characters: of the whole text, about; at most `drawn.MOST_CHARACTERS`.
        seed: of the text; the seed of a run does not change it.
        every: bits before each question.
    Raises:
        BadInput: bits that do not fit the episode; a size out of range.
    """
    at_least("every", every, 1)
    questions = (episode - 1) // (every + 1)
    if questions < 1:
        most = f"data.every={episode - 2} is the most" if episode >= 3 else "3 are the least"
        raise BadInput(
            f"data.every={every} leaves no room for a question in episodes of {episode} characters (data.episode, "
            f"which is data.block_size unless it is set): {most}."
        )
    made = Episodes("parity", episode=episode, characters=characters, seed=seed)
    n, end = len(made), 1 + questions * (every + 1)
    bits = made.draws.below(2, n, questions, every)
    parity = bits.sum(2).cumsum(1) % 2  # (n, questions)
    units = np.concatenate([np.array(["0", "1"])[bits], np.array(["e", "o"])[parity][..., None]], 2)
    made.text[:, 1:end] = units.reshape(n, -1)
    made.nats[:, 1:end] = np.log(2)
    made.nats[:, 1 + every : end : every + 1] = 0
    made.answers[:, 1 + every : end : every + 1] = True
    return made.corpus()
