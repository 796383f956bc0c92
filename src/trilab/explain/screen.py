"""One strategy on one screen of a terminal, or all of them in one table."""

import ast
import inspect
import textwrap
from collections.abc import Sequence

import torch
from rich.console import Console, Group
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from trilab.agg.base import Aggregation
from trilab.check import Candidate, judged
from trilab.explain.example import SEED, TIME, Example, lecture_toy
from trilab.explain.picture import colour, shares
from trilab.explain.strategy import Strategy, parameters
from trilab.influence import draw, future

# gpt.py's size, in the lecture
GPT_TIME = 256
GPT_EMBD = 384

UNSAID = "not stated"


def show(strategy: Strategy, console: Console) -> None:
    """What it says of itself, its table and influence on the lecture's toy, its loop if any, and the laws it keeps."""
    toy = lecture_toy(strategy)
    console.print(Text(" ".join([strategy.name, *strategy.knobs]), "bold"))
    console.print(Text(strategy.what))
    console.print()
    console.print(_grid(facts(strategy, toy.aggregation)))
    console.print()
    console.print(_side_by_side([*_table(toy, strategy), _influence(toy)], console.width))
    console.print()
    console.print(Text(_recipe(strategy, toy), "dim"), soft_wrap=True)
    console.print()
    if toy.aggregation.has_weights or strategy.cls.loop is not Aggregation.loop:  # else the loop has no table to read
        console.print(Text("The same as a loop", "bold"))
        code = Syntax("", "python", theme="ansi_dark").highlight(loop_source(strategy.cls))
        code.rstrip()
        console.print(code, soft_wrap=True)
        console.print()
    console.print(_grid(_laws(strategy, toy.aggregation.n_embd)))


def show_all(strategies: Sequence[Strategy], console: Console) -> None:
    """A row each."""
    table = Table(box=None, padding=(0, 2, 1, 0), pad_edge=False)
    for heading in ("strategy", "what it is, formula, cost, state", "rows sum\nto 1", "from\ntokens"):
        table.add_column(heading)
    for each in strategies:
        about = each.about
        said = Text(each.what), Text(about.formula, "cyan"), Text(f"{about.cost}, state {about.state}", "dim")
        name = Text(each.name, "bold", no_wrap=True)
        table.add_row(name, Group(*said), yes(about.rows_sum_to_one), yes(about.data_dependent))
    console.print(table)
    console.print(Text("One of them on a screen: trilab explain attention n_head=2"))


def facts(strategy: Strategy, small: Aggregation) -> list[tuple[str, str | Text]]:
    """Label and value: what it says of itself, in words and in numbers, at the toy's size and at gpt.py's."""
    about = strategy.about
    n_embd = -(-GPT_EMBD // strategy.n_head) * strategy.n_head  # or the next that the heads divide
    with torch.random.fork_rng(devices=[]):
        large = strategy.build(n_embd, GPT_TIME)
    at_small, at_large = f"at T = {TIME}, C = {small.n_embd}", f"at T = {GPT_TIME}, C = {n_embd}"
    table = "made from the tokens" if about.data_dependent else "the same for every text"
    flops = [("FLOPs", UNSAID)]
    if small.flops_known:
        one, many = small.flops(TIME), large.flops(GPT_TIME)
        forward, training = many.forward / GPT_TIME, many.training / GPT_TIME
        flops = [
            ("FLOPs", f"{one.forward:,} forward, {one.training:,} with backward, {at_small}"),
            ("", f"{forward:,.0f} and {training:,.0f} a token {at_large}"),
        ]
    return [
        ("formula", Text(about.formula or UNSAID, "cyan")),
        ("cost", about.cost or UNSAID),
        ("state", about.state or UNSAID),
        ("", f"numbers: {small.state_size(TIME):,} {at_small}; {large.state_size(GPT_TIME):,} {at_large}"),
        ("rows sum to 1", yes(about.rows_sum_to_one)),
        ("table", table if small.has_weights else "none: no weighted sum"),
        ("parameters", f"{parameters(small):,} {at_small}; {parameters(large):,} {at_large}"),
        *flops,
        ("source", about.source or UNSAID),
    ]


def loop_source(cls: type[Aggregation]) -> str:
    """The text of its `loop`, without docstring."""
    source = textwrap.dedent(inspect.getsource(cls.loop))
    (function,) = ast.parse(source).body
    assert isinstance(function, ast.FunctionDef)
    lines = source.splitlines()
    if ast.get_docstring(function) is not None:
        said = function.body[0]
        del lines[said.lineno - 1 : said.end_lineno]
    return "\n".join(lines)


def yes(true: bool) -> str:
    """In a word."""
    return "yes" if true else "no"


def _grid(rows: Sequence[tuple[str, str | Text]]) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    for label, value in rows:
        grid.add_row(label, Text(value) if isinstance(value, str) else value)
    return grid


def _side_by_side(pictures: Sequence[Text], width: int) -> Table:
    """Or one below the other, where they are wider than the terminal."""
    gap = 3
    fits = sum(max(line.cell_len for line in picture.split()) + gap for picture in pictures) - gap <= width
    grid = Table.grid(padding=(0, gap, 0, 0))
    for row in [pictures] if fits else [[picture] for picture in pictures]:
        if grid.rows:
            grid.add_row()
        grid.add_row(*row)
    return grid


def _table(toy: Example, strategy: Strategy) -> list[Text]:
    """The first table in numbers on its colours, with the sums of its rows; none where there is none."""
    if toy.tables is None:
        return []
    matrix, count = toy.tables[0], len(toy.tables)
    several = f", {'head' if count == strategy.n_head else 'channel'} 0 of {count}" if count > 1 else ""
    numbers = [[f"{value:z.2f}" for value in row] for row in matrix.tolist()]
    sums = [f"{value:z.2f}" for value in matrix.sum(1).tolist()]
    width = 1 + max(len(number) for row in numbers for number in row)
    leaks, parts = future(matrix), shares(matrix)
    text = Text(no_wrap=True)
    text.append(f"table A[t, s]{several}\n", "bold")
    text.append("t\\s" + "".join(f"{s:>{width}}" for s in range(len(matrix))) + "     sum\n", "dim")
    for t, row in enumerate(numbers):
        text.append(f"{t:>3}", "dim")
        for s, number in enumerate(row):
            if s <= t:
                part = parts[t][s]
                text.append(f"{number:>{width}}", f"{'#000000' if abs(part) > 0.25 else '#ffffff'} on {colour(part)}")
            else:
                text.append(f"{number if leaks[t, s] else '·':>{width}}", "bold red" if leaks[t, s] else "dim")
        text.append(f"{sums[t]:>8}\n")
    text.rstrip()
    return [text]


def _influence(toy: Example) -> Text:
    title = Text(no_wrap=True).append("influence ‖∂y_t / ∂x_s‖\n", "bold")
    return title.append_text(draw(toy.influence))


def _recipe(strategy: Strategy, toy: Example) -> str:
    """The example as one would type it."""
    taken = inspect.signature(strategy.cls).parameters
    knobs = [f", {key}={value!r}" for key, value in strategy.make.keywords.items() if value != taken[key].default]
    made = f"{strategy.cls.__name__}({toy.aggregation.n_embd}, {TIME}{''.join(knobs)})"
    used = "agg.weights(x)[0, 0]" if toy.aggregation.has_weights else "agg(x)[0]"
    return f"torch.manual_seed({SEED}); x = torch.randn({', '.join(map(str, toy.x.shape))}); agg = {made}; {used}"


def _laws(strategy: Strategy, n_embd: int) -> list[tuple[str, str | Text]]:
    candidate = Candidate(strategy.name, {"alone": lambda _: strategy.build(n_embd, TIME)})
    every = [row.verdict for row in judged(candidate, inductor=False)]
    verdicts = [verdict for verdict in every if verdict.compared]
    idle = [verdict.law for verdict in every if not verdict.compared]
    nothing = [("", f"nothing to compare: {', '.join(idle)}")] if idle else []
    kept = [verdict.law for verdict in verdicts if verdict.passed]
    broken = [("", Text(f"fails {verdict}", "bold red")) for verdict in verdicts if not verdict.passed]
    return [("laws kept", f"{len(kept)} of {len(verdicts)}: {', '.join(kept)}"), *nothing, *broken]
