"""`trilab check` as a user types it."""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from trilab.cli import main

from .conftest import STRATEGIES, Outcome, exit_code

Check = Callable[..., Outcome]

LEAK = """
import torch
from trilab.agg.base import Aggregation

class Leak(Aggregation):
    def __init__(self, n_embd, block_size, *, broken: bool = False):
        super().__init__(n_embd, block_size)
        self.broken = broken

    def weights(self, x):
        table = torch.ones(x.shape[1], x.shape[1], dtype=torch.promote_types(x.dtype, torch.float32))
        if self.broken:
            raise RuntimeError("not today\\nat all")
        return table[None, None] / x.shape[1]

class Other:
    def __init__(self, n_embd, block_size):
        pass

class Running(Aggregation):
    def mix(self, x, v):
        return v.cumsum(1)
"""


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Check:
    """In this process, in a folder with a module mine.py; `compiled`, the slow law, is left to its own test."""
    from trilab import check
    from trilab.laws import LAWS, compiled

    monkeypatch.setattr(check, "LAWS", tuple(law for law in LAWS if law is not compiled))
    (tmp_path / "mine.py").write_text(LEAK, encoding="utf-8")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["trilab", "check", "--n-embd", "4", "--block-size", "5", *words])
        code = exit_code(main)
        said = capsys.readouterr()
        return Outcome(code, said.out, said.err, tmp_path)

    return run


def judging() -> list[str]:
    """The laws of this test's `check`."""
    from trilab import check

    return [law.__name__ for law in (*check.LAWS, *check.CONSTRUCTION_LAWS)]


def test_a_strategy_gets_a_row_for_each_law_and_a_last_line_with_counts(check: Check) -> None:
    done = check("attention", "n_head=1", "none")
    assert done.code == 0, done.out
    head, *rows, last = done.out.splitlines()
    assert head.split() == ["strategy", "law", "worst", "allowed"]
    assert len(rows) == 2 * len(judging())
    assert all(row.endswith("  ok") for row in rows)
    assert rows[0].startswith("attention n_head=1  shape ")
    assert rows[-1].startswith("none                state_dict ")
    assert last == f"2 checked, {len(rows)} verdicts: {len(rows)} ok, 0 FAILS"


def test_a_leaking_class_of_the_current_folder_fails_with_where_it_leaks(check: Check) -> None:
    done = check("mine.Leak")
    assert done.code == 1
    (row,) = [line for line in done.out.splitlines() if "causality_perturbation" in line]
    assert " FAILS  " in row
    assert "moves with the inputs after" in row
    assert done.out.splitlines()[-1].endswith(f", {done.out.count(' FAILS  ')} FAILS")


def test_json_is_all_that_is_printed_and_holds_the_facts(check: Check) -> None:
    done = check("mine.Leak", "--json")
    assert done.code == 1
    rows = {row["law"]: row for row in json.loads(done.out)}
    leak = rows["causality_perturbation"]
    assert leak["strategy"] == "mine.Leak"
    assert leak["in"] in ("alone", "gpt", "flat")
    assert not leak["passed"]
    assert leak["worst"] > leak["allowed"]
    assert leak["position"] == leak["cut"] or leak["position"] < leak["cut"]
    assert leak["setting"]["time"] == 5
    assert rows["shape"]["passed"]


def test_what_a_class_raises_is_told_in_its_row_and_the_other_laws_go_on(check: Check) -> None:
    done = check("mine.Leak", "broken=true")
    assert done.code == 1
    assert "FAILS  alone: raises RuntimeError: not today\n" in done.out
    assert done.out.count("not today") == 1
    assert done.out.count(": raises as above\n") == done.out.count(" FAILS  ") - 1 > 5
    assert "  seed " in done.out
    rows = json.loads(check("mine.Leak", "broken=true", "--json").out)
    assert rows[0]["worst"] is None
    assert [row["what"] for row in rows[:2]] == ["raises RuntimeError: not today"] * 2


def test_a_law_with_nothing_to_compare_says_so_and_is_not_counted_as_kept(check: Check) -> None:
    done = check("mine.Running")
    assert done.code == 0, done.out
    rows = {line.split()[1]: line.split()[2:] for line in done.out.splitlines()[1:-1]}
    idle = {law for law, said in rows.items() if said == ["–", "–", "nothing", "to", "compare"]}
    assert idle == {"table", "loop", "triangle"}
    assert all(said[-1] == "ok" for law, said in rows.items() if law not in idle)
    ok = len(judging()) - 3
    assert done.out.splitlines()[-1] == f"1 checked, {ok + 3} verdicts: {ok} ok, 0 FAILS, 3 with nothing to compare"
    told = json.loads(check("mine.Running", "--json").out)
    assert {row["law"] for row in told if not row["compared"]} == idle


def test_one_channel_is_judged_in_flat_models_only_where_no_norm_makes_it_constant(check: Check) -> None:
    done = check("cumsum", "--n-embd", "1", "--json")
    assert done.code == 0, done.out
    assert {row["in"] for row in json.loads(done.out)} <= {"alone", "flat"}


def test_words_of_train_name_the_same_strategy(check: Check) -> None:
    from trilab.check import grouped

    assert grouped(["agg=attention", "agg.n_head=1", "none"]) == [("attention", ["n_head=1"]), ("none", [])]
    assert check("agg=none").out.splitlines()[1].startswith("none ")


def test_a_stack_is_judged_as_a_whole_model(check: Check) -> None:
    done = check("[softmax,{window:{size:2}}]")
    assert done.code == 0, done.out
    *_, last = done.out.splitlines()
    assert re.fullmatch(r"1 checked, (\d) verdicts: \1 ok, 0 FAILS", last)
    leaking = check("[softmax,{_target_: mine.Leak}]")
    assert leaking.code == 1
    assert "gpt: output" in leaking.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["atention"], "atention is no strategy. Did you mean attention? There are: a"),
        (["n_head=2"], "n_head=2 is a knob of no strategy"),
        (["window", "sze=2"], "agg.sze is not a key. Did you mean agg.size?"),
        (["window", "size=0"], "agg.size=0"),
        (["attention", "n_head=3"], "model.n_embd=4 is not divisible by agg.n_head=3"),
        (["[window]", "size=2"], "size=2 follows a stack"),
        (["[windw,softmax]"], "model.agg_per_layer names windw, which is no strategy"),
        (["[window"], "[window is no stack: its brackets do not match"),
        (["[window,"], "[window, is no stack: its brackets do not match"),
        ([""], "'' is no strategy"),
        (["./bad.py"], "./bad.py is no dotted path of a class"),
        (["--n-embd", "1", "[none]"], "--n-embd 1 with [none]: a stack is judged in model=gpt"),
        (["agg.n_head=2"], "agg.n_head=2 is a knob of no strategy"),
        (["nowhere.Agg"], "agg._target_=nowhere.Agg cannot be imported"),
        (["mine.Other"], "agg._target_=mine.Other must be a subclass of trilab.agg.base.Aggregation"),
        (["pathlib.Path"], "agg._target_=pathlib.Path must "),
        (["--n-embd", "0"], "model.n_embd=0 must be at least 1"),
        (["--block-size", "0"], "data.block_size=0 must be at least 1"),
    ],
)
def test_what_cannot_be_judged_is_refused_in_one_line(check: Check, words: list[str], said: str) -> None:
    done = check(*words)
    assert done.code == 2
    assert said in done.err
    assert len(done.err.splitlines()) == 1
    assert done.out == ""


def test_no_words_mean_every_strategy() -> None:
    from trilab.check import grouped

    assert grouped([]) == [(name, []) for name in STRATEGIES]
