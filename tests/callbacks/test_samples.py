"""The text that a trained model writes at the end."""

import io
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback
from rich.console import Console

from trilab.callbacks.samples import Samples
from trilab.vocabulary import Vocabulary

from ..test_learner import QUIET, fit, learner

pytestmark = QUIET


def written(path: Path, characters: str = "abcdefghijk", *, count: int = 40, seed: int = 3, **more: Any) -> str:
    sample = Samples(Vocabulary(characters), count=count, seed=seed, path=path, console=more.get("console"))
    fit(learner(), [sample, *more.get("callbacks", ())])
    return path.read_bytes().decode()


def test_as_many_characters_as_asked_for_go_to_the_file(tmp_path: Path) -> None:
    text = written(tmp_path / "sample.txt")
    assert len(text) == 40
    assert set(text) <= set("abcdefghijk")


def test_the_same_weights_and_seed_write_the_same_text(tmp_path: Path) -> None:
    torch.manual_seed(0)
    first = written(tmp_path / "a.txt")
    torch.manual_seed(1)
    assert written(tmp_path / "b.txt") == first
    assert written(tmp_path / "c.txt", seed=4) != first


@pytest.mark.parametrize(("characters", "start"), [("\nabcdefghij", 0), ("\t\nabcdefghi", 1), ("abcdefghijk", 0)])
def test_it_begins_after_a_line_end_or_else_after_the_first_character(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, characters: str, start: int
) -> None:
    prompts = []

    def noted(model: Any, tokens: torch.Tensor, count: int, **rest: Any) -> torch.Tensor:
        prompts.append(tokens.tolist())
        return torch.cat([tokens, tokens.new_full((1, count), 5)], 1)

    monkeypatch.setattr("trilab.callbacks.samples.generate", noted)
    assert written(tmp_path / "a.txt", characters, count=3) == characters[5] * 3
    assert prompts == [[[start]]]


def test_the_file_has_the_model_s_own_line_ends_and_any_character(tmp_path: Path) -> None:
    hard = "".join(sorted("\n\r\u2028é漢🙂abcd\ud800"))
    text = (written(tmp_path / "a.txt", hard, count=400)).replace("\\ud800", "\ud800")
    assert len(text) == 400
    assert set(text) == set(hard)


def test_it_is_shown_where_there_is_a_console_and_markup_is_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "[b]ad[/b]eg[/]"

    def spoken(model: Any, tokens: torch.Tensor, *rest: Any, **more: Any) -> torch.Tensor:
        return torch.cat([tokens, torch.tensor([["/[]abcdefgh".index(c) for c in said]])], 1)

    monkeypatch.setattr("trilab.callbacks.samples.generate", spoken)
    out = io.StringIO()
    assert written(tmp_path / "a.txt", "/[]abcdefgh", console=Console(file=out, width=100)) == said
    assert said in out.getvalue()
    assert "a sample" in out.getvalue()


def test_the_model_is_evaluated_while_it_writes_and_goes_back_to_its_mode(tmp_path: Path) -> None:
    modes = []

    class Modes(Callback):
        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            modes.append(pl_module.training)

    sample = Samples(Vocabulary("abcdefghijk"), count=3, seed=0, path=tmp_path / "a.txt", console=None)
    module = learner()
    module.model.norm.register_forward_pre_hook(lambda norm, _: modes.append(norm.training))
    fit(module, [Modes(), sample, Modes()])
    before, *during, after = modes[5:]
    assert during == [False] * 3
    assert before == after
