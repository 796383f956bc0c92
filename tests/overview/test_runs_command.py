"""`trilab runs` as a user types it, as a process of its own."""

import json
import os
import platform
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
AddRun = Callable[..., Path]

COMMAND = (
    "import atexit, sys\n"
    "atexit.register(lambda: print('LOADED', *sorted(sys.modules), file=sys.stderr))\n"
    "sys.argv[0] = 'trilab'\n"
    "from trilab.cli import main\n"
    "main()\n"
)


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-c", COMMAND, "runs", *map(str, arguments)]


def environment(**more: str) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT / "src"), "COLUMNS": "100"} | more


def runs(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*arguments), env=environment(), capture_output=True, text=True, encoding="utf-8")


def test_it_prints_the_table_without_loading_torch(experiment: Path, add_run: AddRun) -> None:
    add_run("none", losses={1000: 2.5}, ended="finished")
    add_run("sum", losses={500: 2.5})
    done = runs(experiment)
    assert done.returncode == 0
    assert "part03: 1 of 2 finished; 1 stopped" in done.stdout
    loaded = done.stderr.partition("LOADED")[2].split()
    assert "trilab.overview" in loaded
    assert not {"torch", "lightning", "wandb", "hydra", "omegaconf", "numpy"} & set(loaded)


def test_json_is_all_there_is(experiment: Path, add_run: AddRun) -> None:
    add_run("sum", losses={500: 2.5}, ended="failed", error={"type": "E", "message": "x" * 500})
    done = runs(experiment, "--json", "--baseline", "sum")
    assert done.returncode == 0
    assert json.loads(done.stdout)["counts"]["failed"] == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nowhere",), "The folder nowhere does not exist."),
        (("nowhere", "--watch"), "The folder nowhere does not exist."),
        ((".", "--watch", "--every", "0"), "--every 0 must be a number of seconds above 0."),
        ((".", "--watch", "--json"), "not allowed with argument"),
    ],
)
def test_what_cannot_be_is_one_line_and_exit_code_2(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    done = subprocess.run(command(*arguments), cwd=tmp_path, env=environment(), capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


def test_ctrl_c_on_a_terminal_ends_the_live_screen_with_130(experiment: Path, add_run: AddRun, living: int) -> None:
    add_run("none", losses={500: 2.75}, held={"pid": living, "host": platform.node(), "sweep": None})
    ours, theirs = pty.openpty()
    arguments = command(experiment, "--watch", "--every", "0.05")
    with subprocess.Popen(
        arguments, env=environment(TERM="xterm"), stdout=theirs, stderr=subprocess.DEVNULL
    ) as watching:
        os.close(theirs)
        shown = b""
        until = time.monotonic() + 30
        while shown.count(b"1 running") < 2 and time.monotonic() < until:
            shown += os.read(ours, 65536)
        watching.send_signal(signal.SIGINT)
        while True:
            try:
                more = os.read(ours, 65536)
            except OSError:  # nobody writes any more
                break
            if not more:
                break
            shown += more
        code = watching.wait()
    os.close(ours)
    assert code == 130
    assert "▸ running".encode() in shown.rpartition(b"\x1b[?25h")[2]
    assert b"Traceback" not in shown
