"""`trilab check` as a user types it."""

import json
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


def test_a_strategy_gets_a_row_for_each_law_and_a_last_line_with_counts(check: Check) -> None:
    done = check("attention", "n_head=1", "none")
    assert done.code == 0, done.out
    head, *rows, last = done.out.splitlines()
    assert head.split() == ["strategy", "law", "worst", "allowed"]
    assert len(rows) == 2 * 12
    assert all(row.endswith("  ok") for row in rows)
    assert rows[0].startswith("attention n_head=1  shape ")
    assert rows[-1].startswith("none                state_dict ")
    assert last == "2 checked, 24 verdicts: 24 ok, 0 FAILS"


def test_a_leaking_class_of_the_current_folder_fails_with_where_it_leaks(check: Check) -> None:
    done = check("mine.Leak")
    assert done.code == 1
    (row,) = [line for line in done.out.splitlines() if "causality_perturbation" in line]
    assert " FAILS  " in row
    assert "moves with the inputs after" in row
    assert done.out.splitlines()[-1].endswith("5 FAILS")


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
    assert "  seed " in done.out
    assert json.loads(check("mine.Leak", "broken=true", "--json").out)[0]["worst"] is None


def test_a_stack_is_judged_as_a_whole_model(check: Check) -> None:
    done = check("[softmax,{window:{size:2}}]")
    assert done.code == 0, done.out
    assert done.out.splitlines()[-1] == "1 checked, 7 verdicts: 7 ok, 0 FAILS"
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
        (["[window"], "[window"),
        (["nowhere.Agg"], "agg._target_=nowhere.Agg cannot be imported"),
        (["pathlib.Path"], "agg._target_=pathlib.Path must be a subclass of trilab.agg.base.Aggregation"),
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
