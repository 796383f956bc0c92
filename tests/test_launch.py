"""train.py as a user meets it: one run, knobs, wrong input."""

import json
import os
import shlex
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import yaml

from .conftest import STRATEGIES, Outcome, knobs, untimed

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


def test_a_summary_tells_where_in_the_window_and_in_the_text_the_last_loss_arose(train: Train) -> None:
    found = train("agg=attention", "data.block_size=6").summary
    nats, characters = found["loss_by_block"]["nats"], found["loss_by_block"]["characters"]
    assert sum(characters) == 220 - 1  # every character of the split but the first
    assert sum(nats) / sum(characters) == pytest.approx(found["val_loss"], rel=1e-9)
    assert len(found["loss_by_position"]) == 6
    counts = [37, 37, 37, 36, 36, 36]  # 36 whole windows and one of three characters
    by_position = sum(loss * n for loss, n in zip(found["loss_by_position"], counts, strict=True)) / 219
    assert by_position == pytest.approx(found["val_loss"], rel=1e-9)


def test_a_test_split_is_read_once_by_the_finished_model_and_is_nobody_s_guide(train: Train) -> None:
    without, with_test = train("data.val_share=0.2"), train("data.val_share=0.1", "data.test_share=0.1")
    runs = {folder.name: summary(folder) for folder in with_test.runs}
    [found] = [content for content in runs.values() if "test_loss" in content]
    assert 0 < found["test_loss"] < 5
    assert without.code == with_test.code == 0
    metrics = [line for folder in with_test.runs for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert not [line for line in metrics if "test" in line]


def test_a_summary_has_the_command_that_trains_the_run_again(train: Train) -> None:
    done = train("agg=window", "seed=3", "force=true")
    command = shlex.split(str(done.summary["command"]))
    assert command[:2] == ["python", "train.py"]
    assert {"agg=window", "seed=3"} < set(command)
    assert "force=true" not in command
    again = train(*command[2:], quick=False)
    assert "Finished already" in again.out


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
        if self.training and len(x) == 32 and Path("break").exists():  # a step's batch, not what is examined before
            Path("break").write_text(steps := str(int(Path("break").read_text()) - 1))
            if steps == "0":
                raise RuntimeError("broken on purpose")
        return super().forward(x)
"""


@pytest.mark.parametrize("steps", [3, 4, *(pytest.param(steps, marks=pytest.mark.slow) for steps in (5, 6, 7))])
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
    again = train(*command, "experiment_name=broken", "retry=true")
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
        (["model=null"], ["group override must be a string or a list"]),
        (["experiment_name=${nope}"], ["experiment_name cannot be resolved", "nope"]),
        (["model.n_embd=${oc.env:NOPE}"], ["model.n_embd cannot be resolved", "NOPE"]),
        (["sed=1"], ["sed is not a key", "Did you mean seed?"]),
        (["+sed=1"], ["sed is not a key", "Did you mean seed?"]),
        (["optim.lrr=1"], ["optim.lrr is not a key", "Did you mean optim.lr?"]),
        (["+optim.lrr=1"], ["optim.lrr is not a key", "Did you mean optim.lr?"]),
        (["agg=window", "+agg.sise=3"], ["agg.sise is not a key", "Did you mean agg.size?"]),
        (["+agg.size=3"], ["agg.size is not a key", "SoftmaxMean takes: nothing"]),
        (["+model.heads=3"], ["model.heads is not a key", "n_head"]),
        (["+data.blocksize=3"], ["data.blocksize is not a key"]),
        (["=1"], ["=1 has no key before its ="]),
        (["report.margin=0"], ["report.margin=0 must be above 0"]),
        (["report.measure=luck"], ["report.measure='luck' must be one of val_loss, best_val_loss, test_loss"]),
        (["report.measure=test_loss"], ["report.measure=test_loss needs a test split", "data.test_share"]),
        (["sweep.max_seeds=2"], ["sweep.max_seeds=2 must be at least 3"]),
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
        (["model.n_embd=10000000000"], ["The model's weights would take", "GiB of memory. Lower model.n_embd"]),
        (["model.n_embd=1000000000000000000"], ["The model's weights would take", "GiB of memory. Lower model.n_embd"]),
        (["seed=-1"], ["seed=-1"]),
        (["seed=zero"], ["seed='zero' must be a whole number"]),
        (["threads=0"], ["threads=0 must be at least 1"]),
        (["data.path=nowhere.txt"], ["nowhere.txt does not exist"]),
        (["data.path=né.txt"], ["data.path=né.txt cannot be read", """'data.path="né.txt"'"""]),
        (["trainer.accumulate=3"], ["data.batch_size=32", "3"]),
        (["trainer.precision=float"], ["trainer.precision=float"]),
        (["trainer.accelerator=abacus"], ["abacus"]),
        (["ckpt=nowhere.ckpt"], ["ckpt=nowhere.ckpt: there is no such file"]),
        (["experiment_name=a/b"], ["experiment_name='a/b'"]),
        (["agg._target_=nope.Nope"], ["agg._target_=nope.Nope cannot be imported"]),
        (["agg._target_=trilab.agg.softmax.Nope"], ["agg._target_=trilab.agg.softmax.Nope cannot be found"]),
        (["agg._target_=torch.nn.Softmax"], ["agg._target_=torch.nn.Softmax must take n_embd, block_size"]),
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
    assert "Traceback" not in done.out + done.err
    assert not list(done.outputs.rglob("*")) or [p.name for p in done.outputs.rglob("*")] == ["default"]


def test_a_loss_that_becomes_nan_stops_the_run_names_the_step_and_is_never_the_best(train: Train) -> None:
    done = train("optim.lr=1e30", "trainer.max_steps=50")
    assert done.code == 1
    assert "nan at step 2" in done.err
    assert "Traceback" not in done.out + done.err
    assert summary(done.run)["status"] == "failed"
    assert "Diverged" in str(summary(done.run)["error"])
    assert not list((done.run).glob("checkpoints/*.ckpt"))


def test_a_class_of_the_users_own_takes_its_own_knobs(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_last.py").write_text(
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
    done = train("agg._target_=my_last.Last", "+agg.back=0")
    assert done.code == 0, done.err
    assert done.run.name.startswith("Last-seed1337-")
    assert "agg.bak is not a key. Did you mean agg.back?" in train("agg._target_=my_last.Last", "+agg.bak=1").err


def test_help_names_groups_and_keys_in_words(train: Train) -> None:
    done = train("--help", quick=False)
    assert done.code == 0
    for words in ("how each position summarises its past", "agg:", "softmax", "max_steps", "experiment=part03"):
        assert words in done.out


@pytest.mark.parametrize("keys", [[], ["agg=attention", "seed=7"]])
def test_help_says_what_hydra_itself_would(train: Train, keys: list[str]) -> None:
    own, hydras = (train("--help", *keys, *more, quick=False) for more in ((), ("--config-name=train",)))
    assert own.out.split() == hydras.out.split()


STOPS = BREAKS.replace('raise RuntimeError("broken on purpose")', "os.kill(os.getpid(), int(os.environ['SIGNUM']))")


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_run_that_is_told_to_stop_saves_its_step_and_the_same_command_finishes_it(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, signum: signal.Signals
) -> None:
    (tmp_path / "stops.py").write_text("import os" + STOPS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("SIGNUM", str(int(signum)))
    command = ["agg._target_=stops.Breaks", "trainer.max_steps=6", "trainer.log_every=1", "model.dropout=0.2"]
    whole = train(*command, "experiment_name=whole").run
    (tmp_path / "break").write_text("3")
    handlers = [signal.getsignal(it) for it in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    stopped = train(*command)
    assert [signal.getsignal(it) for it in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == handlers
    assert stopped.code == 128 + signum
    assert stopped.err.strip() == f"Stopped by {signum.name}. The same command goes on from there."
    run = next(run for run in stopped.runs if run.parent.name == "default")
    assert torch.load(run / "checkpoints/last.ckpt")["trilab"]["step"] == 3
    assert not (run / "summary.json").exists()
    (tmp_path / "break").unlink()
    assert train(*command).code == 0
    assert untimed(metrics(run)) == untimed(metrics(whole))
    assert untimed(summary(run)) == untimed(summary(whole))


def test_a_sweep_that_is_told_to_stop_stops_before_its_next_run(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stops.py").write_text("import os" + STOPS.replace("os.getpid()", "int(os.environ['SWEEP'])"))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("SIGNUM", str(int(signal.SIGTERM)))
    monkeypatch.setenv("SWEEP", str(os.getpid()))
    (tmp_path / "break").write_text("1")
    stopped = train("-m", "agg._target_=stops.Breaks", "seed=0,1,2", "trainer.max_steps=2000")
    assert stopped.code == 143
    assert len(stopped.runs) == 1
    assert "3 of 3 runs did not finish: " in stopped.out


def test_a_signal_to_one_run_of_a_sweep_ends_that_run_alone(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stops.py").write_text("import os" + STOPS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("SIGNUM", str(int(signal.SIGTERM)))
    (tmp_path / "break").write_text("2")
    done = train("-m", "agg._target_=stops.Breaks", "seed=0,1")
    assert done.code == 1
    assert sorted(str(summary(run)["status"]) for run in done.runs) == ["finished", "interrupted"]
    assert "INTERRUPTED: Lost: its process was told to stop by SIGTERM" in done.out
    (tmp_path / "break").unlink()
    assert train("-m", "agg._target_=stops.Breaks", "seed=0,1").code == 0


def broken_off(train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *command: str) -> Outcome:
    """A run of ours that breaks at its fourth step, and can go on."""
    (tmp_path / "breaks.py").write_text(BREAKS)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "break").write_text("4")
    broken = train("agg._target_=breaks.Breaks", "trainer.checkpoint_every=2", *command)
    (tmp_path / "break").unlink()
    return broken


def test_a_run_that_went_on_from_another_and_was_broken_off_goes_on_from_its_own_checkpoint(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "breaks.py").write_text(BREAKS)
    monkeypatch.syspath_prepend(tmp_path)
    first = train("agg._target_=breaks.Breaks", "trainer.max_steps=2")
    ckpt = f"ckpt={first.run / 'checkpoints' / 'last.ckpt'}"
    longer = ["trainer.max_steps=8", "trainer.log_every=1", "experiment_name=longer", ckpt]
    assert broken_off(train, tmp_path, monkeypatch, *longer).code == 1
    again = train("agg._target_=breaks.Breaks", "trainer.checkpoint_every=2", "retry=true", *longer)
    assert again.code == 0, again.err
    run = next(run for run in again.runs if run.parent.name == "longer")
    assert [row["step"] for row in metrics(run) if "train/loss" in row] == [3, 4, 5, 6, 7, 8]


def test_the_best_checkpoint_comes_along_when_another_run_goes_on(train: Train) -> None:
    first = train("agg=attention", "optim.lr=0.5", "trainer.max_steps=4").run
    best = summary(first)
    ckpt = f"ckpt={first / 'checkpoints' / 'last.ckpt'}"
    longer = train("agg=attention", "optim.lr=0.5", "trainer.max_steps=5", "experiment_name=longer", ckpt)
    run = next(run for run in longer.runs if run.parent.name == "longer")
    kept = torch.load(run / "checkpoints" / "best.ckpt")["trilab"]
    assert summary(run)["best_val_loss"] == kept["best"]["val_loss"] <= float(str(best["best_val_loss"]))
    (first / "checkpoints" / "best.ckpt").unlink()
    alone = train("agg=attention", "optim.lr=0.5", "trainer.max_steps=6", "experiment_name=alone", ckpt)
    run = next(run for run in alone.runs if run.parent.name == "alone")
    assert summary(run)["best_step"] == torch.load(run / "checkpoints" / "best.ckpt")["trilab"]["best"]["step"] > 4


def test_a_finished_run_of_changed_code_is_told(train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "edited.py").write_text(BREAKS)
    monkeypatch.syspath_prepend(tmp_path)
    train("agg._target_=edited.Breaks")
    assert "other code" not in train("agg._target_=edited.Breaks").out
    (tmp_path / "edited.py").write_text(BREAKS + "# changed\n")
    assert "It was trained by other code" in train("agg._target_=edited.Breaks").out


@pytest.mark.parametrize(
    ("module", "said"),
    [("def (", "SyntaxError"), ("1 / 0", "ZeroDivisionError"), ("from torch import nothing_such", "ImportError")],
)
def test_a_module_that_cannot_be_imported_is_told_with_file_and_line(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, said: str
) -> None:
    name = f"bad_{said.lower()}"
    (tmp_path / f"{name}.py").write_text(f"\n{module}\n")
    monkeypatch.syspath_prepend(tmp_path)
    done = train(f"agg._target_={name}.Mine")
    assert done.code == 2
    assert said in done.err
    assert f"{name}.py, line 2)" in done.err
    assert not done.runs


@pytest.mark.parametrize("agg", STRATEGIES)
def test_only_strategies_that_use_heads_take_them(train: Train, agg: str) -> None:
    if "n_head" not in knobs(agg):
        assert "agg.n_head is not a key" in train(f"agg={agg}", "+agg.n_head=4").err


def test_what_is_ours_in_the_config_cannot_be_set(train: Train) -> None:
    assert "tree is not a key" in train("+tree=1").err
