"""A model from a checkpoint of whatever origin: what its config makes is what its weights are, and ours."""

import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import torch

from trilab.build import build_model
from trilab.checkpoint import describe
from trilab.config import read
from trilab.errors import BadInput
from trilab.trained import load_trained

from .conftest import STRATEGIES, Outcome
from .hostile import BOMBS, CODE, FOREIGN
from .test_config import composed

CHARACTERS = "\n abcdefghij"
SMALL = ("data=file", "data.path=text.txt", "model=gpt", "model.n_layer=2", "model.n_embd=8", "model.n_head=2")


@lru_cache
def tree(*overrides: str) -> dict[str, Any]:
    return composed(*SMALL, *overrides)


def content(config: Mapping[str, Any], made: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A checkpoint that says it is of `config`, with the weights of `made`."""
    model = build_model(read(made or config), len(CHARACTERS))
    weights = {f"model.{name}": weight for name, weight in model.state_dict().items()}
    best = {"val_loss": 2.5, "step": 2}
    return {"state_dict": weights, "trilab": describe(config, CHARACTERS) | {"step": 2, "best": best}}


def refused(path: Path) -> str:
    with pytest.raises(BadInput) as caught:
        load_trained(path)
    line = str(caught.value)
    assert line.startswith(f"ckpt={path}")
    assert line.isprintable()
    assert len(line) < 600 + len(str(path))
    return line


def changed(config: Mapping[str, Any], where: str, value: Any) -> dict[str, Any]:
    """The tree with the key of that dotted name set."""
    first, _, rest = where.partition(".")
    return {**config, first: changed(config.get(first, {}), rest, value) if rest else value}


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_s_checkpoint_gives_the_model_that_was_saved(tmp_path: Path, name: str) -> None:
    config = tree(f"agg={name}")
    torch.save(content(config), tmp_path / "x.ckpt")
    trained = load_trained(tmp_path / "x.ckpt")
    saved = build_model(read(config), len(CHARACTERS)).eval()
    assert not trained.model.training
    assert trained.vocabulary.characters == CHARACTERS
    tokens = torch.arange(8)[None]
    assert torch.equal(trained.model(tokens), saved(tokens))


@pytest.mark.parametrize(
    ("where", "value"),
    [
        ("agg._target_", "foreign.Agg"),
        ("agg._target_", "foreign"),
        ("agg._target_", "os.system"),
        ("agg._target_", "trilab.agg.foreign"),
        ("agg._target_", "trilab.agg..foreign.Agg"),
        ("agg._target_", "trilab.agg.attention.SelfAttention.foreign"),
        ("agg._target_", "trilab.launch.main"),
        ("agg._target_", "trilab.model.LanguageModel"),
        ("agg._target_", "trilab.agg.attention.nn"),
        ("agg._target_", "trilab.agg.attention\nforeign.Agg"),
        ("agg._target_", ["foreign.Agg"]),
        ("agg._target_", None),
        ("agg.more._target_", "trilab.agg.attention.SelfAttention"),
        ("model._target_", "foreign.Model"),
        ("model._target_", "trilab.model.cycle"),
        ("model.agg_per_layer", [{"_target_": "foreign.Agg"}]),
        ("model.agg_per_layer", [{"_target_": "trilab.agg.none.Identity"}, {"_target_": "foreign.Agg"}]),
        ("optim._target_", "foreign.Optim"),
        ("optim._target_", "trilab.optim.adamw"),
        ("data._target_", "foreign.read"),
        ("data._target_", "trilab.corpora.file.shlex"),
        ("trainer._target_", "foreign.Trainer"),
        ("more", {"_target_": "foreign.More"}),
        ("more", [[{"deep": {"_target_": "foreign.More"}}]]),
    ],
)
def test_code_that_is_not_ours_or_not_meant_for_its_place_is_refused_and_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, value: Any
) -> None:
    (tmp_path / "foreign.py").write_text(f"open({str(tmp_path / 'canary')!r}, 'w').close()\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    config = tree("agg=attention")
    torch.save(content(changed(config, where, value), config), tmp_path / "x.ckpt")
    refused(tmp_path / "x.ckpt")
    assert not (tmp_path / "canary").exists()
    assert "foreign" not in sys.modules


FOREIGN_AGG = """
from trilab.agg.none import Identity

class Agg(Identity):
    pass
"""


def test_the_refusal_names_the_class_and_what_trust_does_and_trust_loads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_own_agg.py").write_text(FOREIGN_AGG)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    config = tree("agg=none")
    torch.save(content(changed(config, "agg._target_", "my_own_agg.Agg"), config), tmp_path / "x.ckpt")
    said = refused(tmp_path / "x.ckpt")
    assert "agg._target_='my_own_agg.Agg'" in said
    assert "add --trust" in said
    trained = load_trained(tmp_path / "x.ckpt", trust=True)
    assert trained.config.strategy == "Agg"


@pytest.mark.parametrize(
    ("where", "value", "said"),
    [
        ("model.n_embd", 10**5, "has the shape (12, 8), the model of its config (12, 100000)"),
        ("model.n_embd", 10**9, "cannot be loaded"),
        ("model.n_embd", 16, "has the shape"),
        ("model.n_layer", 3, "it has no"),
        ("model.n_layer", 1, "it has 'blocks.1."),
        ("model.n_layer", 10**12, "is more than its"),
        ("model.n_head", 10**12, "is not divisible"),
        ("model.mlp_width", 10**15, "has the shape"),
        ("model.mlp_width", 10**25, "cannot be loaded"),
        ("data.block_size", 10**9, "has the shape (8, 8), the model of its config (1000000000, 8)"),
        ("data.block_size", 10**30, "cannot be loaded"),
        ("data.block_size", "8 or so", "must be a whole number"),
        ("model.n_layer", "2", "must be a whole number"),
        ("agg.n_head", 3, "is not divisible"),
        ("agg.nope", 1, "agg.nope is not a key"),
        ("nope", 1, "nope is not a key"),
        ("agg", [1], "must be a section"),
        ("model.agg_per_layer", [1], "makes no model"),
        ("model.agg_per_layer", 1, "must be"),
        ("trainer", None, "must be a section"),
    ],
)
def test_a_config_that_does_not_make_these_weights_is_refused_before_it_takes_memory(
    tmp_path: Path, where: str, value: Any, said: str
) -> None:
    config = tree("agg=attention")
    torch.save(content(changed(config, where, value), config), tmp_path / "x.ckpt")
    assert said in refused(tmp_path / "x.ckpt")


def test_tables_that_are_not_among_the_weights_are_held_against_the_memory(tmp_path: Path) -> None:
    config = tree("agg=softmax", "model.positions=false")
    torch.save(content(changed(config, "data.block_size", 10**7), config), tmp_path / "x.ckpt")
    assert "makes tables of 200,000,000,000,000 bytes" in refused(tmp_path / "x.ckpt")


@pytest.mark.parametrize("characters", ["", "ba", "aab", "\n abcdefghijk", "\n abcdefghi", "j" * 12, "漢" * 1_000_000])
def test_a_vocabulary_that_is_not_its_own_is_refused(tmp_path: Path, characters: str) -> None:
    saved = content(tree())
    saved["trilab"]["vocabulary"] = characters
    torch.save(saved, tmp_path / "x.ckpt")
    refused(tmp_path / "x.ckpt")


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_refused_by_their_name(tmp_path: Path, number: float) -> None:
    saved = content(tree())
    saved["state_dict"]["model.lm_head.weight"][3, 4] = number
    torch.save(saved, tmp_path / "x.ckpt")
    assert "its lm_head.weight holds numbers that are not finite" in refused(tmp_path / "x.ckpt")


def test_weights_of_another_kind_of_number_are_refused_and_of_another_precision_are_not(tmp_path: Path) -> None:
    saved = content(tree())
    saved["state_dict"]["model.lm_head.weight"] = saved["state_dict"]["model.lm_head.weight"].bfloat16()
    torch.save(saved, tmp_path / "x.ckpt")
    assert load_trained(tmp_path / "x.ckpt").model.lm_head.weight.dtype == torch.float32
    saved["state_dict"]["model.lm_head.weight"] = saved["state_dict"]["model.lm_head.weight"].long()
    torch.save(saved, tmp_path / "x.ckpt")
    assert "its lm_head.weight holds torch.int64" in refused(tmp_path / "x.ckpt")


@pytest.mark.parametrize("value", [1, {"_target_": "os.system"}, {"_target_": ["\x1b[2J"] * 1000}])
@pytest.mark.parametrize("key", ["\x1b]0;mine\x07", "\x1b[2J all is well\n" + 900 * "k", "ckpt=\x1b[2J" + 900 * "k"])
def test_what_a_hostile_config_says_is_shown_without_commanding_the_terminal(
    tmp_path: Path, key: str, value: Any
) -> None:
    config = tree()
    torch.save(content({**config, key: value}, config), tmp_path / "x.ckpt")
    refused(tmp_path / "x.ckpt")


def test_a_value_that_commands_the_terminal_is_shown_without_its_command(tmp_path: Path) -> None:
    config = tree()
    torch.save(content(changed(config, "data.block_size", "ckpt=\x1b[2J" * 400), config), tmp_path / "x.ckpt")
    refused(tmp_path / "x.ckpt")


SHOWN = [
    file
    for file in [*CODE, *BOMBS, *FOREIGN]
    if file.name
    in (
        *("os.system in protocol 2 as data.pkl", "eval in protocol 4 as a bare pickle", "deflated zeros"),
        *("a storage past its bytes", "nothing", "a pipe", "a device", "a link to itself"),
    )
]


@pytest.mark.parametrize("file", SHOWN, ids=lambda file: file.name)
def test_commands_refuse_such_files_with_one_line_and_exit_code_2(
    tmp_path: Path, trilab: Callable[..., Outcome], train: Callable[..., Outcome], file: Any
) -> None:
    torch.save(content(tree()), tmp_path / "whole.ckpt")
    path, canary = tmp_path / "x.ckpt", tmp_path / "canary"
    file.make(path, (tmp_path / "whole.ckpt").read_bytes(), canary)
    for done in (trilab("generate", path), trilab("export", path), train(f"ckpt={path}")):
        assert done.code == 2
        [line] = done.err.splitlines()
        assert str(path) in line
    assert not canary.exists()


def test_text_is_written_without_the_seconds_that_importing_lightning_takes() -> None:
    code = (
        "import sys, trilab.generation.generate_command, trilab.trained\n"
        "print(*{'lightning', 'torchmetrics', 'wandb'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
