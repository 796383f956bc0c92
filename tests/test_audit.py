import json
from typing import Any

import pytest

from .audit import LOCK, audited, verdict

SOUND: dict[str, Any] = {"name": "numpy", "version": "2.4.0", "vulns": []}
UNKNOWN: dict[str, Any] = {"name": "torch", "skip_reason": "Dependency not found: torch (2.13.0)"}
FLAWED: dict[str, Any] = {
    "name": "jinja2",
    "version": "2.0",
    "vulns": [{"id": "PYSEC-1", "fix_versions": ["2.1", "3.0"]}, {"id": "PYSEC-2", "fix_versions": []}],
}


def told(*dependencies: dict[str, Any], said: str = "") -> tuple[int, list[str]]:
    return verdict(json.dumps({"dependencies": dependencies}), said)


def test_a_vulnerable_version_fails_with_what_mends_it():
    assert told(SOUND, FLAWED, UNKNOWN) == (
        1,
        [
            "jinja2 2.0: PYSEC-1, mended in 2.1, 3.0",
            "jinja2 2.0: PYSEC-2, mended in ?",
            "pip-audit: not looked up: torch",
        ],
    )


def test_what_is_sound_passes_and_what_was_not_looked_up_is_named():
    assert told(SOUND) == (0, ["pip-audit: no known vulnerability in 1 packages"])
    assert told(SOUND, UNKNOWN)[1][1] == "pip-audit: not looked up: torch"


def test_where_nothing_can_be_looked_up_it_is_skipped_with_the_reason():
    assert told(UNKNOWN) == (
        0,
        ["pip-audit: skipped, none of 1 packages can be looked up: Dependency not found: torch (2.13.0)"],
    )


def test_without_a_network_it_is_skipped_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # nobody answers there
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    code, [line] = verdict(*audited(LOCK))
    assert code == 0
    assert line.startswith("pip-audit: skipped, its data cannot be reached: ")
    assert "127.0.0.1" in line
