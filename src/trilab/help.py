"""What --help says of every key: its value now, and the comment beside it in conf/."""

import re
from collections.abc import Iterator
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

LINE = re.compile(r"^(?P<indent> *)(?P<key>\w+):(?P<value>[^#]*)(?:#\s*(?P<words>.*))?$")


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
