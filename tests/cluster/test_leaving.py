"""Who has launched a sweep on SLURM may leave: its jobs go on, and `trilab runs` shows them to their end."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from .background import begun
from .slurm import PARTITION, Slurm, until

pytestmark = pytest.mark.cluster

SWEEP = (
    *("-m", "hydra/launcher=slurm_cpu", f"hydra.launcher.partition={PARTITION}", "hydra.launcher.name=left"),
    *("agg=attention", "trainer.max_steps=200", "trainer.val_every=50"),
)
WATCH = ("-c", "from trilab.cli import main; main()", "runs", "--watch", "--every=0.2")


def test_a_sweep_that_nobody_waits_for_any_more_goes_on_and_can_be_watched_to_its_end(
    slurm: Slurm, tmp_path: Path, text: Path
) -> None:
    experiment = tmp_path / "outputs" / "default"
    with (
        begun(tmp_path, slurm, *SWEEP, "seed=0", text=text) as interrupted,
        begun(tmp_path, slurm, *SWEEP, "seed=1", text=text) as terminated,
    ):
        until(lambda: len(list(experiment.glob("*/.held_by"))) == 2, "two jobs that have begun")
        for sweep, signum in ((interrupted, signal.SIGINT), (terminated, signal.SIGTERM)):
            sweep.send_signal(signum)
            said, _ = sweep.communicate(timeout=30)
            assert sweep.returncode == 128 + signum, said
            assert f"Stopped by {signum.name}. Runs that were handed to a cluster go on there" in said
            assert "Traceback" not in said
    assert not list(experiment.glob("*/summary.json"))
    assert list(slurm.jobs("left").values()) == ["RUNNING"] * 2
    watched = subprocess.run([sys.executable, *WATCH, str(experiment)], capture_output=True, text=True, timeout=120)
    assert watched.returncode == 0, watched.stderr
    assert watched.stdout.startswith("default: 0 of 2 finished; 2 running")
    assert watched.stdout.count("finished  val/loss ") == 2
    assert "default: 2 of 2 finished" in watched.stdout
