"""The composed YAML as typed values: what is taken, what is refused, and with which words."""

import copy
import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import hydra
import pytest

from trilab.agg.base import Aggregation
from trilab.compose import plain
from trilab.config import Config, bind, load, read, save, strategies
from trilab.errors import BadInput

from .conftest import ROOT

CHOICES = [
    f"{group.name}={path.stem}"
    for group in sorted((ROOT / "conf").iterdir())
    if group.is_dir() and group.name not in ("hydra", "experiment", "agg", "model")  # the last two train in test_launch
    for path in sorted(group.glob("*.yaml"))
]
EXPERIMENTS = [
    f"experiment={path.relative_to(ROOT / 'conf' / 'experiment').with_suffix('')}"
    for path in sorted((ROOT / "conf" / "experiment").rglob("*.yaml"))
]


def composed(*overrides: str) -> dict[str, Any]:
    """What Hydra makes of conf/ and these overrides: nested plain values."""
    with hydra.initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        return plain(hydra.compose("train", list(overrides)))


@pytest.fixture(scope="module")
def default() -> dict[str, Any]:
    return composed()


def changed(tree: Mapping[str, Any], **keys: Any) -> dict[str, Any]:
    """The tree with some of its keys set; `data__block_size` is data.block_size."""
    found = copy.deepcopy(dict(tree))
    for name, value in keys.items():
        section, _, key = name.partition("__")
        if key:
            found[section][key] = value
        else:
            found[section] = value
    return found


def refused(tree: Mapping[str, Any]) -> str:
    with pytest.raises(BadInput) as caught:
        read(tree)
    return str(caught.value)


@pytest.mark.parametrize("choice", [*CHOICES, *EXPERIMENTS])
def test_every_yaml_composes_and_its_classes_take_its_knobs(choice: str) -> None:
    given = [choice, "data.path=x"] if choice == "data=file" else [choice]
    config = read(composed(*given))
    strategies(config)
    bind(config.model, "model", given=("vocab_size", "block_size", "make_agg", "seed"))
    bind(config.optim, "optim")()
    bind(config.data.source, "data")


def test_the_sections_come_typed_and_the_source_s_own_keys_apart(default: dict[str, Any]) -> None:
    config = read(default)
    assert (config.seed, config.data.block_size, config.trainer.max_steps) == (1337, 8, 3000)
    assert config.data.source == {
        "_target_": "trilab.corpora.tiny_shakespeare.read",
        "path": "data/tiny_shakespeare.txt",
    }
    assert config.tree == default


@pytest.mark.parametrize(
    ("key", "value", "kept"),
    [
        ("data__val_share", 1, 1.0),
        ("data__val_share", 0.25, 0.25),
        ("seed", 0, 0),
        ("seed", 3.0, 3),
        ("seed", 2**63 - 1, 2**63 - 1),
        ("label", None, None),
        ("label", "a", "a"),
        ("label", 3, "3"),
        ("ckpt", None, None),
        ("force", True, True),
        ("experiment_name", 2024, "2024"),
        ("trainer__precision", 16, "16"),
        ("trainer__devices", 4.0, 4),
    ],
)
def test_a_value_is_taken_as_its_type_where_nothing_is_lost(
    default: dict[str, Any], key: str, value: Any, kept: Any
) -> None:
    found: Any = read(changed(default, **{key: value}))
    for name in key.split("__"):
        found = getattr(found, name)
    assert found == kept
    assert type(found) is type(kept)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("seed", 1.5, "seed=1.5 must be a whole number"),
        ("seed", True, "seed=True must be a whole number"),
        ("seed", "1", "seed='1' must be a whole number"),
        ("seed", None, "seed=None must be a whole number"),
        ("seed", [1], "seed=[1] must be a whole number"),
        ("seed", float("nan"), "seed=nan must be a whole number"),
        ("seed", -1, "seed=-1 must lie between 0"),
        ("seed", 2**63, f"seed={2**63} must lie between 0"),
        ("force", 1, "force=1 must be true or false"),
        ("force", "yes", "force='yes' must be true or false"),
        ("label", True, "label=True must be text or null"),
        ("data__val_share", True, "data.val_share=True must be a number"),
        ("data__val_share", "0.1", "data.val_share='0.1' must be a number"),
        ("data__block_size", 8.5, "data.block_size=8.5 must be a whole number"),
        ("data__block_size", 0, "data.block_size=0 must be at least 1"),
        ("trainer__val_every", 0, "trainer.val_every=0 must be at least 1"),
        ("trainer__log_every", -1, "trainer.log_every=-1 must be at least 1"),
        ("trainer__checkpoint_every", 0, "trainer.checkpoint_every=0 must be at least 1"),
        ("trainer__num_nodes", 0, "trainer.num_nodes=0 must be at least 1"),
        ("data__val_chars", 0, "data.val_chars=0 must be at least 1"),
        ("trainer__timeout", 10**30, f"trainer.timeout={10**30} must be at most 2,147,483,647"),
        ("threads", 1025, "threads=1025 must be at most 1,024"),
        ("callbacks__sample_chars", -1, "callbacks.sample_chars=-1 must be 0 or more"),
        ("callbacks__progress", "bar", "callbacks.progress='bar' must be true or false"),
        ("logger__name", "csv", "logger.name=csv is not known: wandb, tensorboard, mlflow or none"),
        ("logger__mode", "on", "logger.mode=on is not known: auto, online or offline"),
        ("experiment_name", "a/b", "experiment_name='a/b' names a folder"),
        ("experiment_name", "..", "experiment_name='..' names a folder"),
        ("experiment_name", "", "experiment_name='' names a folder"),
        ("experiment_name", "a=b", "experiment_name='a=b' names a folder"),
        ("experiment_name", "???", "experiment_name is missing; set it with experiment_name=…"),
        ("data__path", "???", "data.path is missing; set it with data.path=…"),
        ("agg", "softmax", "agg='softmax' must be"),
        ("trainer", "cpu", "trainer='cpu' must be a section with keys; choose one with trainer=…"),
        ("data", None, "data=None must be a section"),
    ],
)
def test_a_wrong_value_is_refused_by_its_key_with_what_would_be_right(
    default: dict[str, Any], key: str, value: Any, said: str
) -> None:
    assert said in refused(changed(default, **{key: value}))


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("sed", "sed is not a key. Did you mean seed? The top level has: agg, callbacks,"),
        ("trainer__max_step", "trainer.max_step is not a key. Did you mean trainer.max_steps? trainer has: accel"),
        ("logger__tags", "logger.tags is not a key. logger has: entity, mode, name, project"),
        ("callbacks__sampel_chars", "Did you mean callbacks.sample_chars?"),
        ("paths__output", "Did you mean paths.outputs?"),
        ("xyzzy", "xyzzy is not a key. The top level has"),
    ],
)
def test_an_unknown_key_is_refused_with_the_one_meant_and_all_there_are(
    default: dict[str, Any], key: str, said: str
) -> None:
    assert said in refused(changed(default, **{key: 1}))


def test_the_saved_tree_is_no_key_of_the_user_s(default: dict[str, Any]) -> None:
    assert "tree" not in refused(changed(default, xyzzy=1))


@pytest.mark.parametrize("section", ["", "data", "trainer", "paths"])
def test_a_missing_key_is_named(default: dict[str, Any], section: str) -> None:
    tree = copy.deepcopy(default)
    place = tree[section] if section else tree
    key = next(
        name for name in reversed(place) if not isinstance(place[name], dict) and name not in ("_target_", "path")
    )
    del place[key]
    name = f"{section}.{key}" if section else key
    assert refused(tree) == f"{name} is missing; set it with {name}=…."


def test_what_is_read_is_not_touched(default: dict[str, Any]) -> None:
    before = json.dumps(default)
    read(default)
    assert json.dumps(default) == before


def test_a_saved_config_is_read_back_the_same(default: dict[str, Any], tmp_path: Path) -> None:
    config = read(changed(default, label="é 漢 = /", optim__eps=1e-8, data__val_share=1 / 3))
    save(config, tmp_path / "config.yaml")
    assert load(tmp_path / "config.yaml") == config
    assert "é 漢" in (tmp_path / "config.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("label", "target", "name", "strategy"),
    [
        (None, "trilab.agg.softmax.SoftmaxMean", "softmax", "softmax"),
        ("mine", "trilab.agg.softmax.SoftmaxMean", "mine", "softmax"),
        (None, "my_pkg.deep.MyAgg", "MyAgg", "MyAgg"),
        ("", "my_pkg.MyAgg", "MyAgg", "MyAgg"),
    ],
)
def test_a_run_is_called_by_its_label_or_its_strategy(
    default: dict[str, Any], label: str | None, target: str, name: str, strategy: str
) -> None:
    config = read(changed(default, label=label, agg___target_=target))
    assert (config.name, config.strategy) == (name, strategy)


FOREIGN = """
class Knobs:
    def __init__(self, n_embd: int, block_size: int, *, size: int, scale: float = 1.0, name: str | None = None,
                 flag: bool = False, steps: list[int] = [], free=None) -> None:
        self.got = {k: v for k, v in locals().items() if k != "self"}

class Swallows:
    def __init__(self, n_embd: int, *args: int, size: int = 1, **kwargs: int) -> None:
        pass

def source(path: str, lines: int = 3) -> tuple[str, int]:
    return path, lines

nothing = 3
"""


@pytest.fixture
def foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module in the folder that the command is launched from."""
    name = f"foreign_{abs(hash(tmp_path))}"
    (tmp_path / f"{name}.py").write_text(FOREIGN)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    monkeypatch.chdir(tmp_path)
    return name


def unbound(section: Mapping[str, Any], given: tuple[str, ...] = ("n_embd", "block_size")) -> str:
    with pytest.raises(BadInput) as caught:
        bind(section, "agg", given=given)
    return str(caught.value)


def test_a_class_in_the_launch_folder_is_found_and_gets_its_knobs_typed(foreign: str) -> None:
    section = {"_target_": f"{foreign}.Knobs", "size": 3.0, "scale": 2, "name": 7, "steps": [1], "free": {"a": 1}}
    got = bind(section, "agg", given=("n_embd", "block_size"))(4, 8).got
    wanted = {"size": 3, "scale": 2.0, "name": "7", "steps": [1], "free": {"a": 1}, "flag": False}
    assert got == {"n_embd": 4, "block_size": 8, **wanted}
    assert [type(got[key]) for key in ("size", "scale", "name")] == [int, float, str]


def test_a_function_is_bound_like_a_class(foreign: str) -> None:
    assert bind({"_target_": f"{foreign}.source", "path": "x"}, "data")() == ("x", 3)


@pytest.mark.parametrize(
    ("knobs", "said"),
    [
        ({}, "Knobs needs agg.size; set it with agg.size=…"),
        ({"size": 1, "n_embd": 4}, "agg.n_embd is not a key."),
        ({"size": 1, "block_size": 4}, "agg.block_size is not a key."),
        ({"sise": 1}, "agg.sise is not a key. Did you mean agg.size?"),
        ({"size": 1, "zzz": 1}, "Knobs takes: flag, free, name, scale, size, steps."),
        ({"size": 1.5}, "agg.size=1.5 must be a whole number"),
        ({"size": True}, "agg.size=True must be a whole number"),
        ({"size": 2**63}, f"agg.size={2**63} must lie between -2^63 and 2^63"),
        ({"size": -(10**30)}, f"agg.size={-(10**30)} must lie between -2^63 and 2^63"),
        ({"size": math.inf}, "agg.size=inf must be a whole number"),
        ({"size": 1, "scale": 10**400}, f"agg.scale={10**400} must be a number"),
        ({"size": 1, "flag": 1}, "agg.flag=1 must be true or false"),
        ({"size": 1, "scale": None}, "agg.scale=None must be a number"),
        ({"size": 1, "name": False}, "agg.name=False must be text or null"),
        ({"size": 1, "steps": 3}, "agg.steps=3 must be list"),
    ],
)
def test_a_knob_that_the_signature_does_not_take_is_refused(foreign: str, knobs: dict[str, Any], said: str) -> None:
    assert said in unbound({"_target_": f"{foreign}.Knobs", **knobs})


def test_what_a_signature_swallows_is_no_knob_and_not_missing(foreign: str) -> None:
    section = {"_target_": f"{foreign}.Swallows"}
    bind(section, "agg", given=("n_embd",))
    assert "takes: size." in unbound({**section, "kwargs": 1}, ("n_embd",))
    assert "takes: size." in unbound({**section, "other": 1}, ("n_embd",))


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("{foreign}.Nope", "cannot be found"),
        ("{foreign}_.Knobs", "cannot be imported"),
        ("{foreign}.nothing", "must be a dotted path to a class or function"),
        ("Knobs", "must be a dotted path to a class or function"),
        ("", "must be a dotted path to a class or function"),
    ],
)
def test_a_path_to_nothing_callable_is_refused_with_the_path(foreign: str, target: str, said: str) -> None:
    path = target.format(foreign=foreign)
    message = unbound({"_target_": path})
    assert message.startswith(f"agg._target_={path} ")
    assert said in message


def test_a_section_without_a_target_says_where_one_stands() -> None:
    assert "agg has no _target_" in unbound({"size": 1})


def test_a_config_is_frozen(default: dict[str, Any]) -> None:
    config: Any = read(default)
    assert isinstance(config, Config)
    with pytest.raises(AttributeError):
        config.seed = 1


class TakesAnything(Aggregation):
    def __init__(self, **knobs: Any) -> None:
        super().__init__(4, 8)


def test_a_class_that_does_not_take_the_sizes_is_refused_with_what_it_lacks() -> None:
    section = {"_target_": f"{__name__}.TakesAnything"}
    with pytest.raises(BadInput, match="TakesAnything must take n_embd, block_size and then its own knobs"):
        bind(section, "agg", given=("n_embd", "block_size"))
