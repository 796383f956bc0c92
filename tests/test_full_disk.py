"""A disk that becomes full: what it did not take is told, nothing is left half, with room the same command goes on."""

import json
import re
import resource
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from trilab import checkpoint

from .command import train_py
from .conftest import Outcome
from .soak import Ended, ended, run_in

Train = Callable[..., Outcome]
SIX_STEPS = ("trainer.max_steps=6", "trainer.checkpoint_every=2", "model.dropout=0.1")


class Disk:
    """A small file system of its own.

    Args:
        folder: where it is mounted.
        limits: what there is room for: size=…k, nr_inodes=… (files and folders, itself among them).
    """

    def __init__(self, folder: Path, limits: str) -> None:
        self.folder = folder
        folder.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", limits, "none", folder], capture_output=True).returncode:
            pytest.skip("only root may mount a small disk")

    def grow(self) -> None:
        """Make room."""
        subprocess.run(["mount", "-o", "remount,size=16m,nr_inodes=1000", self.folder], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Callable[[str], Disk]]:
    """A small disk where outputs/ is."""
    folder = tmp_path / "outputs"
    yield lambda limits: Disk(folder, limits)
    if folder.is_mount():
        subprocess.run(["umount", folder], check=True)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One file for all, since a run's config says where it lies."""
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("abc cab bad\nhid fig jig\nace dig\n" * 60)
    return path


@pytest.fixture(scope="module")
def known() -> dict[tuple[str, ...], Ended]:
    """What commands come to where there is room; each is run once."""
    return {}


@pytest.fixture
def never_stopped(train: Train, tmp_path: Path, known: dict[tuple[str, ...], Ended]) -> Callable[..., Ended]:
    def come_to(*arguments: str) -> Ended:
        if arguments not in known:
            elsewhere = tmp_path / "elsewhere"
            assert train(*arguments, f"paths.outputs={elsewhere}").code == 0
            known[arguments] = ended(run_in(elsewhere))
        return known[arguments]

    return come_to


def assert_told(done: Outcome, what: str, why: str) -> None:
    """The command failed with one line: what could not be written, why, and what to do."""
    assert done.code == 1
    [line] = done.err.splitlines()
    assert re.search(rf"{re.escape(what)}: {why}\. The same command", line), line
    assert "Traceback" not in done.out


def assert_nothing_half(outputs: Path) -> None:
    """What is there is whole, and nobody holds it."""
    assert [path for path in outputs.rglob(".*") if path.name != ".references"] == []
    for path in outputs.rglob("*.ckpt"):
        checkpoint.load(path)
    for path in outputs.rglob("*.json"):
        json.loads(path.read_text())


# By size: a checkpoint takes 24 kB, everything else 4 kB or less. By number of files: outputs/, the experiment, the
# run, .lock, .held_by and log come first, summary.json last.
AT_THE_END = ("trainer.val_every=6", "trainer.checkpoint_every=1000")
ROWS = ("trainer.max_steps=300", "trainer.val_every=300", "trainer.checkpoint_every=1000", "trainer.log_every=1")
MOMENTS = {
    "the config": ("nr_inodes=5", AT_THE_END, "config.yaml", 0),
    "the metrics": ("nr_inodes=7", AT_THE_END, "metrics.jsonl", 0),
    "a row": ("size=24k", ROWS, "metrics.jsonl", 0),
    "the first checkpoint": ("size=16k", (), "best.ckpt", 0),
    "the first to go on from": ("size=40k", (), "last.ckpt", 0),
    "the second": ("size=64k", (), "best.ckpt", 2),
    "the third": ("size=88k", (), "best.ckpt", 4),
    "the summary": ("nr_inodes=14", AT_THE_END, "summary.json", 6),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_run_says_what_the_full_disk_did_not_take_and_goes_on_when_there_is_room(
    train: Train, disk: Callable[[str], Disk], never_stopped: Callable[..., Ended], moment: str
) -> None:
    limits, settings, what, saved = MOMENTS[moment]
    small = disk(limits)
    full = train(*SIX_STEPS, *settings)
    assert_told(full, what, "No space left on device")
    assert_nothing_half(full.outputs)
    small.grow()
    again = train(*SIX_STEPS, *settings)
    assert again.code == 0, again.err
    assert re.findall(r"Goes on from step (\d+)", again.out) == [str(saved)] * bool(saved)
    assert ended(again.run).differences(never_stopped(*SIX_STEPS, *settings)) == []


def test_a_run_whose_files_may_not_grow_says_so_and_goes_on_when_they_may(
    train: Train, never_stopped: Callable[..., Ended]
) -> None:
    with no_file_above(16 * 1024):
        full = train(*SIX_STEPS)
    assert_told(full, "best.ckpt", "File too large")
    assert_nothing_half(full.outputs)
    again = train(*SIX_STEPS)
    assert again.code == 0, again.err
    assert ended(again.run).differences(never_stopped(*SIX_STEPS)) == []


@pytest.mark.slow
def test_several_processes_end_alike_on_a_full_disk_and_go_on(
    disk: Callable[[str], Disk], tmp_path: Path, text: Path
) -> None:
    small = disk("size=64k")
    full = train_py(tmp_path, *SIX_STEPS, "trainer=ddp", text=text)
    assert_told(full, "ckpt", "No space left on device")
    assert_nothing_half(full.outputs)
    small.grow()
    again = train_py(tmp_path, *SIX_STEPS, "trainer=ddp", text=text)
    assert again.code == 0, again.err
    (tmp_path / "elsewhere").mkdir()
    whole = train_py(tmp_path / "elsewhere", *SIX_STEPS, "trainer=ddp", text=text)
    assert ended(again.run).differences(ended(whole.run)) == []


@pytest.mark.slow
def test_in_a_sweep_the_runs_that_the_disk_has_room_for_finish_and_the_others_go_on_later(
    disk: Callable[[str], Disk], tmp_path: Path, text: Path
) -> None:
    sweep = ("-m", *SIX_STEPS, "model.n_embd=1024,4", "seed=0")  # a checkpoint of the first does not fit
    small = disk("size=240k")
    full = train_py(tmp_path, *sweep, text=text)
    assert full.code == 1
    assert "Traceback" not in full.out + full.err
    assert "No space left on device" in full.out
    assert "1 of 2 runs did not finish" in full.out
    assert_nothing_half(full.outputs)
    ends = [json.loads(path.read_text())["status"] for path in full.outputs.glob("*/*/summary.json")]
    assert sorted(ends) == ["finished", "interrupted"]
    small.grow()
    again = train_py(tmp_path, *sweep, text=text)
    assert again.code == 0, again.err
    (tmp_path / "elsewhere").mkdir()
    whole = train_py(tmp_path / "elsewhere", *sweep, text=text)
    for one, other in zip(again.runs, whole.runs, strict=True):
        assert ended(one).differences(ended(other)) == []


@pytest.mark.slow
def test_a_sweep_on_a_disk_that_takes_nothing_ends_with_words(
    disk: Callable[[str], Disk], tmp_path: Path, text: Path
) -> None:
    small = disk("nr_inodes=3")
    full = train_py(tmp_path, "-m", "seed=0,1", text=text)
    assert full.code in (1, 2)
    assert "No space left on device" in full.out + full.err
    assert "Traceback" not in full.out + full.err
    small.grow()
    assert train_py(tmp_path, "-m", "seed=0,1", text=text).code == 0


@contextmanager
def no_file_above(size: int) -> Iterator[None]:
    """The system refuses to let a file of this process grow beyond so many bytes; anybody may ask for that."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
