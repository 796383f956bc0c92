"""Lightning's loggers of TensorBoard and MLflow, writing below outputs/: logger=tensorboard and logger=mlflow.

Their axis is the optimizer step, as in metrics.jsonl; a training that goes on adds to what it left and doubles no row.
"""

import contextlib
import json
import os
import shutil
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml
from filelock import FileLock
from lightning.pytorch.loggers import MLFlowLogger, TensorBoardLogger

from trilab.atomic import replacing
from trilab.loggers import Line, Shows

if TYPE_CHECKING:
    from PIL import Image

# MLflow would send what it is used for to its makers, and refuses its own format of local files unless told not to
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")


class TensorBoard(TensorBoardLogger, Shows):
    """Event files in one folder.

    Args:
        folder: of this run alone; a new training empties it.
        step: optimizer steps done so far; what the folder has of later ones is void.
    """

    def __init__(self, folder: Path, step: int) -> None:
        if not step:
            shutil.rmtree(folder, ignore_errors=True)
        purge: dict[str, Any] = {"purge_step": step + 1} if step else {}
        super().__init__(folder.parent, name="", version=folder.name, default_hp_metric=False, **purge)

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        """They are in the text "config"."""

    def show_config(self, config: Mapping[str, Any]) -> None:
        """Add it as YAML."""
        self.experiment.add_text("config", _verbatim(yaml.safe_dump(dict(config), sort_keys=False)))

    def show_texts(self, name: str, texts: Sequence[tuple[int, str]], step: int) -> None:
        """Add the newest; the others are there."""
        self.experiment.add_text(name, _verbatim(texts[-1][1]), step)

    def show_picture(self, name: str, picture: "Image.Image", step: int) -> None:
        """Add it under one name for all steps."""
        self.experiment.add_image(name, np.asarray(picture), step, dataformats="HWC")

    def show_line(self, name: str, line: Line, step: int) -> None:
        """Add a chart whose axis is the line's own, a whole number."""
        for x, y in line.points:
            self.experiment.add_scalar(f"{name} ({line.y} by {line.x})", y, int(x))

    def log_summary(self, summary: Mapping[str, Any]) -> None:
        """Add the losses it came to, as charts of one point at the last step."""
        self.log_metrics({f"final/{k}": v for k, v in summary.items() if k.endswith("val_loss")}, summary["steps"])

    def finalize(self, status: str) -> None:
        """Lightning's Trainer calls this before all is logged."""

    def close(self) -> None:
        """Have all on the disk."""
        self.experiment.close()


def _verbatim(text: str) -> str:
    """Markdown that is shown as the text is."""
    text = text.encode("utf-8", "backslashreplace").decode()
    return textwrap.indent(text, "    ", lambda line: True)


@contextmanager
def tensorboard_run(folder: Path, *, config: Mapping[str, Any], step: int) -> Iterator[TensorBoard]:
    """A logger that writes to the folder, closed in the end.

    Args:
        folder, step: as in `TensorBoard`.
        config: resolved, plain, nested values.
    """
    logger = TensorBoard(folder, step)
    try:
        if not step:
            logger.show_config(config)
        yield logger
    finally:
        logger.close()


class Mlflow(MLFlowLogger, Shows):
    """One run in a store of local files.

    Args:
        store: the folder of all runs.
        experiment, name: what the run is found by.
        tags: likewise.
        run_id: the run to go on with; None begins one.
    """

    def __init__(self, store: Path, *, experiment: str, name: str, tags: Mapping[str, str], run_id: str | None) -> None:
        from mlflow import MlflowClient  # an extra

        uri = store.resolve().as_uri()
        client = MlflowClient(uri)
        if client.get_experiment_by_name(experiment) is None:  # Lightning would warn of it
            client.create_experiment(experiment)
        super().__init__(
            experiment_name=experiment,
            run_name=name,
            tracking_uri=uri,
            tags=dict(tags),
            run_id=run_id,
            synchronous=True,
        )
        self._after: dict[str, int] = {}
        if run_id is not None:
            for metric in self.experiment.get_run(run_id).data.metrics:
                history = self.experiment.get_metric_history(run_id, metric)
                self._after[metric] = max(row.step for row in history)
            self.experiment.update_run(run_id, status="RUNNING")

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Log what the run does not have already."""
        at = step or 0
        if new := {name: value for name, value in metrics.items() if at > self._after.get(name, -1)}:
            super().log_metrics(new, at)

    def show_texts(self, name: str, texts: Sequence[tuple[int, str]], step: int) -> None:
        """Keep the newest as a file; the others are there."""
        text = texts[-1][1].encode("utf-8", "backslashreplace").decode()
        self.experiment.log_text(self.run_id, text, f"{name}/step_{step:08d}.txt")

    def show_picture(self, name: str, picture: "Image.Image", step: int) -> None:
        """Keep it as a file."""
        self.experiment.log_image(self.run_id, picture, f"{name}/step_{step:08d}.png")

    def show_line(self, name: str, line: Line, step: int) -> None:
        """Keep its points as a table."""
        self.experiment.log_dict(
            self.run_id, {"columns": [line.x, line.y], "data": [list(point) for point in line.points]}, f"{name}.json"
        )

    def log_summary(self, summary: Mapping[str, Any]) -> None:
        """Log its numbers at the last step."""
        numbers = {k: float(v) for k, v in summary.items() if isinstance(v, int | float) and not isinstance(v, bool)}
        self.log_metrics(numbers, summary["steps"])

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        """They are logged when the run begins."""

    def show_config(self, config: Mapping[str, Any]) -> None:
        """Log it, flat."""
        super().log_hyperparams(dict(config))

    def finalize(self, status: str = "success") -> None:
        """Lightning's Trainer calls this before all is logged."""

    def end(self, status: str) -> None:
        """FINISHED, FAILED or KILLED."""
        self.experiment.set_terminated(self.run_id, status)


@contextmanager
def mlflow_run(
    store: Path,
    *,
    experiment: str,
    name: str,
    tags: Mapping[str, str],
    config: Mapping[str, Any],
    memory: Path,
    step: int,
) -> Iterator[Mlflow]:
    """One MLflow run for one job, finished in the end: FAILED where an Exception leaves the block, KILLED by a stop.

    Args:
        store, experiment, name, tags: as in `Mlflow`.
        config: resolved, plain, nested values.
        memory: the file that keeps the run's id for a training that goes on.
        step: optimizer steps done so far; 0 is a new training and a new run.
    """
    store.mkdir(parents=True, exist_ok=True)
    with FileLock(store / ".lock"):  # two processes would make the experiment twice
        logger = Mlflow(
            store, experiment=experiment, name=name, tags=tags, run_id=_known(memory, store) if step else None
        )
        run_id = logger.run_id
    with replacing(memory) as file:
        file.write(json.dumps({"run_id": run_id}).encode())
    status = "FINISHED"
    try:
        if not step:
            logger.show_config(config)
        yield logger
    except Exception:
        status = "FAILED"
        raise
    except BaseException:
        status = "KILLED"
        raise
    finally:
        logger.end(status)


def _known(memory: Path, store: Path) -> str | None:
    """The run that the memory names, where the store still has it."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        run_id = str(json.loads(memory.read_text(encoding="utf-8"))["run_id"])
        if list(store.glob(f"*/{run_id}/meta.yaml")):
            return run_id
    return None
