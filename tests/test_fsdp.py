"""Weights spread over processes: what is learned, kept and written is what one process learns, keeps and writes."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from trilab.checkpoint import load
from trilab.generation.sampling import Sampling
from trilab.generation.writing import write
from trilab.trained import load_trained

from .conftest import Outcome

Train = Callable[..., Outcome]

SMALL_GPT = ("model=gpt", "model.n_embd=16", "model.n_head=2", "model.n_layer=2")
FEW_STEPS = ("trainer.max_steps=4", "trainer.val_every=2", "data.val_chars=64", "optim.lr=1e-3")


def trained(train: Train, *arguments: str, place: str) -> Path:
    """The checkpoint at the end of a training, in an experiment of its own."""
    done = train(*FEW_STEPS, *arguments, f"experiment_name={place}")
    assert done.code == 0, done.err
    (checkpoint,) = done.outputs.glob(f"{place}/*/checkpoints/last.ckpt")
    return checkpoint


def farthest(one: Path, other: Path) -> float:
    """Largest difference between the numbers of two checkpoints that are alike in all else: weights, moments, steps."""
    mine, theirs = ([*load(path)["state_dict"].items(), *moments(path)] for path in (one, other))
    assert [(name, t.shape, t.dtype) for name, t in mine] == [(name, t.shape, t.dtype) for name, t in theirs]
    return max((a.double() - b.double()).abs().max().item() for (_, a), (_, b) in zip(mine, theirs, strict=True))


def moments(path: Path) -> list[tuple[str, torch.Tensor]]:
    (state,) = load(path)["optimizer_states"]
    order = [key for group in state["param_groups"] for key in group["params"]]
    assert order == sorted(order)  # as an ordinary optimizer numbers them
    return [(f"{key}.{name}", value) for key in order for name, value in state["state"][key].items()]


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ("agg=softmax", "model=flat"),
        ("agg=table", "model=bigram"),
        ("agg=gru", *SMALL_GPT, "model.dropout=0"),
        ("agg=attention", *SMALL_GPT, "model.dropout=0", "optim.grad_clip=0.3", "trainer.accumulate=2"),
    ],
    ids=" ".join,
)
def test_two_processes_that_share_the_weights_learn_what_one_learns(train: Train, arguments: tuple[str, ...]) -> None:
    alone = trained(train, *arguments, place="alone")
    shared = trained(train, *arguments, "trainer=fsdp", place="shared")
    assert farthest(alone, shared) < 1e-6
    greedy = Sampling(temperature=0)
    by_one, by_two = ("".join(write(load_trained(path), "", count=20, sampling=greedy)) for path in (alone, shared))
    assert by_one == by_two
    assert (shared.parents[1] / "sample.txt").read_text() == (alone.parents[1] / "sample.txt").read_text()


@pytest.mark.slow
def test_a_training_goes_on_bit_for_bit_also_with_the_weights_spread(train: Train) -> None:
    shared = ("agg=attention", *SMALL_GPT, "optim=constant", "model.dropout=0.2", "trainer=fsdp")
    whole = trained(train, *shared, place="whole")
    half = trained(train, *shared, "trainer.max_steps=2", place="half")
    rest = trained(train, *shared, f"ckpt={half}", place="rest")
    assert farthest(whole, rest) == 0


@pytest.mark.slow
@pytest.mark.parametrize(("first", "then"), [("cpu", "fsdp"), ("fsdp", "cpu"), ("ddp", "fsdp")])
def test_a_checkpoint_is_gone_on_from_however_many_processes_wrote_it(train: Train, first: str, then: str) -> None:
    settings = ("agg=attention", *SMALL_GPT, "optim=constant", "model.dropout=0")
    whole = trained(train, *settings, place="whole")
    half = trained(train, *settings, f"trainer={first}", "trainer.max_steps=2", place="half")
    rest = trained(train, *settings, f"trainer={then}", f"ckpt={half}", place="rest")
    assert farthest(whole, rest) < 1e-6


IDLE = """
import torch
from trilab.agg.softmax import SoftmaxMean

class Idle(SoftmaxMean):
    def __init__(self, n_embd: int, block_size: int) -> None:
        super().__init__(n_embd, block_size)
        self.spare = torch.nn.Parameter(torch.zeros(3))
"""


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_a_weight_that_nothing_depends_on_is_named(train: Train, tmp_path: Path, strategy: str) -> None:
    (tmp_path / "idle.py").write_text(IDLE)
    done = train("agg._target_=idle.Idle", "check.causality=off", f"trainer={strategy}")
    assert done.code == 1
    assert "The loss does not depend on blocks.0.agg.spare" in done.summary["error"]["message"]
