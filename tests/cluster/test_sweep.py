"""Sweeps as jobs of a SLURM cluster: each preset asks for what the trainer needs, and the bits are those of any run.

SLURM counts GPUs that are not there; the trainings themselves stay on the CPU.
"""

import re
from pathlib import Path

import pytest

from ..command import train_py
from . import remains
from .slurm import PARTITION, Slurm

pytestmark = pytest.mark.cluster

ON = (f"hydra.launcher.partition={PARTITION}", "hydra.launcher.timeout_min=10")
ONE = ("agg=attention", "seed=0")


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, text: Path) -> Path:
    """The folder of the run that a job is compared with, trained without a cluster."""
    done = train_py(tmp_path_factory.mktemp("alone"), *ONE, text=text)
    assert done.code == 0, done.out + done.err
    return done.run


def test_a_sweep_of_four_jobs_with_two_processes_each_finishes_four_runs(
    slurm: Slurm, tmp_path: Path, text: Path
) -> None:
    runs = ("agg=softmax,ema", "seed=0,1", "trainer=ddp", "trainer.devices=2")
    done = train_py(tmp_path, "-m", "hydra/launcher=slurm_gpus", *ON, *runs, text=text, **slurm.environ)
    assert done.code == 0, done.out + done.err
    assert len(done.runs) == 4
    assert [remains.summary(run)["status"] for run in done.runs] == ["finished"] * 4
    assert _asked(done.outputs)["cpus-per-task"] == "2"
    assert _asked(done.outputs)["gpus-per-node"] == "2"
    # beside the runs, and not one of them
    assert (done.outputs / "default" / ".submitit").is_dir()


def test_a_job_gives_the_same_bits_as_the_run_alone(slurm: Slurm, tmp_path: Path, text: Path, alone: Path) -> None:
    done = train_py(tmp_path, "-m", "hydra/launcher=slurm_gpu", *ON, *ONE, text=text, **slurm.environ)
    assert done.code == 0, done.out + done.err
    assert _asked(done.outputs)["gpus-per-node"] == "1"
    assert remains.of(done.run) == remains.of(alone)


def test_a_run_on_two_nodes_is_the_run_on_one(slurm: Slurm, tmp_path: Path, text: Path, alone: Path) -> None:
    two_by_two = ("trainer=ddp", "trainer.devices=2", "trainer.num_nodes=2", "hydra.launcher.gpus_per_node=null")
    done = train_py(tmp_path, "-m", "hydra/launcher=slurm_nodes", *ON, *ONE, *two_by_two, text=text, **slurm.environ)
    assert done.code == 0, done.out + done.err
    assert _asked(done.outputs)["nodes"] == "2"
    assert "gpus-per-node" not in _asked(done.outputs)
    assert remains.summary(done.run)["val_loss"] == pytest.approx(remains.summary(alone)["val_loss"], abs=1e-6)


def _asked(outputs: Path) -> dict[str, str]:
    """What sbatch was asked for: the last value of each option counts."""
    [script] = outputs.glob("*/.submitit/*/*_submission.sh")
    return dict(re.findall(r"^#SBATCH --([\w-]+)=(.*)$", script.read_text(), re.MULTILINE))
