"""What tests share: a small text, and train.py run as a user would run it, but in this process."""

import json
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
STRATEGIES = sorted(path.stem for path in (ROOT / "conf" / "agg").glob("*.yaml"))

# what runs in the background of a script is started with Ctrl-C ignored, and so are the commands that tests start
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# quick: two thousand characters, some steps, nothing besides the metrics
QUICK = (
    "data=file",
    "trainer.max_steps=4",
    "trainer.val_every=2",
    "trainer.log_every=2",
    "logger=none",
    "callbacks.sample_chars=5",
)


@dataclass(frozen=True)
class Outcome:
    """How a command ended and what it said and left."""

    code: int
    out: str
    err: str
    outputs: Path

    @property
    def runs(self) -> list[Path]:
        """Folders of all runs below outputs/, by name."""
        return sorted(path.parent for path in self.outputs.glob("*/*/config.yaml"))

    @property
    def run(self) -> Path:
        """The folder of the only run."""
        (run,) = self.runs
        return run

    @property
    def config(self) -> dict[str, Any]:
        """config.yaml of the only run."""
        content: dict[str, Any] = yaml.safe_load((self.run / "config.yaml").read_text(encoding="utf-8"))
        return content

    @property
    def summary(self) -> dict[str, Any]:
        """summary.json of the only run."""
        content: dict[str, Any] = json.loads((self.run / "summary.json").read_text(encoding="utf-8"))
        return content


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """A file with 2,200 characters, 11 distinct ones, that no model can guess wholly."""
    words = ["abc", "cab", "bad", "hid", "fig", "jig", "ace", "dig"]
    path = tmp_path / "text.txt"
    path.write_text("".join(f"{words[(i * i + i // 3) % 8]}{' ' if i % 5 else chr(10)}" for i in range(550)))
    return path


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    """The empty folder of an experiment."""
    folder = tmp_path / "outputs" / "part03"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def train(
    tmp_path: Path, text: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Outcome]:
    """`train("agg=softmax", …)`: train.py on the small text for four steps, outputs in a folder of the test's own."""
    from trilab.launch import main

    def run(*arguments: str, quick: bool = True) -> Outcome:
        outputs = tmp_path / "outputs"
        given = [*QUICK, f"data.path={text}"] if quick else []
        flags = [a for a in arguments if a.startswith("-")]
        keys = [a for a in arguments if not a.startswith("-")]
        monkeypatch.setattr(sys, "argv", ["train.py", *flags, f"paths.outputs={outputs}", *given, *keys])
        monkeypatch.chdir(tmp_path)
        code = exit_code(main)
        said = capsys.readouterr()
        return Outcome(code, said.out, said.err, outputs)

    return run


@pytest.fixture
def trilab(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Outcome]:
    """`trilab("report", folder, …)`: the command as a user types it, but in this process."""
    from trilab.cli import main

    def run(*arguments: str | Path) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["trilab", *map(str, arguments)])
        monkeypatch.chdir(tmp_path)
        code = exit_code(main)
        said = capsys.readouterr()
        return Outcome(code, said.out, said.err, tmp_path / "outputs")

    return run


# given by the user, written by a clock, or, as how much the gate has examined, by how far it came in its seconds
CLOCKED = ("command", "chars_per_second", "seconds", "train_seconds", "covered")


def untimed(content: Any) -> Any:
    """Lines of metrics.jsonl, or summaries, without what a clock wrote: what two equal runs have in common."""
    if isinstance(content, list):
        return [untimed(item) for item in content]
    if isinstance(content, dict):
        return {key: untimed(value) for key, value in content.items() if key not in CLOCKED}
    return content


def exit_code(main: Callable[[], None]) -> int:
    """What the process would end with if it were a program of its own."""
    try:
        main()
    except SystemExit as stopped:
        return stopped.code if isinstance(stopped.code, int) else 1
    return 0


def knobs(name: str) -> dict[str, object]:
    """What conf/agg/<name>.yaml says, as written."""
    content: dict[str, object] = yaml.safe_load((ROOT / "conf" / "agg" / f"{name}.yaml").read_text(encoding="utf-8"))
    return content
