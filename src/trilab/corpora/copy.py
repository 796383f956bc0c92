"""`data=copy`: a string, a gap, and the same string again."""

import numpy as np

from trilab.corpora.drawn import Episodes, at_least, lower
from trilab.corpus import Corpus
from trilab.errors import BadInput


def read(*, episode: int, characters: int = 1_000_000, seed: int = 0, gap: int = 0, symbols: int = 16) -> Corpus:
    r"""Copying: `\n`, a random string of length L, `gap` fillers, `>`, the string again, whose characters are answers.

    L = (episode - 2 - gap) // 2, as long as the episode allows; one character of filler is left over where that does
    not come out even. Every answer stands L + gap + 1 characters after what it repeats: a model must look back on
    L + gap + 1 characters, the one it stands at among them.

    The source itself loses L · ln symbols nats an episode, and nothing on answers. Guessing blindly costs ln symbols.

    Args:
        episode: characters of an episode.
        characters: of the whole text, about; at most `drawn.MOST_CHARACTERS`.
        seed: of the text; the seed of a run does not change it.
        gap: fillers between the string and the mark.
        symbols: lower-case letters to draw from (then Han characters).
    Raises:
        BadInput: a gap that leaves no room for a string; a size out of range.
    Source:
        The copying memory task, Hochreiter and Schmidhuber, Long short-term memory, 1997; Arjovsky, Shah, Bengio,
        Unitary evolution recurrent neural networks, 2016. Their string is 10 symbols of 8 and is not a running text.
    """
    letters = lower("symbols", symbols)
    at_least("gap", gap, 0)
    length = (episode - 2 - gap) // 2
    if length < 1:
        most = f"data.gap={episode - 4} is the most" if episode >= 4 else "no string fits, 4 are the least"
        raise BadInput(
            f"data.gap={gap} leaves no room for a string in episodes of {episode} characters (data.episode, which is "
            f"data.block_size unless it is set): {most}."
        )
    made = Episodes("copy", episode=episode, characters=characters, seed=seed)
    again = 2 + length + gap
    made.text[:, 1 : 1 + length] = letters[made.draws.below(symbols, len(made), length)]
    made.text[:, again - 1] = ">"
    made.text[:, again : again + length] = made.text[:, 1 : 1 + length]
    made.nats[:, 1 : 1 + length] = np.log(symbols)
    made.answers[:, again : again + length] = True
    return made.corpus()
