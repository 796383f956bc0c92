"""Steps by torch.compile: the same training to rounding, and a training all the same where it cannot be had."""

import json
import logging
import random
import shutil
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from trilab.compiling import compiled

from .command import train_py

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler here")

KEYS = ("agg=attention", "model=gpt", "model.n_layer=1", "trainer.max_steps=20", "data.batch_size=4")


class Unknown(nn.Module):
    """Has been compiled by nobody before."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = random.random()

    def forward(self, inputs: Tensor) -> Tensor:
        return (inputs * self.factor).sin()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*script_method.*deprecated:DeprecationWarning")  # torch's own
def test_what_cannot_be_compiled_is_called_as_it_is_and_one_line_says_so(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch._inductor import config

    monkeypatch.setattr(config.cpp, "cxx", ("/nowhere/c++",))
    model = Unknown()
    with caplog.at_level(logging.WARNING, "trilab"):
        assert compiled(model, "default", torch.zeros(3)) == model.forward
    (message,) = (record.getMessage() for record in caplog.records if record.name == "trilab")
    assert message.startswith("trainer.compile=default fails: ")
    assert message.endswith("Trains without it.")
    assert "\n" not in message


def _ended(folder: Path, text: Path, *keys: str) -> tuple[float, str]:
    """A training in a process of its own: its last validation loss, and what it said."""
    folder.mkdir()
    done = train_py(folder, *KEYS, *keys, text=text)
    return json.loads((done.run / "summary.json").read_text())["val_loss"], done.err + done.out


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize(("dropout", "within"), [(0.0, 1e-4), (0.1, 0.05)])  # dropout drops others
def test_a_compiled_training_learns_what_another_learns(
    dropout: float, within: float, tmp_path: Path, text: Path
) -> None:
    keys = f"model.dropout={dropout}"
    usual, _ = _ended(tmp_path / "usual", text, keys)
    ours, said = _ended(tmp_path / "compiled", text, keys, "trainer.compile=default")
    assert "Compiled in" in said
    assert ours == pytest.approx(usual, abs=within)


@pytest.mark.slow
def test_without_a_compiler_a_training_ends_as_one_that_is_not_compiled(
    tmp_path: Path, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, _ = _ended(tmp_path / "usual", text, "model.dropout=0.1")
    monkeypatch.setenv("CXX", str(tmp_path / "nowhere"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))  # nothing that was compiled before
    ours, said = _ended(tmp_path / "compiled", text, "model.dropout=0.1", "trainer.compile=default")
    assert "Trains without it." in said
    assert ours == usual
    (path,) = tmp_path.glob("compiled/outputs/*/*/checkpoints/last.ckpt")
    weights = torch.load(path, weights_only=True)["state_dict"]
    assert {name.split(".")[0] for name in weights} == {"model"}
