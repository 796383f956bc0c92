"""float16 and its scaler on a CPU: what is said is what is done, and a training goes on exactly."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from trilab.checkpoint import load

from .conftest import Outcome

Train = Callable[..., Outcome]


@pytest.mark.parametrize("precision", ["16-mixed", "bf16-mixed", "bf16-true", "64-true"])
def test_the_summary_names_the_precision_that_trained(train: Train, precision: str) -> None:
    done = train(f"trainer.precision={precision}", "check.causality=off")
    assert done.code == 0, done.err
    assert done.summary["precision"] == precision


@pytest.mark.parametrize("precision", ["32-true", "16-mixed", "bf16-mixed", "bf16-true", "64-true"])
def test_gradients_are_clipped_in_every_precision(train: Train, precision: str) -> None:
    """AdamW divides a gradient by its size, but for eps: clipped far below that, it moves no weight."""

    def weights(place: str, clip: str, steps: int) -> dict[str, Tensor]:
        done = train(
            *(f"trainer.precision={precision}", f"trainer.max_steps={steps}", f"experiment_name={place}"),
            *("check.causality=off", "optim.weight_decay=0", f"optim.grad_clip={clip}"),
        )
        assert done.code == 0, done.err
        (checkpoint,) = done.outputs.glob(f"{place}/*/checkpoints/last.ckpt")
        state: dict[str, Tensor] = load(checkpoint)["state_dict"]
        return state

    early, late, free = weights("early", "1e-15", 1), weights("late", "1e-15", 4), weights("free", "null", 4)
    assert all(torch.allclose(early[name], late[name], rtol=0, atol=1e-6) for name in early)
    assert not any(torch.allclose(early[name], free[name], rtol=0, atol=1e-3) for name in early)


def test_the_float16_scaler_goes_on_where_it_was(train: Train) -> None:
    def ended(place: str, *arguments: str) -> Path:
        done = train("trainer.precision=16-mixed", "check.causality=off", f"experiment_name={place}", *arguments)
        assert done.code == 0, done.err
        (checkpoint,) = done.outputs.glob(f"{place}/*/checkpoints/last.ckpt")
        return checkpoint

    whole, half = ended("whole"), ended("half", "trainer.max_steps=2")
    rest = ended("rest", f"ckpt={half}")
    scalers = [load(path)["MixedPrecision"] for path in (whole, half, rest)]
    assert [scaler["_growth_tracker"] for scaler in scalers] == [4, 2, 4]
    weights, again = (load(path)["state_dict"] for path in (whole, rest))
    assert all(weights[name].equal(again[name]) for name in weights)
