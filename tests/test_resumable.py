"""What a training can go on from: all that Lightning would take over is what it has to be, or refused by its name."""

import io
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Trainer
from lightning.pytorch.plugins.environments import LightningEnvironment

from trilab.build import build_on_meta
from trilab.checkpoint import load
from trilab.config import read
from trilab.errors import BadInput
from trilab.launch import main
from trilab.model import LanguageModel
from trilab.resumable import refuse_unresumable

from .conftest import QUICK, Outcome, exit_code
from .hostile import saved


@dataclass(frozen=True)
class Whole:
    """A checkpoint of four steps that a training wrote, and what it is compared with."""

    stored: bytes
    model: LanguageModel
    loops: Mapping[str, Any]

    def content(self) -> dict[str, Any]:
        content: dict[str, Any] = torch.load(io.BytesIO(self.stored), weights_only=True)
        return content

    def refused(self, content: Mapping[str, Any]) -> str:
        """The line that says why."""
        with pytest.raises(BadInput) as caught:
            refuse_unresumable(content, self.model, self.loops)
        said = str(caught.value)
        assert said.startswith("it")
        assert said.isprintable()
        assert len(said) < 300
        return said


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    folder = tmp_path_factory.mktemp("whole")
    (folder / "text.txt").write_text("abc bad hid fig\njig ace\n" * 90)
    arguments = [f"paths.outputs={folder}", *QUICK, f"data.path={folder / 'text.txt'}", "agg=attention"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["train.py", *arguments])
        patch.chdir(folder)
        assert exit_code(main) == 0
    [path] = folder.rglob("last.ckpt")
    content = load(path)
    model = build_on_meta(read(content["trilab"]["config"]), len(content["trilab"]["vocabulary"]))
    alone = LightningEnvironment()  # also on a cluster
    trainer = Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, plugins=[alone])
    return Whole(path.read_bytes(), model, {"fit_loop": trainer.fit_loop.state_dict()})


LIGHTNING = "pytorch-lightning_version"


def first_moments(content: dict[str, Any]) -> dict[str, Any]:
    moments: dict[str, Any] = content["optimizer_states"][0]["state"][0]
    return moments


def group(content: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = content["optimizer_states"][0]["param_groups"][0]
    return found


def counter(content: dict[str, Any]) -> dict[str, Any]:
    progress = content["loops"]["fit_loop"]["epoch_loop.automatic_optimization.optim_progress"]
    found: dict[str, Any] = progress["optimizer"]["step"]["total"]
    return found


Change = Callable[[dict[str, Any]], object]


def put(name: str, value: Any) -> Change:
    return lambda content: content.__setitem__(name, value)


def own(name: str, value: Any) -> Change:
    return lambda content: content["trilab"].__setitem__(name, value)


def spoiled(name: str) -> Change:
    """Makes a weight or a moment NaN."""
    return lambda c: (c["state_dict"] if name in c["state_dict"] else first_moments(c))[name].fill_(math.nan)


WRONG: list[tuple[str, Change, str]] = [
    ("no version of Lightning", lambda c: c.pop(LIGHTNING), "Lightning that is read here"),
    ("a number as its version", put(LIGHTNING, 5), "Lightning that is read here"),
    ("a version long gone", put(LIGHTNING, "1.0.0"), "Lightning that is read here"),
    ("a version that is none", put(LIGHTNING, "2.x\x1b[2J"), "Lightning that is read here"),
    (
        "a weight of nobody's",
        lambda c: c["state_dict"].update(foo=torch.zeros(2)),
        "has a weight that is not the model's",
    ),
    ("a weight more", lambda c: c["state_dict"].update({"model.foo": torch.zeros(2)}), "it has 'foo'"),
    ("a weight less", lambda c: c["state_dict"].pop("model.lm_head.bias"), "it has no 'lm_head.bias'"),
    ("NaN in a weight", spoiled("model.lm_head.bias"), "its lm_head.bias holds numbers that are not finite"),
    ("no loops", lambda c: c.pop("loops"), "its state of loops is missing"),
    ("a number as loops", put("loops", 5), "its state of loops is missing"),
    ("a number as a loop", put("loops", {"fit_loop": 5}), "its state of loops.fit_loop is missing"),
    ("a text as a count", lambda c: counter(c).update(completed="4"), "completed is missing or something else"),
    ("another count", lambda c: counter(c).update(completed=3), "numbers of steps done are not one"),
    ("a step below 0", own("step", -5), "numbers of steps done are not one"),
    ("another global_step", put("global_step", 10**9), "numbers of steps done are not one"),
    (
        "no steps at all",
        lambda c: (own("step", 0)(c), put("global_step", 0)(c), counter(c).update(completed=0)),
        "1 or",
    ),
    ("a number as callbacks", put("callbacks", 7), "its callbacks"),
    ("a number as one of them", put("callbacks", {"Samples": 7}), "its callbacks"),
    ("no best", own("best", {}), "its best"),
    ("texts as the best", own("best", {"val_loss": "y", "step": "x"}), "its best"),
    ("NaN as the best", own("best", {"val_loss": math.nan, "step": 2}), "its best"),
    ("a best that is yet to come", own("best", {"val_loss": 1.0, "step": 5}), "its best"),
    ("a number as pending", own("pending", 5), "its pending"),
    ("fewer losses than steps", own("pending", {"steps": [3], "losses": torch.zeros(0)}), "its pending"),
    ("a text as seconds", own("seconds", "a"), "its seconds"),
    ("NaN as seconds", own("seconds", math.nan), "its seconds"),
    ("no optimizer", put("optimizer_states", []), "its optimizer_states are not the one"),
    ("two optimizers", lambda c: c["optimizer_states"].append({}), "its optimizer_states are not the one"),
    ("no moments", lambda c: c["optimizer_states"][0].update(state={}), "its optimizer has no state"),
    ("moments of nobody", lambda c: c["optimizer_states"][0]["state"].update({99: {}}), "that it does not move"),
    ("another shape", lambda c: first_moments(c).update(exp_avg=torch.zeros(3)), "is not of its parameter's shape"),
    ("no second moment", lambda c: first_moments(c).pop("exp_avg_sq"), "exp_avg_sq that is not of its parameter's"),
    ("NaN in a moment", spoiled("exp_avg"), "an exp_avg that no training comes to"),
    ("a square below 0", lambda c: first_moments(c)["exp_avg_sq"].fill_(-1), "an exp_avg_sq that no training comes to"),
    ("more steps of the optimizer", lambda c: first_moments(c).update(step=10**9), "another number of steps"),
    ("a text as the rate", lambda c: group(c).update(lr="abc"), "groups of parameters that are something else"),
    (
        "a text as the first rate",
        lambda c: group(c).update(initial_lr="abc"),
        "groups of parameters that are something",
    ),
    ("one beta", lambda c: group(c).update(betas=(0.9,)), "groups of parameters that are something else"),
    ("no group", lambda c: c["optimizer_states"][0].update(param_groups=[]), "moves other parameters"),
    ("a parameter less", lambda c: group(c)["params"].pop(), "moves other parameters"),
    ("another scaler", put("MixedPrecision", {"a": 1}), "its MixedPrecision"),
]


@pytest.mark.parametrize(("change", "said"), [pytest.param(change, said, id=name) for name, change, said in WRONG])
def test_what_would_break_a_training_or_begin_it_anew_in_part_is_refused_by_its_name(
    whole: Whole, change: Change, said: str
) -> None:
    content = whole.content()
    refuse_unresumable(content, whole.model, whole.loops)
    change(content)
    assert said in whole.refused(content)


@pytest.mark.parametrize(
    "change",
    [
        put(LIGHTNING, "2.5.0.post1"),
        put(LIGHTNING, "2.7.0rc1"),
        own("best", {"val_loss": math.inf, "step": 0}),
        put("MixedPrecision", {}),
        lambda c: c["trilab"].pop("pending"),
        lambda c: c["trilab"].pop("seconds"),
        lambda c: c["optimizer_states"][0]["state"].pop(0),
    ],
)
def test_what_other_versions_and_other_trainings_write_is_gone_on_from(whole: Whole, change: Change) -> None:
    content = whole.content()
    change(content)
    refuse_unresumable(content, whole.model, whole.loops)


@pytest.mark.parametrize("change", [put("callbacks", 7), put("optimizer_states", []), put(LIGHTNING, 5)])
def test_the_command_refuses_it_with_one_line_and_exit_code_2(
    tmp_path: Path, train: Callable[..., Outcome], change: Change
) -> None:
    content = load(train("agg=attention").run / "checkpoints" / "last.ckpt")
    change(content)
    (tmp_path / "x.ckpt").write_bytes(saved(content))
    done = train("agg=attention", "trainer.max_steps=6", f"ckpt={tmp_path / 'x.ckpt'}")
    assert done.code == 2
    [line] = done.err.splitlines()
    assert f"ckpt={tmp_path / 'x.ckpt'} cannot be gone on from: it" in line
