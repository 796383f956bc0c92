"""`data=induction`: what came after this the last time?"""

import numpy as np

from trilab.corpora.drawn import Episodes, at_least, lower
from trilab.corpus import Corpus
from trilab.errors import BadInput


def read(*, episode: int, characters: int = 1_000_000, seed: int = 0, gap: int = 4, symbols: int = 16) -> Corpus:
    r"""Induction: `\n`, then noise; in it a trigger `!` and x, after `gap` characters `!` and x again, and so on.

    Every x but the first of an episode is an answer. The noise is uniform, and the first x is part of it. The first
    trigger stands at one of the first M = min(gap + 2, episode - gap - 4) places after the line end, uniformly, so that
    at least one answer fits. An answer stands gap + 2 characters after what it repeats: a model must look back on
    gap + 2 characters, the trigger, where it stands, among them.

    The source itself loses ln M + n · ln symbols nats an episode with n characters of noise (every place before the
    trigger tells that it was not there), and nothing on answers and the triggers before them. Guessing blindly costs
    ln symbols.

    Args:
        episode: characters of an episode.
        characters: of the whole text, about; at most `drawn.MOST_CHARACTERS`.
        seed: of the text; the seed of a run does not change it.
        gap: characters between an x and the next trigger.
        symbols: lower-case letters to draw from (then Han characters).
    Raises:
        BadInput: a gap that leaves no room for an answer; a size out of range.
    Source:
        The ability that Elhage and others, A mathematical framework for transformer circuits, 2021, and Olsson and
        others, In-context learning and induction heads, 2022, call induction; with one marked token, as in Fu, Dao,
        Saab, Thomas, Rudra, Ré, Hungry hungry hippos, 2023, where the trigger comes again once, at the end.
    """
    letters = lower("symbols", symbols)
    at_least("gap", gap, 0)
    period = gap + 2
    places = min(period, episode - gap - 4)
    if places < 1:
        most = f"data.gap={episode - 5} is the most" if episode >= 5 else "5 are the least"
        raise BadInput(
            f"data.gap={gap} leaves no room for an answer in episodes of {episode} characters (data.episode, which is "
            f"data.block_size unless it is set): {most}."
        )
    made = Episodes("induction", episode=episode, characters=characters, seed=seed)
    n, position = len(made), np.arange(episode)
    first = 1 + made.draws.below(places, n)[:, None]  # (n, 1)
    made.text[:, 1:] = letters[made.draws.below(symbols, n, episode - 1)]
    x = np.take_along_axis(made.text, first + 1, 1)  # (n, 1)
    # that the trigger is not at place i, if it has not come before, has probability 1 - 1 / (M - i + 1)
    left = np.maximum(places - position, 1)  # places after this one, where there are any
    not_here = np.where(position < places, np.log1p(1 / left), 0.0)  # (episode,)
    made.nats[:, 1:] = (np.log(symbols) + np.where(position < first, not_here, 0.0))[:, 1:]
    since = position - first  # (n, episode)
    again, made.answers[:] = (since > 0) & (since % period == 0), (since > 1) & (since % period == 1)
    made.text[again | (since == 0)] = "!"
    made.text[:] = np.where(made.answers, x, made.text)
    made.nats[again | made.answers] = 0
    made.nats[since == 0] = np.log(places - first[:, 0] + 1)
    return made.corpus()
