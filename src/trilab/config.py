"""The composed YAML as checked, typed values: unknown keys and wrong types end here, before any work starts."""

import difflib
import importlib.util
import inspect
import math
import re
import sys
import traceback
import types
import typing
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml

from trilab.atomic import replacing
from trilab.errors import BadInput
from trilab.imports import importing_torch

T = TypeVar("T")

MOST = 2**31 - 1  # what the libraries below count with; no size, count or time that makes sense comes near
MOST_THREADS = 1024  # each costs memory as soon as it is asked for
LARGEST_INT = 2**63 - 1  # that PyTorch takes


@dataclass(frozen=True)
class Data:
    """Which text, and how it is cut into windows. `source` is conf/data/*.yaml: a function that reads the text."""

    source: dict[str, Any]
    block_size: int
    batch_size: int
    val_share: float
    test_share: float
    val_chars: int


@dataclass(frozen=True)
class Trainer:
    """How long and on what to train, in steps of the optimizer."""

    accelerator: str
    devices: int
    num_nodes: int
    strategy: str
    precision: str
    accumulate: int
    max_steps: int
    val_every: int
    log_every: int
    checkpoint_every: int
    checkpoint_minutes: float | None
    timeout: int
    compile: str | None = None


@dataclass(frozen=True)
class Logger:
    """Where metrics go besides metrics.jsonl. Project, entity and mode are W&B's."""

    name: str
    project: str = "trilab"
    entity: str | None = None
    mode: str = "auto"


@dataclass(frozen=True)
class Callbacks:
    """What is shown and kept besides the metrics."""

    progress: bool
    sample_chars: int
    weight_tables: bool
    show_every: int | None = None


@dataclass(frozen=True)
class Check:
    """What is proven before the first step."""

    causality: Literal["error", "warn", "off"]


@dataclass(frozen=True)
class Report:
    """How the runs of an experiment are compared."""

    baseline: str = "none"
    measure: Literal["val_loss", "best_val_loss", "test_loss", "answer_loss"] = "val_loss"
    margin: float = 0.005
    choose: str | None = None


@dataclass(frozen=True)
class Sweep:
    """How long a sweep goes on."""

    until_decided: bool = False
    max_seeds: int = 12


@dataclass(frozen=True)
class Match:
    """Budgets that variants are brought to before they are compared."""

    params: int | None
    flops: float | None


@dataclass(frozen=True)
class Paths:
    """Where results go."""

    outputs: str


@dataclass(frozen=True)
class Config:
    """One run. Sections that name a class or function (`_target_`) stay plain dicts until `bind` checks them.

    `agg` is one section a layer, or fewer: a pattern that is repeated; one alone for a model of one strategy.
    """

    experiment_name: str
    label: str | None
    seed: int
    threads: int
    force: bool
    retry: bool
    ckpt: str | None
    agg: list[dict[str, Any]]
    model: dict[str, Any]
    data: Data
    optim: dict[str, Any]
    trainer: Trainer
    check: Check
    match: Match
    report: Report
    sweep: Sweep
    logger: Logger
    callbacks: Callbacks
    paths: Paths
    tree: dict[str, Any]
    """The same as plain, resolved YAML values: what is saved and shown."""

    @property
    def name(self) -> str:
        """What the run is called in tables: its label, or else its strategy."""
        return self.label or self.strategy

    @property
    def strategy(self) -> str:
        """The file's name for one of our strategies, the class's name for a foreign one; layers joined by +."""
        return "+".join(_strategy(section) for section in self.agg)


def _strategy(section: Mapping[str, Any]) -> str:
    module, _, cls = str(section.get("_target_", "")).rpartition(".")
    return module.removeprefix("trilab.agg.") if module.startswith("trilab.agg.") else cls


def read(tree: Mapping[str, Any]) -> Config:
    """Plain nested values (interpolations resolved) → a checked Config.

    Raises:
        BadInput: an unknown or missing key, a value of the wrong type or outside its range.
    """
    plain = dict(tree)
    _complete(plain, "")
    if "tree" in plain:  # ours, not the user's
        raise BadInput(
            _unknown("tree", "tree", [f.name for f in fields(Config) if f.name != "tree"], "The top level has")
        )
    data = _section(plain, "data")
    own = {field.name for field in fields(Data)} - {"source"}
    data = {key: data[key] for key in own if key in data} | {"source": {k: v for k, v in data.items() if k not in own}}
    model = _section(plain, "model")
    per_layer = model.pop("agg_per_layer", None)
    config = _typed(
        Config,
        plain
        | {
            "agg": per_layer or [_section(plain, "agg")],
            "model": model,
            "data": _typed(Data, data, "data"),
            "trainer": _typed(Trainer, _section(plain, "trainer"), "trainer"),
            "check": _typed(Check, _section(plain, "check"), "check"),
            "match": _typed(Match, _section(plain, "match"), "match"),
            "report": _typed(Report, _section({"report": {}, **plain}, "report"), "report"),
            "sweep": _typed(Sweep, _section({"sweep": {}, **plain}, "sweep"), "sweep"),
            "logger": _typed(Logger, _section(plain, "logger"), "logger"),
            "callbacks": _typed(Callbacks, _section(plain, "callbacks"), "callbacks"),
            "paths": _typed(Paths, _section(plain, "paths"), "paths"),
            "tree": plain,
        },
        "",
    )
    _in_range(config)
    return config


def save(config: Config, path: Path) -> None:
    """Write config.yaml: plain values that `load` reads back."""
    with replacing(path) as file:
        file.write(yaml.safe_dump(config.tree, sort_keys=False, allow_unicode=True).encode())


def load(path: Path) -> Config:
    """Read what `save` wrote."""
    return read(yaml.safe_load(path.read_text(encoding="utf-8")))


def _complete(tree: Mapping[str, Any], prefix: str) -> None:
    for key, value in tree.items():
        if value == "???":  # Hydra's mark of a value that only the user can give
            raise BadInput(f"{prefix}{key} is missing; set it with {prefix}{key}=….")
        if isinstance(value, Mapping):
            _complete(value, f"{prefix}{key}.")


def _section(tree: Mapping[str, Any], name: str) -> dict[str, Any]:
    section = tree.get(name)
    if not isinstance(section, Mapping):
        raise BadInput(f"{name}={section!r} must be a section with keys; choose one with {name}=… (see --help).")
    return dict(section)


def _in_range(config: Config) -> None:
    at_least_one = {
        "threads": config.threads,
        "data.block_size": config.data.block_size,
        "data.batch_size": config.data.batch_size,
        "data.val_chars": config.data.val_chars,
        **{
            f"trainer.{name}": getattr(config.trainer, name)
            for name in (
                "devices",
                "num_nodes",
                "accumulate",
                "max_steps",
                "val_every",
                "log_every",
                "checkpoint_every",
                "timeout",
            )
        },
    }
    for name, value in at_least_one.items():
        if value < 1:
            raise BadInput(f"{name}={value} must be at least 1.")
        if value > (most := MOST_THREADS if name == "threads" else MOST):
            raise BadInput(f"{name}={value} must be at most {most:,}.")
    shares = config.trainer.accumulate * config.trainer.devices * config.trainer.num_nodes
    if config.data.batch_size % shares:  # also keeps the number of processes within that of windows
        raise BadInput(
            f"data.batch_size={config.data.batch_size} cannot be dealt evenly to {config.trainer.devices} processes on "
            f"{config.trainer.num_nodes} machines in {config.trainer.accumulate} accumulated micro-batches: make it a "
            f"multiple of {shares}."
        )
    if config.trainer.checkpoint_minutes is not None and not config.trainer.checkpoint_minutes > 0:
        raise BadInput(
            f"trainer.checkpoint_minutes={config.trainer.checkpoint_minutes} must be above 0, or null to save by steps "
            "alone."
        )
    if config.match.params is not None and config.match.params < 1:
        raise BadInput(f"match.params={config.match.params} must be at least 1.")
    if config.match.flops is not None and not 0 < config.match.flops < math.inf:
        raise BadInput(f"match.flops={config.match.flops:g} must be more than 0 and finite: operations, such as 1e12.")
    if not 0 < config.report.margin < math.inf:
        raise BadInput(f"report.margin={config.report.margin:g} must be above 0 and finite: nats per character.")
    if config.report.measure == "test_loss" and not config.data.test_share:
        raise BadInput("report.measure=test_loss needs a test split: set data.test_share above 0, such as 0.1.")
    if config.sweep.max_seeds < 3:
        raise BadInput(f"sweep.max_seeds={config.sweep.max_seeds} must be at least 3: fewer decide nothing.")
    if config.callbacks.sample_chars < 0:
        raise BadInput(f"callbacks.sample_chars={config.callbacks.sample_chars} must be 0 or more.")
    if not 0 <= config.seed < 2**63:
        raise BadInput(f"seed={config.seed} must lie between 0 and 2^63 - 1.")
    if not re.fullmatch(r"[\w-][\w.-]*", config.experiment_name) or config.experiment_name in ("wandb", "mlruns"):
        raise BadInput(
            f"experiment_name={config.experiment_name!r} names a folder: letters, digits, '_', '-' and '.' only, and "
            "neither wandb nor mlruns, where W&B and MLflow keep their runs."
        )
    if config.callbacks.show_every is not None and config.callbacks.show_every < 1:
        raise BadInput(
            f"callbacks.show_every={config.callbacks.show_every} must be at least 1, or null: at the end only."
        )
    if config.logger.name not in ("wandb", "tensorboard", "mlflow", "none"):
        raise BadInput(f"logger.name={config.logger.name} is not known: wandb, tensorboard, mlflow or none.")
    if config.logger.mode not in ("auto", "online", "offline"):
        raise BadInput(f"logger.mode={config.logger.mode} is not known: auto, online or offline.")


def check_logger(config: Config) -> None:
    """Refuse a logger whose package is an extra that is not installed.

    Raises:
        BadInput: it is not; the message says how to get it.
    """
    name = config.logger.name
    if name in ("tensorboard", "mlflow") and importlib.util.find_spec(name) is None:
        raise BadInput(f"logger={name} needs a package that is not installed: pip install 'trilab[{name}]'.")


def strategies(config: Config) -> list[partial[Any]]:
    """The classes of the layers' strategies, or of the pattern that is repeated, with their knobs.

    Raises:
        BadInput: as `bind`.
    """
    alone = len(config.agg) == 1 and not config.tree["model"].get("agg_per_layer")
    return [
        bind(section, "agg" if alone else f"model.agg_per_layer[{place}]", given=("n_embd", "block_size"))
        for place, section in enumerate(config.agg)
    ]


def bind(section: Mapping[str, Any], where: str, *, given: tuple[str, ...] = ()) -> partial[Any]:
    """The class or function that a section names, with the section's other keys as its arguments.

    Args:
        section: `_target_` (a dotted path) and knobs.
        where: the section's name, for messages.
        given: arguments that the caller adds itself, which no config may set.
    Raises:
        BadInput: the path cannot be imported, or a knob is not in its signature or of the wrong type.
    """
    if "_target_" not in section:
        raise BadInput(f"{where} has no _target_: it must name a class or function, as in conf/{where}/*.yaml.")
    target = _imported(str(section["_target_"]), f"{where}._target_")
    knobs = {key: value for key, value in section.items() if key != "_target_"}
    parameters = inspect.signature(target).parameters
    absent = [name for name in given if name not in parameters]
    if absent:
        raise BadInput(
            f"{where}._target_={section['_target_']} must take {', '.join(given)} and then its own knobs by name; it "
            f"has no {', no '.join(absent)}."
        )
    swallowing = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    allowed = [name for name, it in parameters.items() if name not in given and it.kind not in swallowing]
    for key in knobs:
        if key not in allowed:
            raise BadInput(_unknown(f"{where}.{key}", key, allowed, f"{section['_target_']} takes"))
    try:
        hints = typing.get_type_hints(target.__init__ if inspect.isclass(target) else target)
    except NameError:  # an annotation that only a type checker can resolve: the knobs are then taken as they are
        hints = {}
    knobs = {key: _converted(value, hints.get(key, Any), f"{where}.{key}") for key, value in knobs.items()}
    for key, value in knobs.items():
        if isinstance(value, int) and abs(value) > LARGEST_INT:
            raise BadInput(f"{where}.{key}={value} must lie between -2^63 and 2^63.")
    missing = [n for n in allowed if parameters[n].default is inspect.Parameter.empty and n not in knobs]
    if missing:
        raise BadInput(f"{section['_target_']} needs {where}.{missing[0]}; set it with {where}.{missing[0]}=….")
    return partial(target, **knobs)


def _imported(path: str, where: str) -> Callable[..., Any]:
    # A user's own module lies in the folder they launch from; console scripts do not look there by themselves.
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    module_name, _, name = path.rpartition(".")
    try:
        with importing_torch():  # which every strategy brings along
            target = getattr(importlib.import_module(module_name), name) if module_name else None
    except ModuleNotFoundError as error:
        raise BadInput(
            f"{where}={path} cannot be imported: {error}. It must be a dotted path to a class or function, in an "
            f"installed package or in the folder you launch from ({here})."
        ) from error
    except Exception as error:  # the module's own code may raise anything while it is imported
        if isinstance(error, AttributeError) and module_name in sys.modules:
            raise BadInput(f"{where}={path} cannot be found: {error}.") from error
        place = traceback.extract_tb(error.__traceback__)[-1]
        file, line = (
            (error.filename, error.lineno) if isinstance(error, SyntaxError) else (place.filename, place.lineno)
        )
        raise BadInput(
            f"{where}={path} cannot be imported: {type(error).__name__}: {error} ({file}, line {line})."
        ) from error
    if not callable(target):
        raise BadInput(f"{where}={path} must be a dotted path to a class or function, as in package.module.Class.")
    return typing.cast(Callable[..., Any], target)


def _typed(cls: type[T], values: Mapping[str, Any], where: str) -> T:
    hints = typing.get_type_hints(cls)
    prefix = f"{where}." if where else ""
    allowed = [name for name in hints if name != "tree"]
    for key in values:
        if key not in hints:
            raise BadInput(_unknown(f"{prefix}{key}", key, allowed, f"{where or 'The top level'} has"))
    for field in fields(cls):  # type: ignore[arg-type]
        if field.name not in values and field.default is MISSING:
            raise BadInput(f"{prefix}{field.name} is missing; set it with {prefix}{field.name}=….")
    return cls(**{key: _converted(value, hints[key], f"{prefix}{key}") for key, value in values.items()})


def _unknown(full: str, key: str, allowed: list[str], has: str) -> str:
    near = difflib.get_close_matches(key, allowed, n=1)
    hint = f" Did you mean {full.removesuffix(key)}{near[0]}?" if near else ""
    return f"{full} is not a key.{hint} {has}: {', '.join(sorted(allowed)) or 'nothing'}."


def _converted(value: Any, hint: Any, where: str) -> Any:
    """The value as its type, if nothing is lost by it: 1 is a float, '1' and 1.5 are no int."""
    if hint is Any:
        return value
    options = typing.get_args(hint) if typing.get_origin(hint) in (types.UnionType, typing.Union) else (hint,)
    if type(value) in options or any(value in typing.get_args(o) for o in options if typing.get_origin(o) is Literal):
        return value
    for option in options:
        kind = typing.get_origin(option) or option
        if value is None and kind is type(None):
            return None
        if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
            with suppress(OverflowError):
                return float(value)
        if kind is int and isinstance(value, int | float) and not isinstance(value, bool) and value % 1 == 0:
            return int(value)
        if kind is str and isinstance(value, int | float) and not isinstance(value, bool):
            return str(value)  # a name may look like a number
        if kind not in (int, float, type(None)) and isinstance(kind, type) and isinstance(value, kind):
            return value
    wanted = " or ".join(_in_words(option) for option in options)
    raise BadInput(f"{where}={value!r} must be {wanted}.")


def _in_words(option: Any) -> str:
    if typing.get_origin(option) is Literal:
        return f"one of {', '.join(map(str, typing.get_args(option)))}"
    return _WORDS.get(option, getattr(option, "__name__", str(option)))


_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text", type(None): "null"}
