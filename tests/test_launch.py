"""train.py as a user meets it: one run, knobs, wrong input."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import yaml

from .conftest import STRATEGIES, Outcome

Train = Callable[..., Outcome]


def summary(folder: Path) -> dict[str, object]:
    content: dict[str, object] = json.loads((folder / "summary.json").read_text())
    return content


def test_a_run_leaves_config_metrics_checkpoints_sample_and_summary(train: Train) -> None:
    done = train("agg=softmax", "seed=0")
    assert done.code == 0
    assert {path.name for path in done.run.iterdir()} >= {
        "config.yaml",
        "metrics.jsonl",
        "checkpoints",
        "summary.json",
        "sample.txt",
    }
    assert {path.name for path in (done.run / "checkpoints").iterdir()} == {"best.ckpt", "last.ckpt"}
    assert summary(done.run).items() >= {"agg": "softmax", "seed": 0, "status": "finished", "steps": 4}.items()
    rows = [json.loads(line) for line in (done.run / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows if "val/loss" in row] == [2, 4]
    assert rows[-1]["val/loss"] == summary(done.run)["val_loss"]
    assert len((done.run / "sample.txt").read_text()) == 5


def test_the_last_step_is_validated_whatever_the_interval(train: Train) -> None:
    done = train("trainer.max_steps=5", "trainer.val_every=3")
    rows = [json.loads(line) for line in (done.run / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows if "val/loss" in row] == [3, 5]


@pytest.mark.parametrize("model", ["bigram", "flat", "gpt"])
@pytest.mark.parametrize("agg", STRATEGIES)
def test_every_strategy_trains_in_every_model(train: Train, agg: str, model: str) -> None:
    done = train(f"agg={agg}", f"model={model}", "model.n_head=1", "callbacks.sample_chars=0")
    assert done.code == 0, done.err
    assert summary(done.run)["agg"] == agg


def test_a_checkpoint_stands_alone_and_loads_with_weights_only(train: Train) -> None:
    done = train("agg=attention", "seed=0")
    content = torch.load(done.run / "checkpoints" / "best.ckpt", weights_only=True)
    assert content["trilab"]["vocabulary"] == "\n abcdefghij"
    assert content["trilab"]["config"] == yaml.safe_load((done.run / "config.yaml").read_text())
    assert content["state_dict"]["model.blocks.0.agg.key.weight"].shape == (32, 32)


def test_the_same_command_again_passes_over_a_finished_run(train: Train) -> None:
    first = train("agg=softmax")
    before = (first.run / "summary.json").stat().st_mtime_ns
    again = train("agg=softmax")
    assert again.code == 0
    assert "Finished already" in again.out
    assert (again.run / "summary.json").stat().st_mtime_ns == before


def test_force_trains_a_finished_run_anew_with_the_same_result(train: Train) -> None:
    first = summary(train("agg=attention").run)
    again = train("agg=attention", "force=true")
    assert summary(again.run)["val_loss"] == first["val_loss"]
    assert summary(again.run)["seconds"] != first["seconds"]


def test_a_resumed_run_ends_with_the_same_bits_as_one_never_stopped(train: Train) -> None:
    whole = train("agg=attention", "model.dropout=0.2", "trainer.max_steps=6", "experiment_name=whole")
    part = train("agg=attention", "model.dropout=0.2", "trainer.max_steps=3", "experiment_name=part")
    half = next(run for run in part.runs if run.parent.name == "part")
    rest = train(
        "agg=attention",
        "model.dropout=0.2",
        "trainer.max_steps=6",
        "experiment_name=rest",
        f"ckpt={half / 'checkpoints' / 'last.ckpt'}",
    )
    assert rest.code == 0, rest.err
    ends = [
        torch.load(next(run for run in rest.runs if run.parent.name == name) / "checkpoints/last.ckpt")["state_dict"]
        for name in ("whole", "rest")
    ]
    assert whole.code == 0
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])


BREAKS = """
from pathlib import Path
from trilab.agg.attention import SelfAttention

class Breaks(SelfAttention):
    def forward(self, x):
        if self.training and Path("break").exists():
            Path("break").write_text(steps := str(int(Path("break").read_text()) - 1))
            if steps == "0":
                raise RuntimeError("broken on purpose")
        return super().forward(x)
"""


@pytest.mark.parametrize("steps", [3, 4, 5, 6, 7])
@pytest.mark.parametrize(("val_every", "checkpoint_every"), [(2, 2), (3, 2), (2, 3), (100, 2)])
def test_a_broken_off_run_goes_on_from_its_own_last_checkpoint_and_ends_the_same(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int, val_every: int, checkpoint_every: int
) -> None:
    (tmp_path / "breaks.py").write_text(BREAKS)
    monkeypatch.syspath_prepend(tmp_path)
    command = [
        "agg._target_=breaks.Breaks",
        "model.dropout=0.2",
        "trainer.max_steps=8",
        "trainer.log_every=1",
        f"trainer.val_every={val_every}",
        f"trainer.checkpoint_every={checkpoint_every}",
    ]
    whole = train(*command, "experiment_name=whole").run
    (tmp_path / "break").write_text(str(steps))
    broken = train(*command, "experiment_name=broken")
    assert broken.code == 1
    assert "broken on purpose" in broken.err
    (tmp_path / "break").unlink()
    again = train(*command, "experiment_name=broken")
    assert again.code == 0, again.err
    run = next(run for run in again.runs if run.parent.name == "broken")
    assert metrics(run) == metrics(whole)
    for name in ("last.ckpt", "best.ckpt"):
        ends = [torch.load(folder / "checkpoints" / name)["state_dict"] for folder in (whole, run)]
        assert all(torch.equal(ends[0][key], ends[1][key]) for key in ends[0])


def metrics(folder: Path) -> list[dict[str, float]]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in row.items() if name != "chars_per_second"} for row in rows]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["agg=nope"], ["agg/nope", "attention", "softmax"]),
        (["experiment=nope"], ["experiment/nope", "part03"]),
        (["sed=1"], ["sed is not a key", "Did you mean seed?"]),
        (["+sed=1"], ["sed is not a key", "Did you mean seed?"]),
        (["optim.lrr=1"], ["optim.lrr is not a key", "Did you mean optim.lr?"]),
        (["+optim.lrr=1"], ["optim.lrr is not a key", "Did you mean optim.lr?"]),
        (["agg=window", "+agg.sise=3"], ["agg.sise is not a key", "Did you mean agg.size?"]),
        (["+agg.size=3"], ["agg.size is not a key", "SoftmaxMean takes: nothing"]),
        (["+model.heads=3"], ["model.heads is not a key", "n_head"]),
        (["+data.blocksize=3"], ["data.blocksize is not a key"]),
        (["optim.lr=abc"], ["optim.lr='abc' must be a number"]),
        (["optim.lr=0"], ["optim.lr=0.0 must be a finite number above 0"]),
        (["optim.schedule=linear"], ["optim.schedule=linear", "constant or cosine"]),
        (["trainer.max_steps=1.5"], ["trainer.max_steps=1.5 must be a whole number"]),
        (["trainer.max_steps=0"], ["trainer.max_steps=0 must be at least 1"]),
        (["data.block_size=0"], ["data.block_size=0 must be at least 1"]),
        (["data.block_size=-3"], ["data.block_size=-3 must be at least 1"]),
        (["data.batch_size=0"], ["data.batch_size=0 must be at least 1"]),
        (["data.batch_size=100000"], ["data.batch_size=100000", "windows"]),
        (["data.block_size=500"], ["data.block_size=500 needs at least 501", "validation split", "220"]),
        (["data.val_share=1.5"], ["data.val_share=1.5"]),
        (["model.n_embd=0"], ["model.n_embd=0 must be at least 1"]),
        (["model.n_layer=0", "model=gpt"], ["model.n_layer=0 must be at least 1"]),
        (["model.dropout=1"], ["model.dropout=1.0 must lie in [0, 1)"]),
        (["agg=attention", "model.n_head=5"], ["32", "5", "not divisible"]),
        (["agg=attention", "agg.n_head=5"], ["32", "5", "not divisible"]),
        (["seed=-1"], ["seed=-1"]),
        (["seed=zero"], ["seed='zero' must be a whole number"]),
        (["threads=0"], ["threads=0 must be at least 1"]),
        (["data.path=nowhere.txt"], ["nowhere.txt does not exist"]),
        (["trainer.accumulate=3"], ["data.batch_size=32", "3"]),
        (["trainer.precision=float"], ["trainer.precision=float"]),
        (["trainer.accelerator=abacus"], ["abacus"]),
        (["ckpt=nowhere.ckpt"], ["ckpt=nowhere.ckpt: there is no such file"]),
        (["experiment_name=a/b"], ["experiment_name='a/b'"]),
        (["agg._target_=nope.Nope"], ["agg._target_=nope.Nope cannot be imported"]),
        (["agg._target_=trilab.agg.softmax.Nope"], ["agg._target_=trilab.agg.softmax.Nope cannot be found"]),
        (["agg._target_=torch.nn.Softmax"], ["agg._target_=torch.nn.Softmax must be a subclass", "Aggregation"]),
        (["paths.outputs=/proc/nowhere"], ["/proc/nowhere", "cannot be made", "paths.outputs"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_input_gets_one_clear_error_and_leaves_nothing(
    train: Train, arguments: list[str], said: list[str]
) -> None:
    done = train(*arguments)
    assert done.code == 2
    for part in said:
        assert part in done.err
    assert "Traceback" not in done.err
    assert not list(done.outputs.rglob("*")) or [p.name for p in done.outputs.rglob("*")] == ["default"]


def test_a_loss_that_becomes_nan_stops_the_run_names_the_step_and_is_never_the_best(train: Train) -> None:
    done = train("optim.lr=1e30", "trainer.max_steps=50")
    assert done.code == 1
    assert "nan at step 2" in done.err
    assert summary(done.run)["status"] == "failed"
    assert "Diverged" in str(summary(done.run)["error"])
    assert not list((done.run).glob("checkpoints/*.ckpt"))


def test_a_class_of_the_users_own_takes_its_own_knobs(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(
        "import torch\n"
        "from trilab.agg.base import Aggregation\n"
        "class Last(Aggregation):\n"
        "    def __init__(self, n_embd: int, block_size: int, *, back: int = 0) -> None:\n"
        "        super().__init__(n_embd, block_size)\n"
        "        self.back = back\n"
        "    def weights(self, x):\n"
        "        return torch.eye(x.shape[1] + self.back, dtype=x.dtype)[: x.shape[1], self.back :][None, None]\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    done = train("agg._target_=mine.Last", "+agg.back=0")
    assert done.code == 0, done.err
    assert done.run.name.startswith("Last-seed1337-")
    assert "agg.bak is not a key. Did you mean agg.back?" in train("agg._target_=mine.Last", "+agg.bak=1").err


def test_help_names_groups_and_keys_in_words(train: Train) -> None:
    done = train("--help", quick=False)
    assert done.code == 0
    for words in ("how each position summarises its past", "agg:", "softmax", "max_steps", "experiment=part03"):
        assert words in done.out
