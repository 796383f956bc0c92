"""What a strategy is: on one screen, as a picture, and all of them on a page."""

from collections.abc import Sequence
from pathlib import Path

import torch
from rich.console import Console

from trilab.errors import BadInput
from trilab.explain.example import lecture_toy
from trilab.explain.page import title, write, write_page
from trilab.explain.picture import svg
from trilab.explain.screen import show, show_all
from trilab.explain.strategy import every_strategy, strategy

__all__ = ["explain"]


def explain(words: Sequence[str], *, picture: Path | None = None, page: Path | None = None) -> None:
    """Print what the words name, or without words a table of every strategy.

    Args:
        words: one strategy, by name or as the dotted path of a class, and its knobs as knob=value.
        picture: also write its table on the lecture's toy as a drawing, or its influence map where it has none.
        page: print nothing; write the page of every strategy and its pictures.
    Raises:
        BadInput: an unknown name or knob, more than one strategy, a file that cannot be written.
    """
    torch.set_num_threads(1)  # the tensors are tiny
    for file in (picture, page):
        if file is not None and not file.parent.is_dir():
            raise BadInput(f"{file} cannot be written: {file.parent} is no folder. Name a file in one that is there.")
    if page is not None:
        if words or picture is not None:
            raise BadInput(f"--page {page} writes of every strategy: it goes with no other word.")
        write_page(page)
    elif words:
        named = strategy(words)
        if picture is not None:
            toy = lecture_toy(named)
            write(picture, svg(toy.picture, title(named.name, has_table=toy.tables is not None)))
        show(named, Console())
    elif picture is not None:
        raise BadInput(f"--svg {picture} needs a strategy, as in trilab explain attention --svg {picture}.")
    else:
        show_all(every_strategy(), Console())
