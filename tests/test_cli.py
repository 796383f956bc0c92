"""`trilab …` as a user types it."""

import io
import json
import os
import signal
import subprocess
import sys
import xml.etree.ElementTree
from collections.abc import Callable
from pathlib import Path

import pytest

from trilab import __version__
from trilab.report.runs import read_runs

from .command import train_py
from .conftest import ROOT, Outcome

Train = Callable[..., Outcome]


def test_help_names_every_command(trilab: Train) -> None:
    done = trilab("--help")
    assert done.code == 0
    for command in ("train", "report", "generate"):
        assert f"\n    {command} " in done.out
    assert trilab("--version").out == f"{__version__}\n"


@pytest.mark.parametrize("arguments", [[], ["nope"], ["report"], ["generate"], ["generate", "x", "--tokens", "many"]])
def test_a_command_that_is_none_exits_with_2_and_says_how_to_use_it(trilab: Train, arguments: list[str]) -> None:
    done = trilab(*arguments)
    assert done.code == 2
    assert "usage: trilab" in done.err


class CtrlC(io.RawIOBase):
    """A standard input at which somebody presses Ctrl-C."""

    def readable(self) -> bool:
        return True

    def readinto(self, _: object) -> int:
        signal.raise_signal(signal.SIGINT)
        return 0


def test_ctrl_c_ends_a_command_with_130_and_without_a_word(trilab: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(CtrlC())))
    done = trilab("data", "-")
    assert (done.code, done.out, done.err) == (130, "", "")


def test_train_is_train_py(trilab: Train, train: Train, text: Path) -> None:
    keys = ["data=file", f"data.path={text}", "trainer.max_steps=2", "logger=none", "callbacks.sample_chars=0"]
    assert trilab("train", *keys).code == 0
    assert "Finished already" in train("trainer.max_steps=2", *keys, quick=False).out
    assert "how each position summarises its past" in trilab("train", "--help").out
    assert "sed is not a key. Did you mean seed?" in trilab("train", "sed=1").err


@pytest.mark.parametrize("arguments", [["--help"], ["train", "--help"], ["train", "sed=1"], ["report", "nowhere"]])
def test_help_and_errors_are_told_without_loading_torch(tmp_path: Path, arguments: list[str]) -> None:
    code = (
        "import atexit, sys\n"
        "atexit.register(lambda: print('LOADED', *sys.modules))\n"
        f"sys.argv = ['trilab', *{arguments}]\n"
        "from trilab.cli import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == (0 if "--help" in arguments else 2)
    loaded = done.stdout.partition("LOADED")[2].split()
    assert "trilab.cli" in loaded
    assert not {"torch", "lightning", "wandb"} & set(loaded)


def test_report_prints_the_table_and_draws_it(trilab: Train, train: Train, tmp_path: Path) -> None:
    outputs = train("-m", "agg=none,softmax").outputs
    (outputs / "default" / "report.csv").unlink()
    done = trilab("report", outputs / "default", "--svg", tmp_path / "table.svg", "--baseline", "softmax")
    assert done.code == 0
    assert "default: 2 finished" in done.out
    assert (outputs / "default" / "report.csv").exists()
    picture = xml.etree.ElementTree.parse(tmp_path / "table.svg").getroot()
    assert picture.tag.endswith("svg")
    [row] = [line for line in done.out.splitlines() if line.startswith("softmax")]
    assert "baseline" in row


def test_report_of_what_is_no_experiment_exits_with_2_and_one_line(trilab: Train, tmp_path: Path) -> None:
    done = trilab("report", tmp_path / "nowhere")
    assert done.code == 2
    assert "nowhere does not exist" in done.err
    assert len(done.err.splitlines()) == 1


@pytest.mark.slow
def test_a_locale_without_utf_8_changes_nothing(tmp_path: Path) -> None:
    text = tmp_path / "naïve 漢字.txt"
    text.write_text("naïve 漢字 🙂\n" * 300, encoding="utf-8")
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": ""}
    keys = ("agg=softmax", 'label="漢é"', 'experiment_name="é"', f'data.path="{text}"', "callbacks.sample_chars=200")
    runs, said = [], []
    places: dict[str, dict[str, str]] = {"here": {}, "there": plain}
    for name, environment in places.items():
        (tmp_path / name).mkdir()
        trained = train_py(tmp_path / name, *keys, text=Path("overridden.txt"), **environment)
        assert trained.code == 0, trained.err
        runs.append(trained.run)
        said.append(trained.out.partition("a sample")[2].partition("val/loss")[0])
    assert "漢" in said[0]
    assert said[0] == said[1]
    assert runs[0].name == runs[1].name
    assert runs[0].parent.name == runs[1].parent.name == "é"
    [row] = read_runs(runs[1].parent)
    assert (row.status, row.config["label"], row.config["data"]["path"]) == ("finished", "漢é", str(text))
    assert "漢é" in json.loads((runs[1] / "summary.json").read_text())["command"]
