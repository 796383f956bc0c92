"""Overrides → what Hydra composes of conf/ → nested plain values, with strategies named by layer filled in."""

import difflib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from trilab.config import Config, read
from trilab.errors import BadInput


def conf_dir() -> Path:
    """Where the configs are: inside an installed package, or at the top of a checkout."""
    inside = Path(__file__).parent / "conf"
    return inside if inside.is_dir() else Path(__file__).parents[2] / "conf"


def composed(overrides: Sequence[str]) -> Config:
    """The checked config of a command line, outside of any run.

    Raises:
        BadInput: what Hydra or the check of the config refuses.
    """
    try:
        with hydra.initialize_config_dir(str(conf_dir()), version_base="1.3"):
            return read(plain(hydra.compose("train", list(overrides))))
    except (HydraException, OmegaConfBaseException) as error:
        raise BadInput(str(error).splitlines()[0]) from error


def strategy_names() -> list[str]:
    """Every strategy of conf/agg."""
    return sorted(path.stem for path in (conf_dir() / "agg").glob("*.yaml"))


def choosing(name: str, knobs: Sequence[str] = ()) -> list[str]:
    """The overrides that choose a strategy.

    Args:
        name: of a file in conf/agg, or the dotted path of a class.
        knobs: knob=value.
    Raises:
        BadInput: no strategy of that name.
    """
    own = [f"++agg.{knob}" for knob in knobs]
    if "." in name:
        return ["agg=none", f"agg._target_={name}", *own]
    names = strategy_names()
    if name in names:
        return [f"agg={name}", *own]
    near = difflib.get_close_matches(name, names, n=1)
    hint = f" Did you mean {near[0]}?" if near else ""
    raise BadInput(
        f"{name} is no strategy.{hint} There are: {', '.join(names)}. A class of your own is given by its dotted path, "
        "as in my_pkg.MyAgg."
    )


def plain(config: DictConfig) -> dict[str, Any]:
    """The task's config as nested plain values, interpolations resolved, without Hydra's own.

    Where model.agg_per_layer names strategies, each name becomes that strategy's section, and `agg`, which is then
    not used, becomes None: so the values stand alone, and say all that determines the result and nothing else.

    Raises:
        BadInput: model.agg_per_layer holds something else than strategies; an interpolation that leads nowhere.
    """
    task = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
    per_layer = OmegaConf.select(task, "model.agg_per_layer", default=None)
    if per_layer is not None:
        entries = OmegaConf.to_container(per_layer, resolve=True) if OmegaConf.is_list(per_layer) else per_layer
        layers = [_section(name, knobs, config) for name, knobs in _named(entries)]
        OmegaConf.set_struct(task, False)
        task.model.agg_per_layer = layers
        task.agg = None
    try:
        tree = OmegaConf.to_container(task, resolve=True)
    except OmegaConfBaseException as error:
        raise BadInput(f"{error.full_key} cannot be resolved: {str(error).splitlines()[0]}.") from error
    assert isinstance(tree, dict)
    return {str(key): value for key, value in tree.items()}


def _named(entries: Any) -> list[tuple[str, Mapping[str, Any]]]:
    """[window, {attention: {n_head: 2}}] → each strategy's name and knobs."""
    if not isinstance(entries, list) or not entries:
        raise BadInput(
            f"model.agg_per_layer={entries} must be a list of strategies, one a layer or a pattern to repeat: "
            "'model.agg_per_layer=[window,window,attention]', with knobs '[{window:{size:8}},attention]'."
        )
    found: list[tuple[str, Mapping[str, Any]]] = []
    for place, entry in enumerate(entries):
        if isinstance(entry, Mapping) and "_target_" in entry:  # a section already, or a class of the user's own
            found.append(("", entry))
        elif isinstance(entry, Mapping) and len(entry) == 1 and isinstance(next(iter(entry.values())), Mapping):
            found += entry.items()
        elif isinstance(entry, str):
            found.append((entry, {}))
        else:
            raise BadInput(
                f"model.agg_per_layer[{place}]={entry} must be the name of a strategy, or one with knobs, as in "
                "{window:{size:8}}."
            )
    return found


def _section(name: str, knobs: Mapping[str, Any], config: DictConfig) -> dict[str, Any]:
    if not name:
        return dict(knobs)
    if "." in name:
        return {"_target_": name, **knobs}
    own = config.hydra if "hydra" in config else HydraConfig.get() if HydraConfig.initialized() else None
    searchpath = tuple(own.searchpath) if own is not None else ()
    try:
        return {**_choice(GlobalHydra.instance().config_loader(), searchpath, name), **knobs}
    except MissingConfigException as error:
        raise BadInput(
            f"model.agg_per_layer names {name}, which is no strategy. There are: {', '.join(error.options or ())}."
        ) from error


@lru_cache(maxsize=256)
def _choice(_loader: object, searchpath: tuple[str, ...], name: str) -> dict[str, Any]:
    """agg=name as Hydra composes it, interpolations kept. The loader only tells one start of Hydra from another."""
    where = [f"hydra.searchpath=[{','.join(searchpath)}]"] if searchpath else []
    section = OmegaConf.to_container(hydra.compose("train", [f"agg={name}", *where]).agg, resolve=False)
    assert isinstance(section, dict)
    return {str(key): value for key, value in section.items()}
