"""A job that SLURM takes its node from is run again by itself, and ends with the bits of one that was never stopped."""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ..command import train_py
from ..conftest import QUICK, ROOT
from . import remains
from .slurm import PARTITION, Slurm, until

pytestmark = pytest.mark.cluster

# Some seconds of training, in which everything happens that a run has to go on from: dropout, a rate that changes,
# accumulation, validations, checkpoints at steps of their own.
LONG = (
    "agg=attention",
    "seed=0",
    "model=gpt",
    "model.n_layer=1",
    "model.dropout=0.1",
    "optim=cosine",
    "trainer.accumulate=2",
    "trainer.max_steps=400",
    "trainer.val_every=50",
    "trainer.log_every=10",
    "trainer.checkpoint_every=30",
)
DDP = ("trainer=ddp", "trainer.devices=2", *LONG)


@pytest.mark.parametrize(
    ("how", "config"),
    [(("scancel", "--signal=USR2"), DDP), (("scontrol", "requeue"), LONG)],
    ids=["told before, two processes", "at once, one process"],
)
def test_a_job_of_a_sweep_that_is_preempted_ends_as_if_it_had_not_been(
    slurm: Slurm, tmp_path: Path, text: Path, how: tuple[str, ...], config: tuple[str, ...]
) -> None:
    launcher = ("hydra/launcher=slurm_cpu", f"hydra.launcher.partition={PARTITION}", "hydra.launcher.name=preempted")
    with _in_background(tmp_path, slurm, "-m", *launcher, *config, text=text) as sweep:
        run = _under_way(tmp_path)
        slurm.ask(*how, slurm.job("preempted", "RUNNING"))
        job = slurm.job("preempted", "PENDING")
        seen = remains.step(run)
        slurm.hurry(job)
        said, _ = sweep.communicate(timeout=120)
    assert sweep.returncode == 0, said
    assert 0 < seen < 400  # it was stopped amid the training
    assert remains.of(run) == remains.of(_never_stopped(tmp_path, config, text))


def test_a_batch_script_that_is_told_of_its_end_requeues_itself_and_goes_on(
    slurm: Slurm, tmp_path: Path, text: Path
) -> None:
    script = tmp_path / "job.sh"
    script.write_text(
        "#!/bin/bash\n"
        f"#SBATCH --job-name=script --output={tmp_path}/job.out --open-mode=append\n"
        "#SBATCH --requeue --signal=USR1@60 --time=10\n"
        f"srun {shlex.join(_command(tmp_path, *LONG, text=text))}\n"
    )
    slurm.ask("sbatch", "--chdir", str(tmp_path), str(script))
    run = _under_way(tmp_path)
    slurm.ask("scancel", "--signal=USR1", slurm.job("script", "RUNNING"))
    job = slurm.job("script", "PENDING")
    seen = remains.step(run)
    slurm.hurry(job)
    until(lambda: not slurm.jobs("script"), "the end of the job", seconds=120)
    assert (run / "summary.json").exists(), (tmp_path / "job.out").read_text()
    assert 0 < seen < 400
    assert remains.of(run) == remains.of(_never_stopped(tmp_path, LONG, text))


def _command(folder: Path, *arguments: str, text: Path) -> list[str]:
    flags = [a for a in arguments if a.startswith("-")]
    keys = [a for a in arguments if not a.startswith("-")]
    given = [f"paths.outputs={folder / 'outputs'}", *QUICK, f"data.path={text}"]
    return [sys.executable, str(ROOT / "train.py"), *flags, *given, *keys]


@contextmanager
def _in_background(folder: Path, slurm: Slurm, *arguments: str, text: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        _command(folder, *arguments, text=text),
        cwd=folder,
        env=os.environ | slurm.environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def _under_way(folder: Path) -> Path:
    """The folder of the only run, once it is well into its training."""
    outputs = folder / "outputs" / "default"
    until(lambda: any(remains.step(run) >= 70 for run in outputs.glob("attention-*")), "step 70", seconds=90)
    [run] = outputs.glob("attention-*")
    return run


def _never_stopped(folder: Path, config: tuple[str, ...], text: Path) -> Path:
    alone = folder / "alone"
    alone.mkdir()
    done = train_py(alone, *config, text=text)
    assert done.code == 0, done.out + done.err
    return done.run
