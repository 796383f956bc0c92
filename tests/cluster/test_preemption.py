"""A job that SLURM takes its node from is run again by itself, and ends with the bits of one that was never stopped."""

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from ..command import train_py
from . import remains
from .background import at_step, begun, command
from .slurm import PARTITION, Slurm, until

pytestmark = pytest.mark.cluster

STEPS = 240
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
    f"trainer.max_steps={STEPS}",
    "trainer.val_every=50",
    "trainer.log_every=10",
    "trainer.checkpoint_every=30",
)
DDP = ("trainer=ddp", "trainer.devices=2", *LONG)


@pytest.fixture(scope="module")
def never_stopped(tmp_path_factory: pytest.TempPathFactory, text: Path) -> Callable[[tuple[str, ...]], Path]:
    """The folder of the run with this config, trained alone and in one go; once for all tests."""
    done: dict[tuple[str, ...], Path] = {}

    def run(config: tuple[str, ...]) -> Path:
        if config not in done:
            alone = train_py(tmp_path_factory.mktemp("alone"), *config, text=text)
            assert alone.code == 0, alone.out + alone.err
            done[config] = alone.run
        return done[config]

    return run


@pytest.mark.parametrize(
    ("how", "config"),
    [(("scancel", "--signal=USR2"), DDP), (("scontrol", "requeue"), LONG)],
    ids=["told before, two processes", "at once, one process"],
)
def test_a_job_of_a_sweep_that_is_preempted_ends_as_if_it_had_not_been(
    slurm: Slurm,
    tmp_path: Path,
    text: Path,
    never_stopped: Callable[[tuple[str, ...]], Path],
    how: tuple[str, ...],
    config: tuple[str, ...],
) -> None:
    launcher = ("hydra/launcher=slurm_cpu", f"hydra.launcher.partition={PARTITION}", "hydra.launcher.name=preempted")
    with begun(tmp_path, slurm, "-m", *launcher, *config, text=text) as sweep:
        run = at_step(tmp_path, 60)
        slurm.ask(*how, slurm.job("preempted", "RUNNING"))
        job = slurm.job("preempted", "PENDING")
        seen = remains.step(run)
        slurm.hurry(job)
        said, _ = sweep.communicate(timeout=120)
    assert sweep.returncode == 0, said
    assert 0 < seen < STEPS  # it was stopped amid the training
    assert remains.of(run) == remains.of(never_stopped(config))


def test_a_batch_script_with_a_task_for_each_process_requeues_itself_when_told_of_its_end_and_goes_on(
    slurm: Slurm, tmp_path: Path, text: Path, never_stopped: Callable[[tuple[str, ...]], Path]
) -> None:
    script = tmp_path / "job.sh"
    script.write_text(
        "#!/bin/bash\n"
        f"#SBATCH --job-name=script --output={tmp_path}/job.out --open-mode=append\n"
        "#SBATCH --requeue --signal=USR1@60 --time=10 --nodes=1 --ntasks-per-node=2\n"
        f"srun {shlex.join(command(tmp_path, *DDP, text=text))}\n"
    )
    slurm.ask("sbatch", "--chdir", str(tmp_path), str(script))
    run = at_step(tmp_path, 60)
    slurm.ask("scancel", "--signal=USR1", slurm.job("script", "RUNNING"))
    job = slurm.job("script", "PENDING")
    seen = remains.step(run)
    slurm.hurry(job)
    until(lambda: not slurm.jobs("script"), "the end of the job", seconds=120)
    assert (run / "summary.json").exists(), (tmp_path / "job.out").read_text()
    assert 0 < seen < STEPS
    assert remains.of(run) == remains.of(never_stopped(DDP))
