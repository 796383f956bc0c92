"""Devices, processes and precision: what works is what was asked for, what cannot is refused in one line."""

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Trainer
from lightning.pytorch.strategies import DDPStrategy

from trilab import config
from trilab.checkpoint_io import AtomicCheckpoints
from trilab.errors import BadInput
from trilab.sharding import Sharded
from trilab.trainer import build_trainer, multiplies_bfloat16

ONE_CPU = {
    "accelerator": "cpu",
    "devices": 1,
    "num_nodes": 1,
    "strategy": "auto",
    "precision": "32-true",
    "accumulate": 1,
    "max_steps": 2,
    "val_every": 1,
    "log_every": 1,
    "checkpoint_every": 1,
    "checkpoint_minutes": None,
    "timeout": 7,
}


def built(folder: Path, **changed: Any) -> Trainer:
    return build_trainer(config.Trainer(**{**ONE_CPU, **changed}), None, folder, [])


@pytest.fixture
def first_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of the first of two processes."""
    for name, value in {"RANK": "0", "LOCAL_RANK": "0", "NODE_RANK": "0", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("first_of_two")
@pytest.mark.parametrize(("name", "kind"), [("auto", DDPStrategy), ("ddp", DDPStrategy), ("fsdp", Sharded)])
@pytest.mark.parametrize(("devices", "nodes"), [(2, 1), (1, 2)])
def test_several_processes_wait_for_one_another_for_as_long_as_the_config_says(
    tmp_path: Path, name: str, kind: type, devices: int, nodes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    trainer = built(tmp_path, strategy=name, devices=devices, num_nodes=nodes)
    strategy = trainer.strategy
    assert isinstance(strategy, kind)
    assert strategy._timeout == timedelta(seconds=7)
    assert trainer.world_size == 2
    assert isinstance(strategy.checkpoint_io, AtomicCheckpoints)
    assert strategy.cluster_environment.creates_processes_externally  # so Lightning starts none


@pytest.mark.parametrize("name", ["auto", "ddp", "fsdp"])
def test_one_process_needs_no_others_whatever_the_strategy(tmp_path: Path, name: str) -> None:
    assert type(built(tmp_path, strategy=name).strategy).__name__ == "SingleDeviceStrategy"


@pytest.mark.usefixtures("first_of_two")
def test_a_cluster_around_us_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = {"SLURM_NTASKS": "8", "SLURM_JOB_NAME": "train", "SLURM_PROCID": "3", "SLURM_LOCALID": "3"}
    for name, value in {**cluster, "SLURM_JOB_ID": "1", "SLURM_NODEID": "0", "TORCHELASTIC_RUN_ID": "1"}.items():
        monkeypatch.setenv(name, value)
    trainer = built(tmp_path, num_nodes=2)
    assert (trainer.global_rank, trainer.world_size) == (0, 2)


@pytest.mark.parametrize("precision", ["32-true", "16-mixed", "bf16-mixed", "bf16-true", "64-true"])
def test_the_precision_in_effect_is_the_one_asked_for(tmp_path: Path, precision: str) -> None:
    trainer = built(tmp_path, precision=precision)
    assert trainer.precision == precision
    with trainer.precision_plugin.forward_context():
        product = torch.ones(2, 2) @ torch.ones(2, 2)
    expected = {"16-mixed": torch.float16, "bf16-mixed": torch.bfloat16, "bf16-true": torch.bfloat16}
    assert product.dtype == expected.get(precision, torch.float64 if precision == "64-true" else torch.float32)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"precision": "16-true"}, "trainer.precision=16-true cannot train"),
        ({"precision": "transformer-engine"}, "trainer.precision=transformer-engine is not known: 32-true, 16-mixed,"),
        ({"precision": "16"}, "trainer.precision=16 is not known"),
        (
            {"strategy": "fsdp", "precision": "16-mixed"},
            "does not go with trainer.strategy=fsdp: 32-true or bf16-mixed",
        ),
        ({"compile": "fast"}, "trainer.compile=fast is not known: default, reduce-overhead, max-autotune, or null"),
        ({"compile": "default", "strategy": "fsdp"}, "trainer.compile=default does not go with trainer.strategy=fsdp"),
        ({"strategy": "deepspeed"}, "trainer.strategy=deepspeed is not known: auto, ddp, fsdp."),
        ({"strategy": "ddp_spawn"}, "trainer.strategy=ddp_spawn is not known"),
        ({"strategy": "ddp_notebook"}, "trainer.strategy=ddp_notebook is not known"),
        ({"strategy": "fsdp1"}, "trainer.strategy=fsdp1 is not known"),
        ({"accelerator": "abacus"}, "trainer.accelerator=abacus"),
    ],
)
def test_what_cannot_work_is_refused_by_name(tmp_path: Path, changed: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput) as caught:
        built(tmp_path, **changed)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(torch.accelerator.is_available(), reason="this machine has an accelerator")
def test_a_gpu_that_is_not_here_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="accelerator=gpu: this machine has no GPU"):
        built(tmp_path, accelerator="gpu")


def test_a_number_of_processes_is_a_number(train: Any) -> None:
    assert "data.batch_size=32 cannot be dealt evenly to 100000 processes" in train("trainer.devices=100000").err
    assert "trainer.devices=-1 must be at least 1" in train("trainer.devices=-1").err
    assert "trainer.devices='auto' must be a whole number" in train("trainer.devices=auto").err


@pytest.mark.parametrize(
    ("keys", "cores", "told"),
    [
        (["model.n_embd=128"], 8, True),
        (["model.n_embd=32"], 8, False),
        (["model.n_embd=128", "threads=2"], 8, False),
        (["model.n_embd=128"], 1, False),
        (["-m", "model.n_embd=128"], 8, False),
    ],
    ids=["large", "small", "as many as wanted", "one core", "in a sweep"],
)
def test_idle_cores_that_a_large_model_could_use_are_told_of(
    train: Any, keys: list[str], cores: int, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    done = train("trainer.max_steps=1", *keys)
    assert done.code == 0
    assert (f"trains faster on more: threads={cores}." in " ".join(done.out.split())) == told


@pytest.mark.parametrize(
    ("keys", "multiplied", "told"),
    [
        (["model.n_embd=128"], True, True),
        (["model.n_embd=128"], False, False),
        (["model.n_embd=32"], True, False),
        (["model.n_embd=128", "trainer.precision=64-true"], True, False),
    ],
    ids=["large", "a processor without", "small", "another precision wanted"],
)
def test_bfloat16_that_a_large_model_could_use_is_told_of(
    train: Any, keys: list[str], multiplied: bool, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trilab.run.multiplies_bfloat16", lambda: multiplied)
    done = train("trainer.max_steps=1", *keys)
    assert done.code == 0
    assert ("channels train faster with trainer.precision=bf16-mixed." in " ".join(done.out.split())) == told


@pytest.mark.parametrize(
    ("able", "library", "multiplied"),
    [("amx_bf16", True, True), ("bf16", True, True), ("bf16", False, False), ("avx512_fp16", True, False)],
)
def test_who_multiplies_bfloat16_is_found_out_from_the_processor(
    able: str, library: bool, multiplied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"architecture": "some", able: True, "avx2": True})
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: library)
    assert multiplies_bfloat16() == multiplied
