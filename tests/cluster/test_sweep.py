"""Sweeps as jobs of a SLURM cluster: each preset asks for what the trainer needs, and the bits are those of any run."""

import re
from pathlib import Path

import pytest

from ..command import train_py
from . import remains
from .slurm import PARTITION, Slurm

pytestmark = pytest.mark.cluster

ON = (f"hydra.launcher.partition={PARTITION}", "hydra.launcher.timeout_min=10")


def test_a_sweep_of_four_jobs_with_two_processes_each_finishes_four_runs(
    slurm: Slurm, tmp_path: Path, text: Path
) -> None:
    runs = ("agg=softmax,ema", "seed=0,1", "trainer=ddp", "trainer.devices=2")
    done = train_py(tmp_path, "-m", "hydra/launcher=slurm_cpu", *ON, *runs, text=text, **slurm.environ)
    assert done.code == 0, done.out + done.err
    assert len(done.runs) == 4
    assert [remains.summary(run)["status"] for run in done.runs] == ["finished"] * 4
    assert _asked(done.outputs)["cpus-per-task"] == "2"
    # beside the runs, and not one of them
    assert (done.outputs / "default" / ".submitit").is_dir()


def test_a_job_gives_the_same_bits_as_the_run_alone(slurm: Slurm, tmp_path: Path, text: Path) -> None:
    job, alone = tmp_path / "job", tmp_path / "alone"
    for folder in (job, alone):
        folder.mkdir()
    config = ("agg=attention", "seed=0")
    submitted = train_py(job, "-m", "hydra/launcher=slurm_cpu", *ON, *config, text=text, **slurm.environ)
    assert submitted.code == 0, submitted.out + submitted.err
    assert train_py(alone, *config, text=text).code == 0
    [ours], [theirs] = job.glob("outputs/default/attention-*"), alone.glob("outputs/default/attention-*")
    assert remains.of(ours) == remains.of(theirs)


def test_a_run_on_two_nodes_is_the_run_on_one(slurm: Slurm, tmp_path: Path, text: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
    two_by_two = ("trainer=ddp", "trainer.devices=2", "trainer.num_nodes=2", "hydra.launcher.gpus_per_node=null")
    done = train_py(there, "-m", "hydra/launcher=slurm_nodes", *ON, *two_by_two, text=text, **slurm.environ)
    assert done.code == 0, done.out + done.err
    assert _asked(done.outputs)["nodes"] == "2"
    assert "gpus-per-node" not in _asked(done.outputs)
    alone = train_py(here, text=text)
    [ours], [theirs] = done.runs, alone.runs
    assert remains.summary(ours)["val_loss"] == pytest.approx(remains.summary(theirs)["val_loss"], abs=1e-6)


@pytest.mark.parametrize(
    ("preset", "trainer", "gpus"),
    [("slurm_gpu", ("trainer.devices=1",), "1"), ("slurm_gpus", ("trainer=ddp", "trainer.devices=2"), "2")],
)
def test_the_presets_for_gpus_ask_for_as_many_as_there_are_processes(
    slurm: Slurm, tmp_path: Path, text: Path, preset: str, trainer: tuple[str, ...], gpus: str
) -> None:
    # SLURM counts GPUs that are not there; the training itself stays on the CPU
    done = train_py(tmp_path, "-m", f"hydra/launcher={preset}", *ON, *trainer, text=text, **slurm.environ)
    assert done.code == 0, done.out + done.err
    assert _asked(done.outputs)["gpus-per-node"] == gpus
    assert remains.summary(done.run)["status"] == "finished"


def _asked(outputs: Path) -> dict[str, str]:
    """What sbatch was asked for: the last value of each option counts."""
    [script] = outputs.glob("*/.submitit/*/*_submission.sh")
    return dict(re.findall(r"^#SBATCH --([\w-]+)=(.*)$", script.read_text(), re.MULTILINE))
