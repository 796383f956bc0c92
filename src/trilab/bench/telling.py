"""What a bench says while it works: on stderr, a line that changes on a terminal, lines elsewhere."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

Tell = Callable[[str], None]


@contextmanager
def telling() -> Iterator[Tell]:
    """A function that takes what is done next, in some words."""
    console = Console(stderr=True, highlight=False, markup=False)
    if not console.is_terminal:
        yield lambda words: console.print(words, soft_wrap=True)
        return
    with console.status("") as status:
        yield status.update
