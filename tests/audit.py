"""Known vulnerabilities of the versions in requirements.lock: `python -m tests.audit`, a part of `make lint`.

pip-audit asks PyPI about every version. What it cannot look up is told and passes: a machine without a network is not
at fault. A version that is known to be vulnerable is not let through.
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

LOCK = Path(__file__).parents[1] / "requirements.lock"
SECONDS = 180  # the longest wait; 30 packages take a second


def main() -> None:
    """Print what is known; exit code 1 where a version is vulnerable."""
    code, lines = verdict(*audited(LOCK))
    print("\n".join(lines))
    sys.exit(code)


def audited(lock: Path) -> tuple[str, str]:
    """What pip-audit prints, and the last line of what it says of itself."""
    command = [sys.executable, "-m", "pip_audit", "--requirement", str(lock), "--no-deps", "--disable-pip"]
    command += ["--format", "json", "--progress-spinner", "off", "--timeout", "15"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return "", f"no answer within {SECONDS} seconds"
    return done.stdout, next(reversed(done.stderr.strip().splitlines()), "")


def verdict(printed: str, said: str) -> tuple[int, list[str]]:
    """Exit code and what to tell."""
    try:
        found: Sequence[Mapping[str, Any]] = json.loads(printed)["dependencies"]
    except ValueError:
        return 0, [f"pip-audit: skipped, its data cannot be reached: {said}"]
    unknown = [dependency["name"] for dependency in found if "skip_reason" in dependency]
    known = len(found) - len(unknown)
    if not known:
        return 0, [f"pip-audit: skipped, none of {len(found)} packages can be looked up: {found[0]['skip_reason']}"]
    vulnerable = [
        f"{of['name']} {of['version']}: {flaw['id']}, mended in {', '.join(flaw['fix_versions']) or '?'}"
        for of in found
        for flaw in of.get("vulns", [])  # none where it was not looked up
    ]
    left_out = [f"pip-audit: not looked up: {', '.join(unknown)}"] if unknown else []
    if vulnerable:
        return 1, [*vulnerable, *left_out]
    return 0, [f"pip-audit: no known vulnerability in {known} packages", *left_out]


if __name__ == "__main__":
    main()
