"""Strategies by layer: names and knobs in, sections that stand alone out."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from trilab.build import build_model
from trilab.config import read
from trilab.errors import BadInput

from .conftest import STRATEGIES, Outcome, exit_code
from .test_config import composed

Train = Callable[..., Outcome]
PATTERN = "model.agg_per_layer=[window,{window:{size:2}},attention]"


def test_names_by_layer_become_sections_with_their_knobs_and_this_model_s_heads() -> None:
    config = read(composed("model=gpt", "model.n_head=2", PATTERN))
    assert config.agg == [
        {"_target_": "trilab.agg.window.WindowMean", "size": 4},
        {"_target_": "trilab.agg.window.WindowMean", "size": 2},
        {**composed("model=gpt", "agg=attention")["agg"], "n_head": 2},
    ]
    assert config.strategy == config.name == "window+window+attention"


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_can_share_a_stack_with_attention(name: str) -> None:
    config = read(composed("model=gpt", f"model.agg_per_layer=[{name},attention]"))
    kinds = [type(block.agg).__module__ for block in build_model(config, 11).blocks]
    assert kinds == [f"trilab.agg.{kind}" for kind in (name, "attention", name)]


def test_a_class_of_the_user_s_own_is_a_layer_too() -> None:
    config = read(composed("model=gpt", "model.agg_per_layer=[{_target_:trilab.agg.none.Identity},attention]"))
    assert config.strategy == "none+attention"


def test_a_class_of_the_user_s_own_may_be_named_by_its_dotted_path() -> None:
    config = read(
        composed("model=gpt", "model.agg_per_layer=[trilab.agg.window.WindowMean,{trilab.agg.none.Identity:{}}]")
    )
    assert config.agg == [{"_target_": "trilab.agg.window.WindowMean"}, {"_target_": "trilab.agg.none.Identity"}]


def test_the_strategy_that_a_stack_does_not_use_is_left_out_of_what_makes_the_run() -> None:
    one, other = (composed("model=gpt", f"agg={name}", PATTERN) for name in ("softmax", "table"))
    assert one == other
    assert one["agg"] is None


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("[window,atention]", "model.agg_per_layer names atention, which is no strategy. There are: .*attention, "),
        ("window", r"model.agg_per_layer=window must be a list of strategies.*\[window,window,attention\]"),
        ("[]", r"model.agg_per_layer=\[\] must be a list of strategies"),
        ("[3]", r"model.agg_per_layer\[0\]=3 must be the name of a strategy"),
        ("[window,{window:3}]", r"model.agg_per_layer\[1\]=.* must be the name of a strategy, or one with knobs"),
    ],
)
def test_what_is_no_strategy_by_layer_is_refused_with_what_would_be_right(pattern: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        composed("model=gpt", f"model.agg_per_layer={pattern}")


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("[nope]", "model.agg_per_layer names nope, which is no strategy"),
        ("[{window:{sise:3}}]", "model.agg_per_layer[0].sise is not a key. Did you mean model.agg_per_layer[0].size?"),
        ("[none,none,none,none]", "model.agg_per_layer names 4 strategies, but model.n_layer=3"),
    ],
)
def test_a_stack_that_cannot_be_built_leaves_nothing(train: Train, pattern: str, said: str) -> None:
    done = train("model=gpt", f"model.agg_per_layer={pattern}")
    assert done.code == 2
    assert said in done.err
    assert not done.runs


def test_a_stack_is_trained_recorded_and_named_like_any_variant(train: Train) -> None:
    done = train("model=gpt", PATTERN)
    assert done.code == 0
    assert done.run.name.startswith("window_window_attention-seed1337-")
    assert done.summary["agg"] == "window+window+attention"
    assert [layer.get("size") for layer in done.config["model"]["agg_per_layer"]] == [4, 2, None]
    assert "Finished already" in train("model=gpt", "agg=table", PATTERN).out


def test_stacks_are_swept_and_told_apart_in_the_table(train: Train) -> None:
    stacks = "model.agg_per_layer=[none,softmax],[softmax,none],[{window:{size:2}}],[{window:{size:3}}]"
    done = train("-m", "model=gpt", stacks)
    assert done.code == 0
    for row in ("none+softmax ", "softmax+none ", "window size=2 ", "window size=3 "):
        assert f"\n{row}" in done.out


def test_strategies_of_the_user_s_own_conf_are_found_by_layer_too(
    tmp_path: Path, train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine/agg").mkdir(parents=True)
    (tmp_path / "mine/agg/wide.yaml").write_text("_target_: trilab.agg.window.WindowMean\nsize: ${model.n_layer}\n")
    done = train("model=gpt", f"hydra.searchpath=[file://{tmp_path}/mine]", "model.agg_per_layer=[none,wide]")
    assert done.code == 0
    assert done.config["model"]["agg_per_layer"][1] == {"_target_": "trilab.agg.window.WindowMean", "size": 3}


def test_text_is_written_from_a_stack(train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    from trilab.cli import main

    run = train("model=gpt", PATTERN).run
    monkeypatch.setattr(sys, "argv", ["trilab", "generate", str(run), "--tokens", "20"])
    assert exit_code(main) == 0
