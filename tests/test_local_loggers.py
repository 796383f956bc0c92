"""What logger=tensorboard and logger=mlflow leave on disk, read back with their own readers."""

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trilab import config
from trilab.local_loggers import mlflow_run, tensorboard_run
from trilab.loggers import Line, log_line

from .conftest import Outcome

pytest.importorskip("tensorboard", reason="an extra: pip install 'trilab[tensorboard]'")
pytest.importorskip("mlflow", reason="an extra: pip install 'trilab[mlflow]'")

from mlflow import MlflowClient
from mlflow.entities import Run
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

Train = Callable[..., Outcome]
CONFIG = {"seed": 0, "agg": {"_target_": "trilab.agg.sum.Sum"}}


def losses_of(run: Path) -> list[tuple[int, float]]:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [(row["step"], row["val/loss"]) for row in rows if "val/loss" in row]


def events(folder: Path) -> EventAccumulator:
    return EventAccumulator(str(folder), size_guidance={"images": 0, "tensors": 0, "scalars": 0}).Reload()


def scalars(folder: Path, name: str) -> list[tuple[int, float]]:
    return [(event.step, event.value) for event in events(folder).Scalars(name)]


def texts(folder: Path, name: str) -> list[tuple[int, str]]:
    found = events(folder).Tensors(f"{name}/text_summary")
    return [(event.step, event.tensor_proto.string_val[0].decode()) for event in found]


def test_tensorboard_has_the_metrics_samples_and_pictures_by_step(train: Train) -> None:
    done = train("logger=tensorboard", "callbacks.show_every=2")
    assert done.code == 0, done.err
    folder = done.run / "tensorboard"
    for (step, loss), (at, told) in zip(losses_of(done.run), scalars(folder, "val/loss"), strict=True):
        assert (at, told) == (step, pytest.approx(loss))
    assert [step for step, _ in texts(folder, "sample")] == [2, 4]
    assert texts(folder, "sample")[-1][1].replace("\n    ", "\n")[4:] == (done.run / "sample.txt").read_text()
    assert [event.step for event in events(folder).Images("weights/layer_0")] == [2, 4]
    assert scalars(folder, "final/best_val_loss") == [(4, pytest.approx(done.summary["best_val_loss"]))]
    assert "trilab.agg.softmax" in texts(folder, "config")[0][1]


def test_tensorboard_forgets_what_comes_after_the_step_that_a_training_goes_on_from(tmp_path: Path) -> None:
    folder = tmp_path / "tensorboard"
    with tensorboard_run(folder, config=CONFIG, step=0) as logger:
        for step in (1, 2, 3, 4):
            logger.log_metrics({"a": float(step)}, step)
    with tensorboard_run(folder, config=CONFIG, step=2) as logger:
        for step in (3, 4, 5):
            logger.log_metrics({"a": 10.0 * step}, step)
    assert scalars(folder, "a") == [(1, 1.0), (2, 2.0), (3, 30.0), (4, 40.0), (5, 50.0)]
    assert len(texts(folder, "config")) == 1
    with tensorboard_run(folder, config=CONFIG, step=0) as logger:
        logger.log_metrics({"a": 7.0}, 1)
    assert scalars(folder, "a") == [(1, 7.0)]


def test_a_line_is_a_chart_over_its_own_axis(tmp_path: Path) -> None:
    with tensorboard_run(tmp_path / "tensorboard", config=CONFIG, step=0) as logger:
        log_line([logger], "loss_by_position", Line("position", "nats", [(0, 3.0), (1, 2.5)]), step=7)
    assert scalars(tmp_path / "tensorboard", "loss_by_position (nats by position)") == [(0, 3.0), (1, 2.5)]


def mlflow_runs(outputs: Path, experiment: str = "default") -> tuple[MlflowClient, list[Run]]:
    client = MlflowClient((outputs / "mlruns").as_uri())
    found = client.get_experiment_by_name(experiment)
    assert found is not None
    return client, list(client.search_runs([found.experiment_id]))


def history(client: MlflowClient, run: Run, name: str) -> list[tuple[int, float]]:
    return [(row.step, row.value) for row in client.get_metric_history(run.info.run_id, name)]


def test_mlflow_has_the_run_with_its_config_metrics_samples_and_pictures(train: Train) -> None:
    done = train("logger=mlflow", "callbacks.show_every=2")
    assert done.code == 0, done.err
    assert "not found" not in done.err
    client, [run] = mlflow_runs(done.outputs)
    assert run.info.status == "FINISHED"
    assert run.info.run_name == "softmax-seed1337"
    assert (run.data.tags["strategy"], run.data.tags["seed"]) == ("softmax", "1337")
    assert run.data.params["agg/_target_"] == "trilab.agg.softmax.SoftmaxMean"
    assert history(client, run, "val/loss") == losses_of(done.run)
    assert run.data.metrics["best_val_loss"] == done.summary["best_val_loss"]
    [store] = (done.outputs / "mlruns").glob(f"*/{run.info.run_id}/artifacts")
    assert sorted(path.name for path in store.rglob("*.txt")) == ["step_00000002.txt", "step_00000004.txt"]
    assert (store / "sample" / "step_00000004.txt").read_text() == (done.run / "sample.txt").read_text()
    assert len(list(store.glob("weights/layer_0/*.png"))) == 2


def an_mlflow_run(outputs: Path, step: int) -> Any:
    return mlflow_run(
        outputs / "mlruns",
        experiment="e",
        name="sum-seed0",
        tags={"strategy": "sum"},
        config=CONFIG,
        memory=outputs / "mlflow.json",
        step=step,
    )


def test_an_mlflow_run_that_goes_on_is_the_same_run_and_doubles_no_row(tmp_path: Path) -> None:
    def stopped_at(last: int) -> None:
        with an_mlflow_run(tmp_path, 0) as logger:
            for step in range(1, last + 1):
                logger.log_metrics({"a": float(step)}, step)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped_at(3)
    _, [stopped] = mlflow_runs(tmp_path, "e")
    assert stopped.info.status == "KILLED"
    with an_mlflow_run(tmp_path, 2) as logger:
        for step in (3, 4):
            logger.log_metrics({"a": float(step)}, step)
    client, [run] = mlflow_runs(tmp_path, "e")
    assert run.info.status == "FINISHED"
    assert history(client, run, "a") == [(1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0)]
    with pytest.raises(ZeroDivisionError), an_mlflow_run(tmp_path, 0):
        raise ZeroDivisionError
    _, runs = mlflow_runs(tmp_path, "e")
    assert sorted(run.info.status for run in runs) == ["FAILED", "FINISHED"]


def test_an_mlflow_run_that_is_no_longer_there_is_begun_anew(tmp_path: Path) -> None:
    (tmp_path / "mlflow.json").write_text('{"run_id": "gone"}')
    with an_mlflow_run(tmp_path, 2) as logger:
        logger.log_metrics({"a": 1.0}, 3)
    _, [run] = mlflow_runs(tmp_path, "e")
    assert run.data.metrics == {"a": 1.0}


@pytest.mark.parametrize("name", ["tensorboard", "mlflow"])
def test_a_logger_whose_package_is_missing_is_refused_with_the_command_that_installs_it(
    train: Train, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(config.importlib.util, "find_spec", lambda it, *rest: None if it == name else find(it, *rest))
    done = train(f"logger={name}")
    assert done.code == 2
    assert f"logger={name} needs a package that is not installed: pip install 'trilab[{name}]'." in done.err


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tensorboard", "mlflow"])
def test_two_processes_log_once(tmp_path: Path, text: Path, name: str) -> None:
    from .command import train_py

    done = train_py(tmp_path, f"logger={name}", "trainer=ddp", text=text)
    assert done.code == 0, done.err
    if name == "tensorboard":
        assert len(list((done.run / "tensorboard").glob("events*"))) == 1
        assert [step for step, _ in scalars(done.run / "tensorboard", "val/loss")] == [2, 4]
    else:
        client, [run] = mlflow_runs(done.outputs)
        assert [step for step, _ in history(client, run, "val/loss")] == [2, 4]
