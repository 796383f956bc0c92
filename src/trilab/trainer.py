"""config.trainer → Lightning's Trainer: devices, processes, precision."""

import logging
import os
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import torch
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.plugins import MixedPrecision
from lightning.pytorch.strategies import DDPStrategy, Strategy

from trilab import config
from trilab.checkpoint_io import AtomicCheckpoints
from trilab.compiling import MODES
from trilab.errors import BadInput
from trilab.sharding import Sharded

log = logging.getLogger("trilab")

STRATEGIES = ("auto", "ddp", "fsdp")
PRECISIONS = ("32-true", "16-mixed", "bf16-mixed", "64-true", "bf16-true")
# with these the weights stay as they were spread, and no scaler has findings that the processes would have to share
SHARDED_PRECISIONS = ("32-true", "bf16-mixed")


def multiplies_bfloat16() -> bool:
    """Whether this machine's processor does, by oneDNN; elsewhere such products take ten times as long as float32's."""
    able = torch.cpu.get_capabilities()
    quick = any(able.get(name) for name in ("amx_bf16", "avx512_bf16", "bf16", "sve_bf16"))
    return quick and bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]


def build_trainer(
    wanted: config.Trainer, grad_clip: float | None, folder: Path, callbacks: Sequence[Callback]
) -> Trainer:
    """Lightning's trainer with these callbacks; it has no loggers yet.

    On several processes each calls this, with LOCAL_RANK, NODE_RANK, MASTER_ADDR and MASTER_PORT in its environment.

    Args:
        grad_clip: largest norm of all gradients together; None does not clip.
        folder: the run's.
    Raises:
        BadInput: hardware that is not here, a name that is not known, or a precision that cannot train.
    """
    _check(wanted)
    try:
        return Trainer(
            accelerator=wanted.accelerator,
            devices=wanted.devices,
            num_nodes=wanted.num_nodes,
            strategy=_strategy(wanted),
            max_steps=wanted.max_steps,
            max_epochs=-1,
            accumulate_grad_batches=wanted.accumulate,
            gradient_clip_val=grad_clip,
            # counted in micro-steps, over epochs
            val_check_interval=wanted.val_every * wanted.accumulate,
            check_val_every_n_epoch=None,
            num_sanity_val_steps=0,
            callbacks=list(callbacks),
            enable_checkpointing=False,  # Lightning's own; ours are a callback
            logger=False,
            use_distributed_sampler=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=folder,
            **_precision_and_plugins(wanted),
        )
    except (ValueError, MisconfigurationException) as error:
        raise BadInput(
            f"trainer.accelerator={wanted.accelerator}, trainer.devices={wanted.devices}, "
            f"trainer.strategy={wanted.strategy}, trainer.precision={wanted.precision}: {error}"
        ) from error


def _check(wanted: config.Trainer) -> None:
    if wanted.strategy not in STRATEGIES:
        raise BadInput(f"trainer.strategy={wanted.strategy} is not known: {', '.join(STRATEGIES)}.")
    if wanted.precision == "16-true":
        raise BadInput(
            "trainer.precision=16-true cannot train: AdamW's eps=1e-8 is 0 in float16, and a weight without a gradient "
            "becomes NaN in the first step. Use 16-mixed or bf16-true."
        )
    if wanted.precision not in PRECISIONS:
        raise BadInput(f"trainer.precision={wanted.precision} is not known: {', '.join(PRECISIONS)}.")
    if wanted.strategy == "fsdp" and wanted.precision not in SHARDED_PRECISIONS:
        raise BadInput(
            f"trainer.precision={wanted.precision} does not go with trainer.strategy=fsdp: "
            f"{' or '.join(SHARDED_PRECISIONS)}. Use trainer.strategy=ddp, or another precision."
        )
    if wanted.compile not in (None, *MODES):
        raise BadInput(f"trainer.compile={wanted.compile} is not known: {', '.join(MODES)}, or null for none.")
    if wanted.compile and wanted.strategy == "fsdp":
        raise BadInput(
            f"trainer.compile={wanted.compile} does not go with trainer.strategy=fsdp, whose weights come and go "
            "within a step. Use trainer.strategy=ddp, or trainer.compile=null."
        )
    if _device(wanted) == "cpu":
        cores = os.cpu_count() or 1
        if wanted.devices * wanted.num_nodes > 1 and wanted.devices > cores:
            log.warning("trainer.devices=%s processes share %s CPU cores.", wanted.devices, cores)
        return
    there = torch.accelerator.device_count()
    if wanted.devices > there:
        raise BadInput(
            f"trainer.devices={wanted.devices} is more than the {there} GPU{'s' * (there != 1)} of this machine. "
            f"Set trainer.devices to {there} or less, or trainer.num_nodes to use more machines."
            if there
            else f"trainer.accelerator={wanted.accelerator}: this machine has no GPU that torch can use. "
            "Set trainer.accelerator=cpu."
        )


def _device(wanted: config.Trainer) -> str:
    """cpu, or the kind of accelerator."""
    if wanted.accelerator == "cpu" or (wanted.accelerator == "auto" and not torch.accelerator.is_available()):
        return "cpu"
    found = torch.accelerator.current_accelerator()
    return found.type if found else "gpu"


def _strategy(wanted: config.Trainer) -> Strategy | Literal["auto"]:
    """How the processes work together; Lightning chooses the device of one alone."""
    world = wanted.devices * wanted.num_nodes
    timeout = timedelta(seconds=wanted.timeout)
    if world == 1:
        return "auto"
    if wanted.strategy == "fsdp":
        return Sharded(
            data_parallel_size=world, tensor_parallel_size=1, save_distributed_checkpoint=False, timeout=timeout
        )
    return DDPStrategy(timeout=timeout)


def _precision_and_plugins(wanted: config.Trainer) -> dict[str, Any]:
    # whoever starts the processes says who is who in the same way on every kind of cluster: Lightning is to look for
    # no cluster, start no processes and take no signals
    plugins = [AtomicCheckpoints(), LightningEnvironment()]
    if wanted.precision == "16-mixed" and _device(wanted) == "cpu":  # Lightning by itself would take bfloat16
        scaler = torch.amp.GradScaler("cpu")
        return {"plugins": [*plugins, MixedPrecision("16-mixed", "cpu", scaler=scaler)]}
    return {"plugins": plugins, "precision": wanted.precision}
