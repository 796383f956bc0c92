"""What the wheel installs works far from the checkout: conf/ comes along, the user's folder is looked in."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from .conftest import ROOT

MINE = """
from trilab.agg.cumsum import CumsumMean

class Mine(CumsumMean):
    pass

class Leaky(CumsumMean):
    def mix(self, x, v):
        return v.mean(1, keepdim=True).expand_as(v)
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the wheel installs, and nothing else of ours."""
    folder = tmp_path_factory.mktemp("site")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder], cwd=ROOT, check=True)
    (wheel,) = folder.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder)
    return folder


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """The user's folder: a module, a text, a conf/ of their own."""
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "text.txt").write_text("To be, or not to be, that is the question.\n" * 40)
    (tmp_path / "conf/agg").mkdir(parents=True)
    (tmp_path / "conf/agg/own.yaml").write_text("_target_: mine.Mine\n")
    return tmp_path


def trilab(site: Path, here: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "trilab.cli", *words],
        cwd=here,
        env=os.environ | {"PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )


QUICK = ["data=file", "data.path=text.txt", "trainer.max_steps=2", "logger=none"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("keys", "run"),
    [
        (["agg=ema", "model=gpt"], "ema-seed1337-*"),
        (["model=gpt", "model.agg_per_layer=[window,attention]"], "window_attention-seed1337-*"),
        (["agg._target_=mine.Mine"], "Mine-seed1337-*"),
        (["--config-dir", "conf", "agg=own"], "Mine-seed1337-*"),
        (["hydra.searchpath=[file://conf]", "model=gpt", "model.agg_per_layer=[own,none]"], "Mine_none-seed1337-*"),
    ],
)
def test_strategies_of_the_wheel_and_of_the_user_train_outside_the_checkout(
    site: Path, here: Path, keys: list[str], run: str
) -> None:
    done = trilab(site, here, "train", *keys, *QUICK)
    assert done.returncode == 0, done.stderr
    (folder,) = (here / "outputs/default").glob(run)
    assert '"status": "finished"' in (folder / "summary.json").read_text()


@pytest.mark.slow
def test_commands_of_the_wheel_find_its_strategies_and_the_user_s_own(site: Path, here: Path) -> None:
    where = subprocess.run(
        [sys.executable, "-c", "import trilab; print(trilab.__file__)"],
        env=os.environ | {"PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert where.stdout.startswith(str(site))
    assert trilab(site, here, "check", "ema", "mine.Mine").returncode == 0
    assert trilab(site, here, "check", "mine.Leaky").returncode == 1
    assert "nope is no strategy" in trilab(site, here, "explain", "nope").stderr
    refused = trilab(site, here, "train", "agg._target_=mine.Leaky", *QUICK)
    assert refused.returncode == 2
    assert "Leaky (layer 0) sees the future" in refused.stderr
    assert not (here / "outputs/default").exists()
