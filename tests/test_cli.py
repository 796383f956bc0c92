"""`trilab …` as a user types it."""

import os
import subprocess
import sys
import xml.etree.ElementTree
from collections.abc import Callable
from pathlib import Path

import pytest

from trilab import __version__

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


def test_generate_at_temperature_0_writes_the_same_text_from_whatever_seed(trilab: Train, train: Train) -> None:
    run = train("agg=attention").run
    one = trilab("generate", run, "--prompt", "abc", "--tokens", "40", "--temperature", "0", "--seed", "1")
    two = trilab("generate", run, "--prompt", "abc", "--tokens", "40", "--temperature", "0", "--seed", "2")
    assert one.code == 0
    assert one.out.startswith("abc")
    assert len(one.out) == 3 + 40 + 1
    assert one.out == two.out


def test_generate_draws_by_the_seed_and_takes_a_checkpoint_too(trilab: Train, train: Train, text: Path) -> None:
    run = train("agg=softmax").run
    text.unlink()  # a checkpoint needs no text
    by_run = trilab("generate", run, "--tokens", "40", "--seed", "0").out
    by_file = trilab("generate", run / "checkpoints" / "best.ckpt", "--tokens", "40", "--seed", "0").out
    assert by_run == by_file
    assert by_run != trilab("generate", run, "--tokens", "40", "--seed", "1").out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--prompt", "abé"], "'é' (U+00E9"),
        (["--prompt", ""], "--prompt is empty"),
        (["--temperature", "-1"], "--temperature -1 must be"),
        (["--temperature", "nan"], "--temperature nan must be"),
        (["--tokens", "-1"], "--tokens -1 must be"),
    ],
)
def test_generate_refuses_what_it_cannot_do_in_one_line(
    trilab: Train, train: Train, arguments: list[str], said: str
) -> None:
    done = trilab("generate", train("agg=softmax").run, *arguments)
    assert done.code == 2
    assert said in done.err
    assert len(done.err.splitlines()) == 1


def test_generate_from_what_is_no_run_says_what_a_run_has(trilab: Train, tmp_path: Path) -> None:
    done = trilab("generate", tmp_path)
    assert done.code == 2
    assert f"{tmp_path} is no run: a run's folder has checkpoints/ in it." in done.err
    (tmp_path / "checkpoints").mkdir()
    assert str(tmp_path / "checkpoints" / "best.ckpt") in trilab("generate", tmp_path).err


def test_generate_begins_by_itself_where_the_text_has_no_line_end(trilab: Train, train: Train, text: Path) -> None:
    text.write_text("Helloworld!" * 300)
    done = trilab("generate", train("agg=softmax").run, "--tokens", "5")
    assert done.code == 0, done.err


def test_characters_that_the_terminal_cannot_show_end_neither_training_nor_generate(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("naïve 漢字 🙂\n" * 300, encoding="utf-8")
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": ""}
    trained = train_py(tmp_path, "agg=softmax", "callbacks.sample_chars=200", text=text, **plain)
    assert trained.code == 0, trained.err
    done = subprocess.run(
        [sys.executable, "-m", "trilab.cli", "generate", trained.run, "--prompt", "n", "--tokens", "200"],
        env=os.environ | plain | {"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr
    assert b"\\u6f22" in done.stdout
