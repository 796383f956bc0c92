"""What train.py --help says: the template in conf/hydra, the groups, and every key with the comment beside it."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import hydra
from omegaconf import DictConfig, OmegaConf

LINE = re.compile(r"^(?P<indent> *)(?P<key>\w+):(?P<value>[^#]*)(?:#\s*(?P<words>.*))?$")


def help_text(overrides: Sequence[str], conf: Path) -> str:
    """Hydra's own help, in half its time: to list the groups Hydra copies all that it knows a hundred times.

    Args:
        overrides: of the command line; keys are shown as these set them.
        conf: the folder with the YAML files.
    Raises:
        HydraException, OmegaConfBaseException: overrides that cannot be composed.
    """
    with hydra.initialize_config_dir(str(conf), version_base="1.3"):
        config = hydra.compose("train", list(overrides), return_hydra_config=True)
    template: str = config.hydra.help.template
    return template.replace("$APP_CONFIG_GROUPS", groups(conf))


def groups(conf: Path) -> str:
    """One line a group: `agg: alibi, attention, …`."""
    choices: dict[str, list[str]] = {}
    for path in sorted(conf.rglob("*/*.yaml")):
        group = path.parent.relative_to(conf).as_posix()
        if group.partition("/")[0] != "hydra":
            choices.setdefault(group, []).append(path.stem)
    return "\n".join(f"{group}: {', '.join(names)}" for group, names in sorted(choices.items()))


def keys_in_words(config: DictConfig, conf: Path) -> str:
    """One line a key of the composed config: `data.block_size=8   T: characters a window holds`.

    Args:
        config: composed, Hydra's own part included; it knows which file each group was read from.
        conf: the folder with the YAML files.
    """
    words = dict(_words(conf / "train.yaml", ""))
    for group, choice in config.hydra.runtime.choices.items():
        path = conf / group / f"{choice}.yaml"
        if path.is_file() and "/" not in group and group not in ("hydra", "experiment"):
            for key, said in _words(path, f"{group}."):
                words[key] = said or words.get(key, "")
    lines = []
    for key, said in words.items():
        value = OmegaConf.select(config, key, default=None, throw_on_missing=False)
        if isinstance(value, DictConfig) or key.endswith("_target_"):
            continue
        shown = "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
        lines.append(f"  {f'{key}={shown}':<36} {said}".rstrip())
    return "\n".join(lines)


def _words(path: Path, prefix: str) -> Iterator[tuple[str, str]]:
    section = ""
    for line in path.read_text(encoding="utf-8").splitlines():
        if base := re.fullmatch(r"  - (\w+)", line):  # this file starts from another one of its group
            yield from _words(path.with_name(f"{base[1]}.yaml"), prefix) if prefix else ()
        found = LINE.match(line)
        if not found or found["key"] == "defaults" or len(found["indent"]) > 2:
            continue
        if not found["indent"]:
            section = "" if found["value"].strip() else f"{found['key']}."
        if found["indent"] or found["value"].strip():
            yield f"{prefix}{section if found['indent'] else ''}{found['key']}", found["words"] or ""
