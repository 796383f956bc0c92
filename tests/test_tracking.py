"""What W&B is told, read back from its offline files, and that nothing about W&B holds up or ends a training."""

import json
import logging
import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import wandb
import yaml
from PIL import Image
from wandb.sdk import wandb_setup

from trilab import tracking
from trilab.holder import read_holder
from trilab.launch import main
from trilab.loggers import Line, log_line, log_picture, log_texts
from trilab.tracking import Wandb, log_report, wandb_run

from .command import train_py
from .conftest import QUICK, ROOT, Outcome, exit_code
from .wandb_file import WandbRun, wandb_runs

Train = Callable[..., Outcome]
KEY = "0" * 40


@pytest.fixture(autouse=True)
def no_account(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A user without a key; W&B reads the environment once a process, so it is stopped after each test."""
    without_account(monkeypatch, tmp_path)
    monkeypatch.setattr(logging.getLogger("trilab"), "handlers", [])  # an earlier test's, which writes where it ran
    yield
    wandb.teardown()


def without_account(patch: pytest.MonkeyPatch, home: Path) -> None:
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        patch.delenv(name)
    patch.setenv("HOME", str(home))
    patch.setenv("NETRC", str(home / "netrc"))


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What trilab says to the user."""
    lines: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    log = logging.getLogger("trilab")
    monkeypatch.setattr(log, "handlers", [Keep(logging.INFO)])
    log.setLevel(logging.INFO)
    return lines


def left_in(outputs: Path) -> list[WandbRun]:
    """What is on disk once W&B's own process has written it out; finish() does not wait for that."""
    wandb.teardown()
    return wandb_runs(outputs)


def training(runs: list[WandbRun]) -> list[WandbRun]:
    """Without the reports, which a sweep logs as a run of their own."""
    return [run for run in runs if run.job_type != "report"]


# Three strategies with no key; what they left is looked at from many sides.

AGGS = ("attention", "softmax", "table")


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    folder = tmp_path_factory.mktemp("three")
    text = folder / "text.txt"
    text.write_text("abc cab bad\nhid fig jig\nace dig\n" * 60)
    given = [*QUICK, f"data.path={text}", f"paths.outputs={folder / 'outputs'}", "seed=0", "logger=wandb"]
    with pytest.MonkeyPatch.context() as patch:
        without_account(patch, folder)
        patch.chdir(folder)
        for agg in AGGS:
            patch.setattr(sys, "argv", ["train.py", *given, f"agg={agg}"])
            assert exit_code(main) == 0
        wandb.teardown()
    return Outcome(0, "", "", folder / "outputs")


@pytest.fixture(scope="module")
def runs(done: Outcome) -> list[WandbRun]:
    return wandb_runs(done.outputs)


@pytest.mark.slow  # its runs train in processes of their own
def test_without_key_and_terminal_every_run_of_a_sweep_trains_offline_and_one_line_says_how_to_sync(
    tmp_path: Path, text: Path
) -> None:
    sweep = train_py(tmp_path, "-m", f"agg={','.join(AGGS)}", "logger=wandb", text=text)
    assert sweep.code == 0, sweep.err
    *_, last = [line for line in sweep.out.splitlines() if "wandb sync" in line]
    where = sweep.outputs / "wandb" / "offline-run-*"
    assert last == f"W&B: 4 offline runs. To upload later: wandb sync {where}"  # the report is one too
    runs = wandb_runs(sweep.outputs)
    assert len({run.id for run in runs}) == 4
    assert [run.exit_code for run in runs] == [0, 0, 0, 0]
    assert len(training(runs)) == 3


def test_a_run_without_key_says_why_it_is_offline_and_how_to_sync(tmp_path: Path, said: list[str]) -> None:
    with a_run(tmp_path):
        pass
    [line] = said
    assert line.startswith("W&B offline (no key is configured: `wandb login`, or WANDB_API_KEY). To upload later: ")
    assert Path(line.partition("wandb sync ")[2]).parent == tmp_path / "wandb"


def test_every_job_is_a_run_of_its_own_and_is_finished(runs: list[WandbRun]) -> None:
    assert len({run.id for run in runs}) == 3
    assert [run.exit_code for run in runs] == [0, 0, 0]


def test_a_run_is_found_by_name_experiment_strategy_and_tags(runs: list[WandbRun]) -> None:
    for run, agg in zip(runs, AGGS, strict=True):
        assert (run.name, run.project, run.group, run.job_type) == (f"{agg}-seed0", "trilab", "default", agg)
        assert set(run.tags) == {agg, "default"}


def test_the_config_is_the_one_in_the_folder_nested_and_resolved(done: Outcome, runs: list[WandbRun]) -> None:
    for run, folder in zip(runs, done.runs, strict=True):
        assert run.config == yaml.safe_load((folder / "config.yaml").read_text())
        assert run.config["agg"]["_target_"].startswith("trilab.agg.")
        assert run.config["seed"] == 0
    assert runs[0].config["agg"]["n_head"] == 1  # in YAML: ${model.n_head}


def test_the_history_is_that_of_metrics_jsonl_on_the_axis_of_steps(done: Outcome, runs: list[WandbRun]) -> None:
    for run, folder in zip(runs, done.runs, strict=True):
        for name in ("val/loss", "val/bits_per_char", "train/loss", "lr"):
            rows = [(row["trainer/global_step"], row[name]) for row in run.history if name in row]
            written = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
            assert rows == [(row["step"], row[name]) for row in written if name in row]
            assert len(rows) == 2
    assert runs[0].metrics["*"].step_metric == "trainer/global_step"
    assert runs[0].metrics["val/loss"].step_metric == "trainer/global_step"


def test_the_summary_holds_what_the_run_came_to(done: Outcome, runs: list[WandbRun]) -> None:
    for run, folder in zip(runs, done.runs, strict=True):
        told = json.loads((folder / "summary.json").read_text())
        for name in ("val_loss", "best_val_loss", "best_step", "steps", "n_params", "chars_per_second", "data"):
            assert run.summary[name] == told[name]


def test_the_sample_is_a_table_and_the_weights_are_an_image(done: Outcome, runs: list[WandbRun]) -> None:
    for run, folder in zip(runs, done.runs, strict=True):
        [files] = (done.outputs / "wandb").glob(f"*{run.id}/files")
        [sample] = [row["sample/path"] for row in run.history if "sample/path" in row]
        assert json.loads((files / sample).read_text())["data"] == [[4, (folder / "sample.txt").read_text()]]
        [[picture]] = [row["weights/layer_0/filenames"] for row in run.history if "weights/layer_0/filenames" in row]
        with Image.open(files / picture) as image:
            assert image.size == (256, 256)
            assert len(image.getcolors() or []) > 1


def test_no_checkpoint_is_uploaded(done: Outcome, runs: list[WandbRun]) -> None:
    for run in runs:
        assert {name.removeprefix(f"run-{run.id}-") for name in run.artifacts} <= {"sample", "loss_by_position_table"}
    assert not list((done.outputs / "wandb").rglob("*.ckpt"))


def test_the_summary_keeps_the_lowest_validation_loss_not_the_last(tmp_path: Path) -> None:
    with a_run(tmp_path) as logger:
        for step, loss in enumerate((3.0, 2.0, 2.5)):
            logger.log_metrics({"val/loss": loss, "train/loss": loss}, step=step)
    [run] = left_in(tmp_path)
    assert run.summary["val/loss"] == {"min": 2.0}
    assert run.summary["train/loss"] == 2.5


def test_what_is_drawn_over_steps_says_how_its_best_is_found(runs: list[WandbRun]) -> None:
    for run in runs:
        for name in ("val/loss", "val/bits_per_char", "val/perplexity"):
            assert (run.metrics[name].step_metric, run.metrics[name].summary.min) == ("trainer/global_step", True)
        assert run.metrics["val/accuracy"].summary.max
        assert run.metrics["trainer/global_step"].options.hidden  # an axis is no chart


def test_the_perplexity_is_e_to_the_mean_loss(runs: list[WandbRun]) -> None:
    rows = [row for run in runs for row in run.history if "val/loss" in row]
    assert rows
    for row in rows:
        assert row["val/perplexity"] == pytest.approx(math.exp(row["val/loss"]), rel=1e-6)


def test_the_summary_names_the_final_and_the_best_loss_of_an_overfitted_run(train: Train, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("a" * 900 + "b" * 100)  # what is trained on makes what is validated on ever less likely
    done = train("logger=wandb", f"data.path={text}", "trainer.max_steps=12", "trainer.val_every=4")
    [run] = left_in(done.outputs)
    losses = [row["val/loss"] for row in run.history if "val/loss" in row]
    assert losses[-1] > min(losses)
    assert run.summary["val_loss"] == losses[-1]
    assert run.summary["best_val_loss"] == run.summary["val/loss"]["min"] == min(losses)


def test_the_summary_has_no_lists_of_numbers(tmp_path: Path) -> None:
    blocks = {"nats": [1.0, 2.0], "characters": [3]}
    with a_run(tmp_path) as logger:
        logger.log_summary(
            {
                "val_loss": 2.0,
                "loss_by_position": [1.0],
                "loss_by_block": blocks,
                "check": {"layers": ["ema"], "at": [1]},
            }
        )
    [run] = left_in(tmp_path)
    assert (run.summary["val_loss"], run.summary["check"]) == (2.0, {"layers": ["ema"]})
    assert not {"loss_by_position", "loss_by_block"} & run.summary.keys()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["optim.lr=1e30"], "Diverged"),
        pytest.param(["-m", "agg=attention", "agg.n_head=5"], "BadInput", marks=pytest.mark.slow),
    ],
)
def test_a_failed_run_is_finished_and_marked_failed(train: Train, arguments: list[str], error: str) -> None:
    done = train(*arguments, "logger=wandb")
    assert done.code == 1
    assert json.loads((done.run / "summary.json").read_text())["error"]["type"] == error
    [run] = training(left_in(done.outputs))
    assert run.exit_code == 1


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit, RuntimeError])
def test_whatever_ends_a_run_finishes_it_as_failed(tmp_path: Path, stop: type[BaseException]) -> None:
    with pytest.raises(stop), a_run(tmp_path):
        raise stop
    assert [run.exit_code for run in left_in(tmp_path)] == [1]


def test_bad_input_to_a_single_run_starts_no_run(train: Train) -> None:
    done = train("agg=attention", "agg.n_head=5", "logger=wandb")
    assert done.code == 2
    assert not (done.outputs / "wandb").exists()


def test_logger_none_makes_no_wandb_folder(train: Train) -> None:
    done = train("logger=none")
    assert done.code == 0
    assert not (done.outputs / "wandb").exists()


# Servers of our own, on this machine.


class Server(ThreadingHTTPServer):
    """Enough of W&B for a run: takes all, keeps what runs say of themselves, or answers every call with an error."""

    daemon_threads = True

    def __init__(self, status: int = 200) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.known: dict[str, dict[str, Any]] = {}
        """Summaries of the runs that it has, by id."""
        self.rows: list[dict[str, Any]] = []
        self.status = status
        self.silent = threading.Event()
        self.runs: list[dict[str, Any]] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.answer({})

    def do_PUT(self) -> None:
        self.answer({})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        call = json.loads(body) if self.path == "/graphql" else {"query": ""}
        if self.path.endswith("/file_stream"):
            sent = json.loads(body).get("files", {}).get("wandb-history.jsonl", {}).get("content", [])
            self.server.rows += [json.loads(line) for line in sent]
        if "RunResumeStatus" in call["query"]:
            self.answer({"data": {"model": self.bucket(call["variables"]["name"])}})
        elif "UpsertBucket" in call["query"]:
            self.server.runs.append(call["variables"])
            project = {"id": "1", "name": "trilab", "entity": {"id": "1", "name": "somebody"}}
            bucket = {"id": "1", "name": call["variables"]["name"], "config": "{}", "project": project}
            self.answer({"data": {"upsertBucket": {"bucket": bucket, "inserted": True}}})
        elif "CreateRunFiles" in call["query"]:
            files = [{"name": n, "uploadUrl": f"{self.server.url}/upload"} for n in call["variables"]["files"]]
            self.answer({"data": {"createRunFiles": {"runID": "1", "uploadHeaders": [], "files": files}}})
        else:
            self.answer({})

    def bucket(self, run: str) -> dict[str, Any]:
        project = {"name": "trilab", "entity": {"id": "1", "name": "somebody"}, "bucket": None}
        if run not in self.server.known:
            return project
        counts = {"logLineCount": 0, "historyLineCount": 7, "eventsLineCount": 0}
        tails = {"historyTail": json.dumps([json.dumps({"_step": 6})]), "eventsTail": "[]"}
        kept = {"config": "{}", "summaryMetrics": json.dumps(self.server.known[run]), "wandbConfig": '{"t": 1}'}
        named = {"name": run, "displayName": run, "tags": [], "notes": None}
        return project | {"bucket": named | counts | tails | kept}

    def answer(self, content: dict[str, Any]) -> None:
        if self.server.silent.is_set():
            self.server.silent.wait()
            time.sleep(60)
        data = json.dumps(content).encode()
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_request(self, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], Server]]:
    started: list[Server] = []

    def start(status: int = 200) -> Server:
        started.append(Server(status))
        monkeypatch.setenv("WANDB_BASE_URL", started[-1].url)
        monkeypatch.setenv("WANDB_API_KEY", KEY)
        return started[-1]

    yield start
    for one in started:
        one.shutdown()
        one.server_close()


def a_run(
    outputs: Path, *, mode: str = "auto", memory: Path | None = None, step: int = 0
) -> AbstractContextManager[Wandb]:
    config = {"agg": {"_target_": "trilab.agg.sum.Sum"}}
    return wandb_run(
        outputs,
        project="trilab",
        entity=None,
        mode=mode,
        name="sum-seed0",
        group="part03",
        job_type="sum",
        tags=["sum"],
        config=config,
        memory=memory or outputs / "wandb.json",
        step=step,
    )


def test_with_a_key_and_a_server_the_run_is_online(
    server: Callable[..., Server], tmp_path: Path, said: list[str]
) -> None:
    web = server()
    with a_run(tmp_path) as logger:
        logger.log_metrics({"val/loss": 2.0}, step=1)
    first = web.runs[0]
    assert (first["displayName"], first["groupName"], first["jobType"]) == ("sum-seed0", "part03", "sum")
    assert first["tags"] == ["sum"]
    assert json.loads(first["config"])["agg"] == {"value": {"_target_": "trilab.agg.sum.Sum"}}
    assert said == [f"W&B run: {web.url}/somebody/trilab/runs/{first['name']}"]
    assert [run.exit_code for run in left_in(tmp_path)] == [0]


def test_a_key_that_the_server_refuses_means_offline(
    server: Callable[..., Server], tmp_path: Path, said: list[str]
) -> None:
    server(401)
    with a_run(tmp_path):
        pass
    [line] = said
    assert line.startswith("W&B offline (")
    assert "wandb sync" in line
    assert 0 in [run.exit_code for run in left_in(tmp_path)]


def test_a_key_that_is_none_means_offline(
    server: Callable[..., Server], tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server()
    monkeypatch.setenv("WANDB_API_KEY", "short")
    with a_run(tmp_path):
        pass
    [line] = said
    assert line.startswith("W&B offline (")
    assert [run.exit_code for run in left_in(tmp_path)] == [0]


def test_a_server_that_cannot_be_reached_costs_no_time(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    began = time.monotonic()
    done = train("logger=wandb")
    assert time.monotonic() - began < 15
    assert done.code == 0
    assert "W&B offline (http://127.0.0.1:9 cannot be reached" in done.out
    assert [run.exit_code for run in left_in(done.outputs)] == [0]


@pytest.mark.parametrize("patience", [0, 5])
def test_a_process_of_w_and_b_that_does_not_end_is_killed_and_waited_for(
    monkeypatch: pytest.MonkeyPatch, patience: float
) -> None:
    service = wandb_setup.singleton().ensure_service()._proc
    assert service is not None
    with monkeypatch.context() as broken:
        broken.setattr(wandb, "teardown", lambda: 1 / 0)
        with nullcontext() if patience == 0 else pytest.raises(ZeroDivisionError):
            tracking._end_service(patience)
    assert service._process.returncode == -signal.SIGKILL
    with suppress(Exception):  # it says goodbye to what is gone
        wandb.teardown()


HANGS = """
import sys, time
from pathlib import Path
from trilab.tracking import wandb_run

began = time.time()
with wandb_run(Path(sys.argv[1]), project="p", entity=None, mode="auto", name="n", group="g", job_type="j", tags=[],
               config={}, memory=Path(sys.argv[1]) / "wandb.json", step=0):
    print(time.time() - began)
print(time.time())
"""


@pytest.mark.slow  # it waits for that server
def test_a_server_that_takes_calls_and_never_answers_costs_seconds(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"http://127.0.0.1:{mute.getsockname()[1]}"
        done = subprocess.run(
            [sys.executable, "-c", HANGS, tmp_path],
            env=os.environ | {"WANDB_BASE_URL": url, "WANDB_API_KEY": KEY, "PYTHONPATH": str(ROOT / "src")},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )
        ended = time.time()
    assert done.returncode == 0, done.stderr
    start, finished = map(float, done.stdout.split())
    assert start < tracking.CONNECT_TIMEOUT + tracking.INIT_TIMEOUT + 7
    assert ended - finished < 8  # with its reports about itself on, W&B waits here for ten seconds more
    assert 0 in [run.exit_code for run in left_in(tmp_path)]


def test_a_server_lost_in_mid_run_holds_up_the_end_no_longer_than_said(
    server: Callable[..., Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracking, "FINISH_TIMEOUT", 1)
    web = server()
    with a_run(tmp_path) as logger:
        web.silent.set()
        began = time.monotonic()
        for step in range(100):
            logger.log_metrics({"val/loss": 2.0}, step=step)
        assert time.monotonic() - began < 2
        began = time.monotonic()
    assert time.monotonic() - began < 6
    [run] = left_in(tmp_path)
    assert len(run.history) == 100


# A training that goes on.


def kept(memory: Path) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = json.loads(memory.read_text())["parts"]
    return parts


def test_a_training_that_goes_on_offline_adds_a_part_that_says_what_it_continues(
    tmp_path: Path, said: list[str]
) -> None:
    memory = tmp_path / "wandb.json"
    with a_run(tmp_path, memory=memory) as logger:
        logger.log_metrics({"val/loss": 2.0}, step=20)
    with a_run(tmp_path, memory=memory, step=20) as logger:
        logger.log_metrics({"val/loss": 1.0}, step=40)
    first, second = left_in(tmp_path)
    assert (first.name, second.name) == ("sum-seed0", "sum-seed0 part 2")
    assert (second.config["continues"], second.config["from_step"]) == (first.id, 20)
    assert "continues" not in first.config
    assert first.group == second.group
    assert [[row["trainer/global_step"] for row in run.history] for run in (first, second)] == [[20], [40]]
    assert kept(memory) == [
        {"id": first.id, "mode": "offline", "from_step": 0},
        {"id": second.id, "mode": "offline", "from_step": 20},
    ]
    assert f"Part 2: it continues {first.id} from step 20." in said[1]
    assert len(said) == 2


def test_a_new_training_forgets_the_parts_of_the_old_one(tmp_path: Path) -> None:
    memory = tmp_path / "wandb.json"
    for _ in range(2):
        with a_run(tmp_path, memory=memory):
            pass
    assert len(kept(memory)) == 1
    assert [run.name for run in left_in(tmp_path)] == ["sum-seed0", "sum-seed0"]


def test_online_the_same_run_goes_on_and_no_step_goes_back(
    server: Callable[..., Server], tmp_path: Path, said: list[str]
) -> None:
    web, memory = server(), tmp_path / "wandb.json"
    with a_run(tmp_path, memory=memory) as logger:
        logger.log_metrics({"val/loss": 2.0}, step=20)
    [part] = kept(memory)
    assert part == {"id": web.runs[0]["name"], "mode": "online", "from_step": 0}
    web.known[part["id"]] = {"trainer/global_step": 30}  # ten steps more than the checkpoint has
    web.rows.clear()
    with a_run(tmp_path, memory=memory, step=20) as logger:
        for step in (25, 30, 35, 40):
            logger.log_metrics({"val/loss": 1.0}, step=step)
    assert {run["name"] for run in web.runs} == {part["id"]}
    assert kept(memory) == [part]
    assert [row["trainer/global_step"] for row in web.rows if "val/loss" in row] == [35, 40]
    assert min(row["_step"] for row in web.rows) == 7
    assert said == [f"W&B run: {web.url}/somebody/trilab/runs/{part['id']}"] * 2


def test_a_training_begun_online_goes_on_offline_as_a_further_part(
    server: Callable[..., Server], tmp_path: Path
) -> None:
    server()
    memory = tmp_path / "wandb.json"
    with a_run(tmp_path, memory=memory):
        pass
    with a_run(tmp_path, memory=memory, mode="offline", step=20):
        pass
    first, second = left_in(tmp_path)
    assert second.config["continues"] == first.id != second.id
    assert [part["mode"] for part in kept(memory)] == ["online", "offline"]


@pytest.mark.parametrize("content", ["", "[]", '{"parts": [{"id": 3, "mode": "online", "from_step": 0}]}', '{"parts'])
def test_a_damaged_memory_is_told_and_nothing_is_continued(tmp_path: Path, said: list[str], content: str) -> None:
    memory = tmp_path / "wandb.json"
    memory.write_text(content)
    with a_run(tmp_path, memory=memory, step=20):
        pass
    [run] = left_in(tmp_path)
    assert "continues" not in run.config
    assert [part["id"] for part in kept(memory)] == [run.id]
    assert [line for line in said if "cannot be read" in line] == said[:1]


def test_an_id_in_the_environment_is_given_to_one_training_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_RUN_ID", "mine")
    monkeypatch.setenv("WANDB_SWEEP_ID", "somesweep")  # as `wandb agent` sets them
    for folder in ("a", "b"):
        with a_run(tmp_path, memory=tmp_path / folder / "wandb.json"):
            pass
    with a_run(tmp_path, memory=tmp_path / "a" / "wandb.json", step=20):
        pass
    first, second = kept(tmp_path / "a" / "wandb.json")
    [other] = kept(tmp_path / "b" / "wandb.json")
    assert first["id"] == "mine"
    assert len({first["id"], second["id"], other["id"]}) == 3
    assert {run.id for run in left_in(tmp_path)} == {first["id"], second["id"], other["id"]}


def test_under_an_agent_an_online_run_goes_on_under_the_agents_id(
    server: Callable[..., Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    web, memory = server(), tmp_path / "wandb.json"
    monkeypatch.setenv("WANDB_RUN_ID", "mine")
    monkeypatch.setenv("WANDB_SWEEP_ID", "somesweep")
    for step in (0, 20):
        with a_run(tmp_path, memory=memory, step=step):
            pass
        web.known["mine"] = {"trainer/global_step": 20}
    assert {run["name"] for run in web.runs} == {"mine"}
    assert web.runs[0]["sweep"] == "somesweep"
    assert len(kept(memory)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("processes", [(), ("trainer=ddp",)], ids=["one process", "two processes"])
def test_a_training_that_is_stopped_and_goes_on_is_two_parts_that_miss_no_row(
    tmp_path: Path, text: Path, processes: tuple[str, ...]
) -> None:
    given = ("logger=wandb", "trainer.max_steps=300", "trainer.val_every=50", "trainer.log_every=1", *processes)
    with ThreadPoolExecutor() as aside:
        stopped = aside.submit(train_py, tmp_path, *given, text=text)
        while len(rows_in(tmp_path / "outputs")) < 70 and not stopped.done():
            time.sleep(0.01)
        [metrics] = (tmp_path / "outputs").glob("*/*/metrics.jsonl")
        who = read_holder(metrics.parent)
        assert who is not None
        assert who.pid is not None
        os.kill(who.pid, signal.SIGTERM)
    assert stopped.result().code == 128 + signal.SIGTERM
    done = train_py(tmp_path, *given, text=text)
    assert done.code == 0, done.err
    first, second = wandb_runs(done.outputs)  # not one for each process
    assert (first.preempted, first.exit_code, second.exit_code) == (True, 1, 0)
    stopped_at = second.config["from_step"]
    assert second.config["continues"] == first.id
    assert [part["id"] for part in kept(done.run / "wandb.json")] == [first.id, second.id]
    written = rows_in(done.outputs)
    for run, part in ((first, range(stopped_at + 1)), (second, range(stopped_at + 1, 301))):
        steps = [row["trainer/global_step"] for row in run.history]
        assert steps == sorted(steps)
        for name in ("train/loss", "val/loss"):
            told = [(row["trainer/global_step"], row[name]) for row in run.history if name in row]
            assert told == [(row["step"], row[name]) for row in written if name in row and row["step"] in part]
            assert told


def rows_in(outputs: Path) -> list[dict[str, Any]]:
    """Whole lines of the only metrics.jsonl, while it grows too."""
    found = [path.read_text() for path in outputs.glob("*/*/metrics.jsonl")]
    return [json.loads(line) for line in "".join(found).splitlines(keepends=True) if line.endswith("\n")]


# What W&B may not hold up or end: its process dies, hangs, cannot begin; its disk is full.


def service() -> int:
    """Process id of W&B's own process."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    [found] = [int(child) for child in children if "wandb-core" in Path(f"/proc/{child}/cmdline").read_text()]
    return found


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_when_its_process_dies_or_hangs_the_training_goes_on_with_one_warning(
    tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch, how: signal.Signals
) -> None:
    monkeypatch.setattr(tracking, "FINISH_TIMEOUT", 0.2)
    monkeypatch.setattr(tracking, "CALL_TIMEOUT", 0.4)
    with a_run(tmp_path) as logger:
        process = service()
        os.kill(process, how)
        began = time.monotonic()
        for step in range(3000):
            logger.log_metrics({"val/loss": 2.0}, step=step)
    assert time.monotonic() - began < 5
    assert len([line for line in said if line.startswith("W&B stopped (")]) == 1
    assert len(said) == 2  # the first says that it is offline
    assert not Path(f"/proc/{process}").exists()


def test_on_a_full_disk_one_warning_says_so(tmp_path: Path, said: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", disk], capture_output=True).returncode:
        pytest.skip("only root may mount a small disk")
    try:
        (disk / "filled").write_bytes(bytes(36 * 1024))
        with a_run(disk) as logger:
            for step in range(800):
                logger.log_metrics({"val/loss": 2.0}, step=step)
        wandb.teardown()
    finally:
        subprocess.run(["umount", disk], check=True)
    assert [line for line in said if "is full" in line] == said[1:]
    assert len(said) == 2
    assert capfd.readouterr().err == ""


def test_a_folder_that_cannot_be_written_costs_the_logging_only(tmp_path: Path, said: list[str]) -> None:
    (tmp_path / "outputs").write_text("a file")
    with a_run(tmp_path / "outputs") as logger:
        logger.log_metrics({"val/loss": 2.0}, step=1)
        logger.log_text("sample", columns=["text"], data=[["abc"]])
    [line] = said
    assert line.startswith("W&B cannot be used (FileExistsError")


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_a_stop_means_preempted_and_an_error_leaves_its_traceback(tmp_path: Path, stop: type[BaseException]) -> None:
    with pytest.raises(stop), a_run(tmp_path):
        raise stop
    with pytest.raises(ZeroDivisionError), a_run(tmp_path):
        print(1 / 0)
    stopped, failed = sorted(left_in(tmp_path), key=lambda run: "error" in run.summary)
    assert (stopped.preempted, failed.preempted) == (True, False)
    assert (stopped.exit_code, failed.exit_code) == (1, 1)
    assert "error" not in stopped.summary
    assert failed.summary["error"].startswith("Traceback")
    assert "ZeroDivisionError: division by zero" in failed.summary["error"]


CHILDREN = """
import multiprocessing, os, sys
from pathlib import Path

def train(outputs):
    from trilab.tracking import wandb_run
    with wandb_run(outputs, project="p", entity=None, mode="offline", name="n", group="g", job_type="j", tags=[],
                   config={}, memory=outputs / f"{os.getpid()}.json", step=0) as logger:
        logger.log_metrics({"a": 1.0}, step=1)
    print(Path(f"/proc/self/task/{os.getpid()}/children").read_text().strip(), flush=True)
    os._exit(0)

if __name__ == "__main__":
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["trilab.tracking"])
    runs = [context.Process(target=train, args=(Path(sys.argv[1]),)) for _ in range(2)]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
"""


@pytest.mark.slow  # the fork server imports torch
def test_runs_in_children_of_a_fork_server_are_whole_and_leave_no_process(tmp_path: Path) -> None:
    program = tmp_path / "children.py"
    program.write_text(CHILDREN)
    done = subprocess.run(
        [sys.executable, program, tmp_path],
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.split() == []
    first, second = wandb_runs(tmp_path)
    assert first.id != second.id
    assert [(run.exit_code, len(run.history)) for run in (first, second)] == [(0, 1), (0, 1)]


# What is shown besides numbers.


def table_of(outputs: Path, row: dict[str, Any], name: str) -> dict[str, Any]:
    """A table as the file that W&B uploads has it."""
    [path] = (outputs / "wandb").glob(f"*run-*/files/{row[f'{name}/path']}")
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def test_samples_grow_into_one_table_and_pictures_have_a_step_each(train: Train) -> None:
    done = train("logger=wandb", "callbacks.show_every=2", "trainer.max_steps=6", "callbacks.sample_chars=120")
    [run] = left_in(done.outputs)
    grown = [
        (row["trainer/global_step"], table_of(done.outputs, row, "sample")["data"])
        for row in run.history
        if "sample/path" in row
    ]
    assert [(step, [at for at, _ in rows]) for step, rows in grown] == [(2, [2]), (4, [2, 4]), (6, [2, 4, 6])]
    assert grown[2][1][:2] == grown[1][1]
    assert [len(text) for _, text in grown[2][1]] == [100, 100, 120]
    pictures = [row["trainer/global_step"] for row in run.history if "weights/layer_0/filenames" in row]
    assert pictures == [2, 4, 6]


def test_a_line_is_w_and_b_s_own_chart_of_a_table(tmp_path: Path) -> None:
    with a_run(tmp_path) as logger:
        log_line([logger], "loss_by_position", Line("position", "nats", [(0, 3.0), (1, 2.5)]), step=7)
    [run] = left_in(tmp_path)
    [row] = [row for row in run.history if "loss_by_position_table/path" in row]
    assert row["trainer/global_step"] == 7
    table = table_of(tmp_path, row, "loss_by_position_table")
    assert (table["columns"], table["data"]) == (["position", "nats"], [[0, 3.0], [1, 2.5]])
    [chart] = [value for key, value in run.config_of_charts.items() if "loss_by_position" in key]
    assert chart["panel_config"]["panelDefId"] == "wandb/line/v0"


def test_what_the_server_has_already_is_not_shown_again(server: Callable[..., Server], tmp_path: Path) -> None:
    web, memory = server(), tmp_path / "wandb.json"
    with a_run(tmp_path, memory=memory):
        pass
    web.known[kept(memory)[0]["id"]] = {"trainer/global_step": 30}
    web.rows.clear()
    with a_run(tmp_path, memory=memory, step=20) as logger:
        for step in (25, 30):
            log_texts([logger], "sample", [(step, "abc")], step)
            log_line([logger], "loss_by_position", Line("position", "nats", [(0, 3.0)]), step)
        for step in (25, 30, 35, 40):
            log_picture([logger], "weights/layer_0", Image.new("RGB", (2, 2)), step)
        assert not logger.broken
    shown = [row for row in web.rows if {"sample", "weights/layer_0", "loss_by_position_table"} & set(row)]
    assert [row["trainer/global_step"] for row in shown] == [35, 40]


ROWS = [{"variant": "ema", "difference": -0.1, "p": None}, {"variant": "none", "interval": [0.0, 0.1]}]


def a_report(outputs: Path, page: Path) -> None:
    log_report(outputs, project="p", entity=None, mode="auto", experiment="part03", rows=ROWS, page=page)


def test_the_report_is_a_run_of_its_own_with_the_verdicts_and_the_page(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text("<!doctype html><title>é</title>")
    a_report(tmp_path, page)
    [run] = left_in(tmp_path)
    assert (run.name, run.group, run.job_type) == ("part03 report", "part03", "report")
    assert run.exit_code == 0
    [row] = [row for row in run.history if "verdicts/path" in row]
    table = table_of(tmp_path, row, "verdicts")
    assert table["columns"] == ["variant", "difference", "p", "interval"]
    assert table["data"] == [["ema", -0.1, None, None], ["none", None, None, "[0.0, 0.1]"]]
    [html] = tmp_path.glob("wandb/*run-*/files/media/html/*.html")
    assert html.read_bytes() == page.read_bytes()


@pytest.mark.parametrize("size", [None, tracking.LARGEST_PAGE + 1])
def test_a_page_that_is_not_there_or_large_is_left_out(tmp_path: Path, size: int | None, said: list[str]) -> None:
    if size:
        (tmp_path / "report.html").write_bytes(b" " * size)
    a_report(tmp_path, tmp_path / "report.html")
    assert not list(tmp_path.rglob("media/html/*"))
    assert len(said) == 1


def test_a_report_that_cannot_be_logged_stops_nothing(tmp_path: Path, said: list[str]) -> None:
    (tmp_path / "outputs").write_text("a file")
    a_report(tmp_path / "outputs", tmp_path / "report.html")
    [line] = said
    assert line.startswith("W&B cannot be used (")
