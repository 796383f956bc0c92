"""What the runs were made with: code, versions, text, hardware; and whether it was the same for all."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from trilab.report.runs import Run, one_line


@dataclass(frozen=True)
class Provenance:
    """Of finished runs."""

    values: Mapping[str, Mapping[str, int]]
    """What was recorded, such as "git" or "versions.torch" → value → how many runs have it."""

    @property
    def mixed(self) -> tuple[str, ...]:
        """What was not the same in all runs."""
        return tuple(name for name, found in self.values.items() if len(found) > 1)


_RECORDED = ("git", "package", "versions", "hardware", "device", "precision", "data")


def provenance(runs: Iterable[Run]) -> Provenance:
    """What finished runs recorded of where they come from."""
    found: dict[str, Counter[str]] = {}
    for run in runs:
        for key in _RECORDED:
            value = run.summary.get(key)
            parts = value if isinstance(value, dict) else {"": value}
            for name, part in parts.items():
                if part is not None:
                    words = part if isinstance(part, str) else json.dumps(part)
                    found.setdefault(f"{key}.{name}".rstrip("."), Counter())[one_line(words)] += 1
    return Provenance({name: dict(counts.most_common()) for name, counts in found.items()})
