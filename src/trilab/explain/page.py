"""docs/strategies.md and its pictures, written from what the strategies say of themselves."""

import html
import inspect
import os
import re
from collections.abc import Sequence
from pathlib import Path

import torch

from trilab.atomic import replacing
from trilab.errors import BadInput
from trilab.explain.example import INPUT_SCALE, TIME, redrawn
from trilab.explain.picture import SIDE, gallery, svg
from trilab.explain.screen import GPT_EMBD, GPT_TIME, yes
from trilab.explain.strategy import HEAD_SIZE, Strategy, every_strategy, parameters

N_HEAD = 4  # of the pictures and of the counts of parameters

GALLERY_TITLE = "The lower triangles of trilab's strategies"

TOP = """\
# The strategies

Every causal token mixer is a lower-triangular matrix. A position summarises what came before it, `y = A @ v`: row t of
A says how much of each earlier token flows into token t, and above the diagonal, where the future lies, there is
nothing. The strategies differ in what fills the triangle and in nothing else; what is around them, norm, residual and
projections, belongs to the block and is the same for all. {without}

![{gallery}]({folder}.svg)

In this order: tables that are given, tables that are learned and then the same for every text, and tables that the
tokens make themselves: first those that keep the whole past, then those that keep a summary of fixed size.

- **formula**: t is the position that is computed, s an earlier one or t itself, v what is mixed.
- **cost**: arithmetic of one forward pass over T tokens of C channels, H heads.
- **state**: numbers that are carried from one token to the next when text is written token by token.
- **rows sum to 1**: whether the output is a weighted mean of the past.
- **from tokens**: whether the table is made from the tokens; else it is the same for every text.
- **parameters**: learned numbers at C = {channels}, T = {time}, H = {heads}, without value and output projections,
  which are the model's.
"""

HEADINGS = (
    *("strategy", "what it is", "formula", "cost", "state"),
    *("rows sum to 1", "from tokens", "parameters", "source"),
)

BOTTOM = """\
## How to read the pictures

Row t is output t, column s is input s, from the top left; a cell is the weight A[t, s]. Black is zero; warm colours are
positive, up to yellow for the largest weight of the table; cold ones are negative, up to white. Colours follow the
square root of the weight, so that small ones can be told apart. Outside the triangle nothing is drawn: all is zero. A
strategy that looked into the future would show it there, in pink.
{exception}
Many tables begin as all zeros or as the plain mean, and learn from there. So that they show what they can become, they
are drawn with every parameter redrawn, standard normal, under a fixed seed: {tokens} random tokens of standard
deviation {scale} with {channels} channels, and of {heads} heads the first, or the first channel where each channel has
a table of its own. They are examples of a form, not of something trained.

    trilab explain attention                         # one of them on a screen, with numbers
    trilab explain attention n_head=2 --svg a.svg    # and its table on the lecture's toy as a picture
    trilab explain --page docs/strategies.md         # this page and its pictures, written anew
"""


def write_page(path: Path) -> None:
    """Write the page, a picture of every strategy in a folder of the page's name beside it, and one of them all.

    Raises:
        BadInput: they cannot be written.
    """
    for file, content in documents(path, every_strategy(n_head=N_HEAD)).items():
        write(file, content)


def write(path: Path, content: str) -> None:
    """The whole file or none.

    Raises:
        BadInput: it cannot be written.
    """
    try:
        with replacing(path) as file:
            file.write(content.encode())
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror}. Name a file in a folder of yours.") from error


def documents(path: Path, strategies: Sequence[Strategy]) -> dict[Path, str]:
    """Every file of the page and what is in it."""
    folder = path.with_suffix("")
    drawn = [(each, redrawn(each, HEAD_SIZE * N_HEAD)) for each in strategies]
    pictures = {
        folder / f"{each.name}.svg": svg(example.picture, title(each.name, has_table=example.tables is not None))
        for each, example in drawn
    }
    together = gallery([(each.name, example.picture) for each, example in drawn], GALLERY_TITLE)
    without = [each.name for each, example in drawn if example.tables is None]
    return {path: _text(path, strategies, without), folder.with_suffix(".svg"): together, **pictures}


def title(name: str, *, has_table: bool) -> str:
    """What a picture shows, in words."""
    shown = "the weight of token s in output t" if has_table else "how much output t moves with token s"
    return f"{name}: row t, column s is {shown}"


def _text(path: Path, strategies: Sequence[Strategy], without: Sequence[str]) -> str:
    names = " and ".join(f"`{name}`" for name in without)
    top = TOP.format(
        without=f"The exception: {names}, a recurrence that no table can describe." if without else "",
        gallery=GALLERY_TITLE,
        folder=path.stem,
        channels=GPT_EMBD,
        time=GPT_TIME,
        heads=N_HEAD,
    )
    exception = f"\n{names} has no table: its picture is its influence map, ‖∂y_t / ∂x_s‖, never negative.\n"
    bottom = BOTTOM.format(
        exception=exception if without else "",
        tokens=TIME,
        scale=INPUT_SCALE,
        heads=N_HEAD,
        channels=HEAD_SIZE * N_HEAD,
    )
    rows = [HEADINGS, ("---",) * len(HEADINGS), *(_row(path, each) for each in strategies)]
    return "\n".join([top, *(f"| {' | '.join(row)} |" for row in rows), "", bottom])


def _row(path: Path, strategy: Strategy) -> tuple[str, ...]:
    about, name = strategy.about, strategy.name
    source = Path(os.path.relpath(inspect.getfile(strategy.cls), path.parent.resolve())).as_posix()
    picture = f'<img src="{path.stem}/{name}.svg" width="{SIDE}" alt="the table of {name}">'
    with torch.random.fork_rng(devices=[]):
        count = parameters(strategy.build(GPT_EMBD, GPT_TIME))
    return (
        f"{picture}<br>[`{name}`]({source})",
        _words(strategy.what),
        *(_code(said) for said in (about.formula, about.cost, about.state)),
        yes(about.rows_sum_to_one),
        yes(about.data_dependent),
        f"{count:,}",
        _words(about.source),
    )


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|")


def _words(text: str) -> str:
    """Plain text for a cell of a table: nothing in it is markup."""
    return re.sub(r"([|*_`\\])", r"\\\1", html.escape(text, quote=False))
