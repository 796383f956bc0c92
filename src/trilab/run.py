"""Config → objects → fit → result. Config ends here: everything below takes objects and numbers."""

import logging
import math
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.loggers import Logger
from rich.console import Console

from trilab import checkpoint
from trilab.atomic import replacing
from trilab.budget import matched, training_flops
from trilab.build import build_model, check_memory
from trilab.callbacks.checkpoints import Checkpoints
from trilab.callbacks.path_check import PathCheck
from trilab.callbacks.progress import TrainingProgress
from trilab.callbacks.samples import Samples
from trilab.callbacks.weight_tables import WeightTables
from trilab.config import Config, bind, check_logger, save
from trilab.corpus import read_corpus
from trilab.datamodule import CharData
from trilab.errors import BadInput
from trilab.gate import Coverage, Leak, examine
from trilab.identity import differences
from trilab.learner import Learner
from trilab.local_loggers import mlflow_run, tensorboard_run
from trilab.loggers import Line, MetricsFile, log_line, log_summary
from trilab.metrics import LossByBlock
from trilab.model import LanguageModel
from trilab.references import references_for
from trilab.report.runs import one_line
from trilab.resumable import refuse_unresumable
from trilab.stopping import patiently
from trilab.trainer import build_trainer, multiplies_bfloat16
from trilab.windows import blocks

log = logging.getLogger("trilab")

LARGE = 100  # channels of a model from which on more threads, or bfloat16, train faster; a smaller one waits for them
COUNTED_AT_MOST = 20_000_000  # characters whose n-grams are counted: half as many took 19 seconds and 0.8 GB

# keys of the trainer that change a result by rounding alone
TO_ROUNDING = ("accelerator", "accumulate", "compile", "devices", "num_nodes", "strategy")


@dataclass(frozen=True)
class Resume:
    """A checkpoint to go on from, the optimizer steps it has done, their best validation loss and its step."""

    path: Path
    step: int
    best: Mapping[str, Any]


@dataclass(frozen=True)
class Job:
    """Everything that one training needs, built and checked.

    `config` has its budgets met. `coverage` is what the gate has examined, `leak` what it found and was told to let
    pass. `resume` is what to go on from, or None for a new training.
    """

    config: Config
    data: CharData
    learner: Learner
    trainer: Trainer
    progress: TrainingProgress
    path: PathCheck | None
    coverage: Coverage | None
    leak: str | None
    resume: Resume | None


def run(config: Config, folder: Path, *, console: Console | None, alone: bool) -> dict[str, Any]:
    """Train one run to its end and leave everything but its summary in the folder.

    On several processes every one calls this; only the first writes and shows.

    Args:
        folder: where the run's files go; exists.
        console: where progress and the sample are shown; None shows nothing.
        alone: bad input is refused before anything is written; in a sweep it is a failed run, tracked as one.
    Returns:
        What was measured, for summary.json.
    Raises:
        BadInput: what cannot be trained on.
        Diverged: the loss became NaN or infinite.
    """
    torch.set_num_threads(config.threads)
    first = os.environ.get("RANK", "0") == "0"
    try:
        job = prepare(config, folder, console)
    except Exception as error:
        if first and not (alone and isinstance(error, BadInput)):
            with _tracked(config, folder, step=0):
                raise
        raise
    if first and alone:
        _tell_of_speed(job)
    step = job.resume.step if job.resume else 0
    best = _best_so_far(job.resume, folder / "checkpoints") if job.resume else None
    job.learner.best_is_lost = job.resume is not None and best is None  # for every process: they save it together
    with ExitStack() as closing:
        loggers: list[Logger] = []
        if first:
            tracked = closing.enter_context(_tracked(job.config, folder, step))
            loggers += [tracked] if tracked else []
            save(job.config, folder / "config.yaml")
            if job.resume:
                _take_over(job.resume.path, best, folder / "checkpoints")
            metrics = MetricsFile(folder / "metrics.jsonl", step)
            closing.callback(metrics.close)
            loggers.append(metrics)
        return fit(job, folder, loggers)


def _tell_of_speed(job: Job) -> None:
    """What would make the training of a large model faster, a line each. In a sweep idle cores are for other runs."""
    cores, channels = os.cpu_count() or 1, job.learner.model.token_embedding_table.embedding_dim
    on_cpu = job.trainer.strategy.root_device.type == "cpu" and job.trainer.world_size == 1
    if not on_cpu or channels < LARGE:
        return
    if job.config.threads == 1 < cores:
        said = "threads=1, and there are %d cores: a model of %d channels trains faster on more: threads=%d."
        log.info(said, cores, channels, cores)
    if job.config.trainer.precision == "32-true" and multiplies_bfloat16():
        said = "This processor multiplies bfloat16: %d channels train faster with trainer.precision=bf16-mixed."
        log.info(said, channels)


def prepare(config: Config, folder: Path, console: Console | None = None) -> Job:
    """Build everything and check that it fits together.

    Raises:
        BadInput: what cannot be trained on; a Leak, if the gate finds that something sees the future.
    """
    corpus = read_corpus(config.data.source)
    config = matched(config, len(corpus.vocabulary))
    data = CharData(
        corpus,
        seed=config.seed,
        block_size=config.data.block_size,
        batch_size=config.data.batch_size,
        val_share=config.data.val_share,
        test_share=config.data.test_share,
        val_chars=config.data.val_chars,
        max_steps=config.trainer.max_steps,
        accumulate=config.trainer.accumulate,
        world_size=config.trainer.devices * config.trainer.num_nodes,
    )
    optim = bind(config.optim, "optim")()
    check_memory(config, len(corpus.vocabulary))
    learner = Learner(
        build_model(config, len(corpus.vocabulary)),
        optim,
        seed=config.seed,
        max_steps=config.trainer.max_steps,
        description=checkpoint.describe(config.tree, corpus.vocabulary.characters),
        by_block=LossByBlock(len(data.splits.train), *blocks(len(data.splits.val), data.block_size)),
        compile_mode=config.trainer.compile,
    )
    progress = TrainingProgress(
        every=config.trainer.log_every,
        batch_chars=data.batch_chars,
        console=console if config.callbacks.progress else None,
    )
    # the checkpoints come last: what refuses a diverged training must have looked before one is written
    keep = Checkpoints(
        folder / "checkpoints",
        every=config.trainer.checkpoint_every,
        minutes=config.trainer.checkpoint_minutes,
        val_every=config.trainer.val_every,
        timeout=config.trainer.timeout,
    )
    window = data.splits.val[: data.block_size].long()[None]
    strict = config.check.causality == "error"
    path = PathCheck(window.repeat(2, 1), refuse=strict) if config.check.causality != "off" else None
    callbacks = [progress, path, *_at_the_end(config, data, window, folder, console), keep]
    with _lightning_quiet():
        trainer = build_trainer(config.trainer, optim.grad_clip, folder, [c for c in callbacks if c])
    resume = _resumable(config, folder, data, learner.model, trainer)
    coverage, leak = None, None
    if path:
        try:
            coverage = examine(learner.model, device=trainer.strategy.root_device, tell=log.info)
            log.info("%s", coverage)
        except Leak as found:
            if strict:
                raise
            leak = found.line
            log.warning("%s", found)
    return Job(config, data, learner, trainer, progress, path, coverage, leak, resume)


def fit(job: Job, folder: Path, loggers: list[Logger]) -> dict[str, Any]:
    """Train, validate, keep checkpoints, write a sample.

    Returns:
        What was measured, for summary.json.
    """
    data, learner, trainer = job.data, job.learner, job.trainer
    trainer.loggers = loggers
    with _lightning_quiet(), patiently():
        try:
            trainer.fit(learner, datamodule=data, ckpt_path=job.resume.path if job.resume else None, weights_only=True)
        except SystemExit as stopped:  # what Lightning makes of Ctrl-C
            if isinstance(stopped.__context__, KeyboardInterrupt):
                raise KeyboardInterrupt from None
            raise
        if math.isnan(learner.val_loss):  # gone on from the very end: no step was left, its row is written already
            trainer.loggers = []
            trainer.validate(learner, datamodule=data, verbose=False)
        if data.test:
            trainer.test(learner, datamodule=data, verbose=False)
    measured = {
        "val_loss": learner.val_loss,
        "best_val_loss": learner.best_val_loss,
        "best_step": learner.best_step,
        **learner.answers,
        **({"test_loss": learner.test_loss} if data.test else {}),
        **{f"test_{name}": value for name, value in learner.test_answers.items()},
        "loss_by_position": learner.loss_by_position,
        "loss_by_block": learner.loss_by_block,
        "steps": trainer.global_step,
        "seconds": learner.seconds,
        "n_params": sum(p.numel() for p in learner.model.parameters() if p.requires_grad),
        "flops_per_char": _flops_per_char(learner.model, data.block_size),
        "state_size": learner.model.state_size(data.block_size),
        "chars_per_second": job.progress.chars_per_second,
        "precision": str(trainer.precision),
        "device": _device_name(trainer.strategy.root_device),
        "check": _checked(job),
        "data": {
            "name": data.corpus.name,
            "sha256": data.corpus.sha256,
            "characters": len(data.corpus),
            "vocab_size": len(data.corpus.vocabulary),
        },
        **(_references(data, folder.parent) if trainer.is_global_zero else {}),
    }
    by_position = Line("position", "nats", list(enumerate(learner.loss_by_position)))
    log_line(loggers, "loss_by_position", by_position, trainer.global_step)
    log_summary(loggers, measured)
    return measured


def _checked(job: Job) -> dict[str, Any]:
    """What check.causality came to."""
    coverage, leak = job.coverage, job.leak
    if job.path and job.path.coverage:
        coverage = coverage + job.path.coverage if coverage else job.path.coverage
    if job.path and job.path.leak:
        leak = leak or job.path.leak
    return {
        "causality": job.config.check.causality,
        "leak": leak,
        "covered": coverage.as_dict() if coverage else None,
    }


def _references(data: CharData, experiment: Path) -> dict[str, Any]:
    """What untrained predictors, and the true source where there is one, reach on the splits that a model is judged on.

    None where nothing is known: n-grams of long texts take too long to count.
    """
    train, val, test = data.splits
    if len(train) > COUNTED_AT_MOST:
        log.info("No n-gram lines: they are counted on texts of up to %s characters.", f"{COUNTED_AT_MOST:,}")

    def lines(part: torch.Tensor, begins: int) -> dict[str, Any] | None:
        known = data.corpus.source_nats
        source = None if known is None else float(known[begins + 1 : begins + len(part)].mean(dtype=np.float64))
        if len(train) > COUNTED_AT_MOST:
            return None if source is None else {"source": source}
        counted = references_for(
            experiment,
            text_sha256=data.corpus.sha256,
            train=train.numpy(),
            val=part.numpy(),
            begins=begins,
            vocab_size=len(data.corpus.vocabulary),
            block_size=data.block_size,
        )
        return replace(counted, source=source).as_dict()

    found = {"references": lines(val, data.val_begins)}
    return found | ({"references_test": lines(test, data.test_begins)} if data.test else {})


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def _flops_per_char(model: LanguageModel, block_size: int) -> float | None:
    """Of training, forward and backward; None where a strategy does not say what it costs."""
    try:
        return training_flops(model, block_size) / block_size
    except BadInput:
        return None


def _at_the_end(
    config: Config, data: CharData, window: torch.Tensor, folder: Path, console: Console | None
) -> list[Callback]:
    callbacks: list[Callback] = []
    every, val_every = config.callbacks.show_every, config.trainer.val_every
    if config.callbacks.sample_chars:
        callbacks.append(
            Samples(
                data.corpus.vocabulary,
                count=config.callbacks.sample_chars,
                seed=config.seed,
                path=folder / "sample.txt",
                console=console,
                every=every,
                val_every=val_every,
            )
        )
    if config.callbacks.weight_tables:
        fresh = partial(build_model, config, len(data.corpus.vocabulary))
        callbacks.append(
            WeightTables(window, fresh=fresh, path=folder / "tables.npz", every=every, val_every=val_every)
        )
    return callbacks


def _resumable(config: Config, folder: Path, data: CharData, model: LanguageModel, trainer: Trainer) -> Resume | None:
    """The checkpoint to go on from: the latest whole one that this run left, broken off, or else the one asked for."""
    own = [] if config.force else [folder / "checkpoints" / name for name in ("last.ckpt", "previous.ckpt")]
    refused: list[str] = []
    for path in own:
        if not path.exists():
            continue
        try:
            found = _goes_on_from(path, config, data, model, trainer, own=True)
        except BadInput as error:
            refused.append(str(error))
            continue
        for reason in refused:
            log.warning("%s", reason)
        log.info("Goes on from step %s (%s).", f"{found.step:,}", path)
        if config.ckpt:
            log.info("It is further than ckpt=%s, which is not used.", config.ckpt)
        return found
    if refused:
        raise BadInput(f"{' '.join(refused)} No other checkpoint of this run is there: force=true trains it anew.")
    return _goes_on_from(Path(config.ckpt), config, data, model, trainer, own=False) if config.ckpt else None


def _goes_on_from(
    path: Path, config: Config, data: CharData, model: LanguageModel, trainer: Trainer, *, own: bool
) -> Resume:
    """What there is to go on from in a checkpoint.

    Raises:
        BadInput: it is damaged, or of another run.
    """
    whole = checkpoint.load(path)
    content = whole["trilab"]
    if content["vocabulary"] != data.corpus.vocabulary.characters:
        raise BadInput(
            f"ckpt={path} has another vocabulary: {len(content['vocabulary'])} characters, "
            f"{data.corpus.origin} has {len(data.corpus.vocabulary)}. Go on with the text it was trained on."
        )
    # on what it trains may change between two parts, and how long where the rate does not depend on it
    may_change = TO_ROUNDING if bind(config.optim, "optim")().schedule != "constant" else (*TO_ROUNDING, "max_steps")
    allowed = tuple(f"trainer.{key} " for key in may_change)
    other = [line for line in differences(content["config"], config.tree) if not line.startswith(allowed)]
    if other:
        said = one_line("; ".join(f"{line:.200}" for line in other[:20]))
        raise BadInput(f"ckpt={path} belongs to another run: {said}. Set these as they were.")
    if content["step"] >= config.trainer.max_steps and not own:  # its own was stopped between last step and summary
        raise BadInput(
            f"ckpt={path} has done {content['step']} steps already; trainer.max_steps={config.trainer.max_steps} "
            "must be more to go on from it."
        )
    try:
        refuse_unresumable(whole, model, {"fit_loop": trainer.fit_loop.state_dict()})
    except BadInput as error:
        raise BadInput(f"ckpt={path} cannot be gone on from: {error}") from error
    return Resume(path, content["step"], content["best"])


def _best_so_far(resume: Resume, kept: Path) -> Path | None:
    """The best checkpoint that belongs to the one that is gone on from; None, with a word, where it is lost."""
    best = resume.path.with_name("best.ckpt")
    try:
        found = checkpoint.load(best)["trilab"]["best"]
    except BadInput as error:
        if resume.best["step"]:
            log.warning("%s The best is looked for anew.", error)
        return None
    ours = resume.path.parent.resolve() == kept.resolve()  # then it may also be a better one, which comes again
    return best if found == resume.best or ours else None


def _take_over(resumed: Path, best: Path | None, kept: Path) -> None:
    """Have what belongs to the checkpoint that is gone on from in this run's own folder, and nothing else."""
    if resumed.parent.resolve() != kept.resolve():
        if best:
            with replacing(kept / "best.ckpt") as file:
                file.write(best.read_bytes())
    elif resumed.name == "previous.ckpt" and (kept / "last.ckpt").exists():  # which nothing could be read from
        (kept / "last.ckpt").replace(kept / "damaged.ckpt")


def _tracked(config: Config, folder: Path, step: int) -> AbstractContextManager[Logger | None]:
    check_logger(config)
    name, outputs = f"{config.name}-seed{config.seed}", Path(config.paths.outputs)
    match config.logger.name:
        case "wandb":
            from trilab.tracking import wandb_run

            return wandb_run(
                outputs,
                project=config.logger.project,
                entity=config.logger.entity,
                mode=config.logger.mode,
                name=name,
                group=config.experiment_name,
                job_type=config.strategy,
                tags=list(dict.fromkeys([config.strategy, config.name, config.experiment_name])),
                config=config.tree,
                memory=folder / "wandb.json",
                step=step,
            )
        case "tensorboard":
            return tensorboard_run(folder / "tensorboard", config=config.tree, step=step)
        case "mlflow":
            return mlflow_run(
                outputs / "mlruns",
                experiment=config.experiment_name,
                name=name,
                tags={"strategy": config.strategy, "seed": str(config.seed)},
                config=config.tree,
                memory=folder / "mlflow.json",
                step=step,
            )
    return nullcontext()


@contextmanager
def _lightning_quiet() -> Iterator[None]:
    """Hold back what Lightning says of choices made here on purpose; every other warning goes through."""
    levels = {name: logging.getLogger(name).level for name in ("lightning.pytorch", "lightning.fabric")}
    for name in levels:
        logging.getLogger(name).setLevel(logging.WARNING)
    with warnings.catch_warnings():
        for message in (
            ".*does not have many workers.*",  # windows are cut where the tokens live: there is nothing to load
            ".*exists and is not empty.*",  # a run that goes on finds its own checkpoints
            ".*GPU available but not used.*",  # accelerator=cpu was asked for
            ".*`srun` command.*",  # who is who among the processes is ours to say, on a cluster too
            ".*LeafSpec.*",  # Lightning's own use of a deprecated torch name
            ".*callbacks used to create the checkpoint.*",  # samples may be wanted no more
            ".*returned a view tensor.*",  # fsdp: no block changes what it is given in place
        ):
            warnings.filterwarnings("ignore", message)
        try:
            yield
        finally:
            for name, level in levels.items():
                logging.getLogger(name).setLevel(level)
