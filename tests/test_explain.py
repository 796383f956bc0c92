"""`trilab explain`: one strategy on a screen, all of them in a table, on a page and in pictures."""

import io
import re
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from rich.console import Console

from trilab.agg.attention import SelfAttention
from trilab.agg.base import Aggregation
from trilab.cli import main
from trilab.colours import COLD, WARM
from trilab.explain.example import lecture_toy, redrawn
from trilab.explain.page import N_HEAD, documents
from trilab.explain.picture import LEAK, colour, svg
from trilab.explain.screen import loop_source, show
from trilab.explain.strategy import Strategy, every_strategy, parameters
from trilab.laws import causality_prefix, loop, shape, table, triangle

from .conftest import ROOT, STRATEGIES, Outcome, exit_code

Explain = Callable[..., Outcome]
PAGE = ROOT / "docs" / "strategies.md"

OWN = """
import torch
from trilab.agg.base import About, Aggregation

class Flat(Aggregation):
    '''A mean over all time.

    And a second paragraph.
    '''

    about = About(formula="A = 1 / T")

    def weights(self, x):
        return torch.full((1, 1, x.shape[1], x.shape[1]), 1 / x.shape[1], dtype=x.dtype)

class Other:
    def __init__(self, n_embd, block_size):
        pass

class Running(Aggregation):
    def mix(self, x, v):
        return v.cumsum(1)

class Looped(Running):
    def loop(self, x, v):
        return torch.stack([v[:, : t + 1].sum(1) for t in range(v.shape[1])], 1)
"""


@pytest.fixture(scope="session")
def strategies() -> dict[str, Strategy]:
    """All of them, with as many heads as on the page: composing takes most of the time."""
    return {each.name: each for each in every_strategy(n_head=N_HEAD)}


@pytest.fixture
def few_laws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Laws are tried in tests of their own."""
    from trilab import check

    monkeypatch.setattr(check, "LAWS", (shape, causality_prefix))
    monkeypatch.setattr(check, "CONSTRUCTION_LAWS", ())


@pytest.fixture
def explain(
    few_laws: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Explain:
    """In this process, piped, in a folder with a module own.py."""
    (tmp_path / "own.py").write_text(OWN, encoding="utf-8")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "own", raising=False)
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["trilab", "explain", *words])
        code = exit_code(main)
        said = capsys.readouterr()
        return Outcome(code, said.out, said.err, tmp_path)

    return run


def shown(strategy: Strategy, *, width: int = 80, colours: bool = False) -> str:
    file = io.StringIO()
    show(strategy, Console(file=file, width=width, color_system="truecolor" if colours else None))
    return file.getvalue()


def after(text: str, heading: str) -> list[str]:
    """The lines that follow the one with this heading."""
    lines = text.splitlines()
    return lines[next(i for i, line in enumerate(lines) if heading in line) + 1 :]


def alike(one: str, two: str) -> bool:
    """Whether two drawings differ in no more than the last bits of their colours."""
    parts = [list(ET.fromstring(text).iter()) for text in (one, two)]
    return len(parts[0]) == len(parts[1]) and all(_same(a, b) for a, b in zip(*parts, strict=True))


def _same(one: ET.Element, two: ET.Element) -> bool:
    kept = [{key: value for key, value in part.attrib.items() if key != "fill"} for part in (one, two)]
    fills = [bytes.fromhex(part.get("fill", "#").removeprefix("#")) for part in (one, two)]
    near = len(fills[0]) == len(fills[1]) and all(abs(a - b) <= 3 for a, b in zip(*fills, strict=True))
    return (one.tag, one.text, kept[0]) == (two.tag, two.text, kept[1]) and near


def test_the_page_and_its_pictures_are_what_the_command_writes_now(strategies: dict[str, Strategy]) -> None:
    for path, content in documents(PAGE, list(strategies.values())).items():
        found = path.read_text(encoding="utf-8")
        same = alike(content, found) if path.suffix == ".svg" else content == found
        assert same, f"{path} is old: trilab explain --page docs/strategies.md"


def test_every_strategy_and_no_other_has_a_row_and_a_picture() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert sorted(path.stem for path in (PAGE.parent / "strategies").glob("*")) == STRATEGIES
    for name in STRATEGIES:
        assert f'<img src="strategies/{name}.svg"' in page
        assert f"[`{name}`](../src/trilab/agg/{name}.py)" in page
        assert (ROOT / "src" / "trilab" / "agg" / f"{name}.py").is_file()
    assert page.count("<img ") == len(STRATEGIES)


def test_the_page_says_what_the_strategies_say(strategies: dict[str, Strategy]) -> None:
    page = PAGE.read_text(encoding="utf-8")
    for name, each in strategies.items():
        (row,) = (line for line in page.splitlines() if f"[`{name}`]" in line)
        count = parameters(each.make(384, 256))
        assert f"| `{each.about.formula}` | `{each.about.cost}` | `{each.about.state}` |" in row
        assert f" | {each.about.source} |" in row
        assert f"| {count:,} |" in row


def test_strategies_come_as_they_are_explained(strategies: dict[str, Strategy]) -> None:
    names = list(strategies)
    assert names[0] == "none"
    for earlier, later in [
        ("softmax", "sum"),  # means before sums
        ("sum", "ema"),  # given before learned
        ("table", "conv"),
        ("long_conv", "attention"),  # learned before made from the tokens
        ("attention", "gru"),  # the whole past before a summary of it
        ("alibi", "linear_attention"),
    ]:
        assert names.index(earlier) < names.index(later)


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_screen_shows_formula_figures_loop_and_picture(
    name: str, strategies: dict[str, Strategy], few_laws: None
) -> None:
    each = strategies[name]
    screen = shown(each)
    words = " ".join(screen.split())
    for said in (each.what, each.about.formula, each.about.cost, each.about.state, each.about.source):
        assert " ".join(said.split()) in words
    toy = lecture_toy(each).aggregation
    large = each.make(384, 256)
    small = f"at T = 8, C = {toy.n_embd}"
    assert f"numbers: {toy.state_size(8):,} {small}; {large.state_size(256):,} at T = 256, C = 384" in words
    assert f"parameters {parameters(toy):,} {small}; {parameters(large):,} at T = 256, C = 384" in words
    assert f"FLOPs {toy.flops(8).forward:,} forward, {toy.flops(8).training:,} with backward" in words
    per_token = [flops / 256 for flops in (large.flops(256).forward, large.flops(256).training)]
    assert "{:,.0f} and {:,.0f} a token".format(*per_token) in words
    assert loop_source(type(toy)) in screen
    assert "laws kept 2 of 2: shape, causality_prefix" in words
    assert "influence" in screen
    assert "█" in screen
    assert ("table A[t, s]" in screen) == (name != "gru")
    code = screen.index("torch.manual_seed(1337)"), screen.index("laws kept")  # never wrapped
    assert all(len(line) <= 80 for line in (screen[: code[0]] + screen[code[1] :]).splitlines())


def test_the_line_below_the_table_gives_the_table(explain: Explain) -> None:
    done = explain("agg=attention", "agg.n_head=2", "scaled=false")
    (recipe,) = (line for line in done.out.splitlines() if line.startswith("torch.manual_seed(1337)"))
    *statements, table = recipe.split("; ")
    names = {"torch": torch, "SelfAttention": SelfAttention}
    exec("; ".join(statements), names)
    weights = eval(table, names)
    rows = after(done.out, "table A[t, s], head 0 of 2")[1:9]
    for t, row in enumerate(rows):
        place, *cells = row.split()[:10]
        assert place == str(t)
        assert cells[: t + 1] == [f"{weight:.2f}" for weight in weights[t, : t + 1].tolist()]
        assert cells[t + 1 :] == [*["·"] * (7 - t), "1.00"]


def test_pictures_stand_below_one_another_where_the_terminal_is_narrow(
    strategies: dict[str, Strategy], few_laws: None
) -> None:
    wide, narrow = (shown(strategies["softmax"], width=width) for width in (80, 60))
    assert "influence" in next(line for line in wide.splitlines() if "table A[t, s]" in line)
    assert "influence" not in next(line for line in narrow.splitlines() if "table A[t, s]" in line)
    assert after(narrow, "influence")[0].split() == ["input", *map(str, range(8))]


def test_colours_add_nothing_that_plain_text_does_not_say(strategies: dict[str, Strategy], few_laws: None) -> None:
    coloured = shown(strategies["delta"], colours=True)
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == shown(strategies["delta"])


def test_what_has_no_table_is_drawn_as_its_influence_map(explain: Explain, strategies: dict[str, Strategy]) -> None:
    done = explain("gru", "--svg", "gru.svg")
    assert done.code == 0
    drawing = (done.outputs / "gru.svg").read_text(encoding="utf-8")
    assert "how much output t moves with token s" in drawing
    assert drawing.count("<path") == 1 + 36  # the triangle behind, and its cells
    example = redrawn(strategies["gru"], n_embd=8)
    assert example.tables is None
    assert torch.equal(example.picture, example.influence)
    assert bool((example.picture.tril() == example.picture).all())
    assert bool((example.picture.diagonal() > 0).all())


def test_a_class_of_the_users_own_is_explained_and_what_is_wrong_with_it_is_seen(explain: Explain) -> None:
    done = explain("own.Flat", "--svg", "own.svg")
    assert done.code == 0, done.err
    assert done.out.splitlines()[:2] == ["own.Flat", "A mean over all time."]
    assert "A = 1 / T" in done.out
    assert "not stated" in done.out  # what it does not say of itself
    assert loop_source(Aggregation) in done.out
    assert '"""' not in loop_source(Aggregation)
    assert after(done.out, "table A[t, s]")[1].split()[:9] == ["0", *["0.12"] * 8]
    assert "XX moves with a later input" in done.out
    assert "laws kept  1 of 2: shape" in done.out
    assert "fails causality_prefix: " in done.out
    drawing = (done.outputs / "own.svg").read_text(encoding="utf-8")
    assert drawing.count(LEAK) == 28


def test_a_class_with_neither_table_nor_loop_shows_none_and_keeps_no_law_about_them(
    explain: Explain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trilab.check.LAWS", (shape, table, loop, triangle))
    bare = explain("own.Running")
    assert bare.code == 0, bare.err
    assert "The same as a loop" not in bare.out
    assert after(bare.out, "laws kept  1 of 1: shape")[0].strip() == "nothing to compare: table, loop, triangle"
    looped = explain("own.Looped")
    assert "The same as a loop" in looped.out
    assert after(looped.out, "laws kept  2 of 2: shape, loop")[0].strip() == "nothing to compare: table, triangle"


@pytest.mark.parametrize("words", [["none", "--svg", "no/such/none.svg"], ["--page", "no/such/page.md"]])
def test_no_folder_is_made_for_a_file_that_goes_astray(explain: Explain, words: list[str]) -> None:
    done = explain(*words)
    assert done.code == 2
    assert f"{words[-1]} cannot be written: no/such is no folder" in done.err
    assert not (done.outputs / "no").exists()


def test_without_a_name_all_strategies_stand_in_one_table(
    explain: Explain, strategies: dict[str, Strategy], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trilab.explain.every_strategy", lambda: list(strategies.values()))
    done = explain()
    assert done.code == 0
    lines = done.out.splitlines()
    assert [line.split()[0] for line in lines[3:] if line[:1].strip()][:-1] == list(strategies)
    assert all(len(line) <= 80 for line in lines)
    assert "A = softmax(mask(Q Kᵀ / √(C / H)))" in done.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["atention"], "atention is no strategy. Did you mean attention?"),
        (["attention", "n_heads=2"], "agg.n_heads is not a key. Did you mean agg.n_head?"),
        (["attention", "n_head=0"], "agg.n_head=0 must be at least 1."),
        (["window", "attention"], "window attention: one strategy is explained at a time"),
        (["n_head=2"], "n_head=2: one strategy is explained at a time"),
        (["own.Nothing"], "agg._target_=own.Nothing cannot be found"),
        (["own.Other"], "own.Other must be a subclass of trilab.agg.base.Aggregation."),
        (["pathlib.Path"], "agg._target_=pathlib.Path must "),
        (["none", "--svg", "own.py/none.svg"], "own.py/none.svg cannot be written: "),
        (["--svg", "a.svg"], "--svg a.svg needs a strategy"),
        (["none", "--page", "a.md"], "--page a.md writes of every strategy"),
    ],
)
def test_what_cannot_be_explained_exits_with_2_and_says_why(explain: Explain, words: list[str], message: str) -> None:
    done = explain(*words)
    assert done.code == 2
    assert message in done.err
    assert done.out == ""


def test_a_picture_is_well_formed_and_says_what_it_is() -> None:
    drawing = ET.fromstring(svg(torch.eye(4), "a < b & c"))
    assert drawing.tag == "{http://www.w3.org/2000/svg}svg"
    assert drawing.findtext("{http://www.w3.org/2000/svg}title") == "a < b & c"
    assert len(drawing.findall("{http://www.w3.org/2000/svg}path")) == 1 + 10


def test_colours_tell_sign_and_size() -> None:
    assert WARM[0].tolist() == COLD[0].tolist()
    assert [colour(share) for share in (0.0, 1.0, -1.0)] == ["#0d0834", "#fcffa4", "#d7faff"]
    for sign in (1, -1):
        brightness = [sum(bytes.fromhex(colour(sign * i / 20)[1:])) for i in range(21)]
        assert brightness == sorted(brightness)
