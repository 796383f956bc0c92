"""Whether a run is being trained, by what .held_by says."""

import json
import os
import time
from pathlib import Path

import pytest

from trilab.holder import Holder, lives, read_holder

from .conftest import NOW, touched


def test_a_process_that_lives_holds_its_run_and_one_that_ended_does_not(living: int, dead: int) -> None:
    now = time.time()
    assert lives(living, now)
    assert not lives(dead, now)
    assert not lives(2**40, now)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="only Linux tells when a process began")
def test_a_number_that_was_given_again_to_another_process_holds_nothing(living: int) -> None:
    assert not lives(living, time.time() - 3600)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="only Linux tells a process that is dead already")
def test_a_process_that_is_dead_but_not_taken_note_of_holds_nothing() -> None:
    pid = os.posix_spawn("/bin/true", ["true"], {})
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        os.kill(pid, 0)  # it still has its number
        assert not lives(pid, time.time())
    finally:
        os.waitpid(pid, 0)


@pytest.mark.parametrize(
    ("silent", "pace", "holds"),
    [(59, None, True), (61, None, False), (61, 20.0, True), (101, 20.0, False), (59, 1.0, True), (-100, None, True)],
)
def test_on_another_host_the_files_tell(silent: float, pace: float | None, holds: bool) -> None:
    holder = Holder(1, "node7", None, since=NOW - 1000)
    assert holder.holds(here="node1", last_write=NOW - silent, pace=pace, now=NOW) is holds


def test_on_another_host_a_run_that_has_just_begun_has_its_time() -> None:
    assert Holder(1, "node7", None, since=NOW - 30).holds(here="node1", last_write=0.0, pace=None, now=NOW)


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff", b"process 12 on node1", b"[1]", b'{"pid": 0}', b'{"pid": -1}', b'{"pid": true}', b"[" * 100_000],
)
def test_a_holder_that_does_not_say_who_it_is_is_judged_by_the_files(tmp_path: Path, content: bytes) -> None:
    (tmp_path / ".held_by").write_bytes(content)
    touched(tmp_path / ".held_by", NOW)
    holder = read_holder(tmp_path)
    assert holder == Holder(None, "", None, NOW)
    assert holder.holds(here="", last_write=0.0, pace=None, now=NOW + 1)
    assert not holder.holds(here="", last_write=0.0, pace=None, now=NOW + 100)


def test_a_holder_says_who_it_is_and_which_sweep_it_is_part_of(tmp_path: Path) -> None:
    assert read_holder(tmp_path) is None
    (tmp_path / ".held_by").write_text(json.dumps({"pid": 12, "host": "node1", "sweep": 7}), encoding="utf-8")
    touched(tmp_path / ".held_by", NOW)
    assert read_holder(tmp_path) == Holder(12, "node1", 7, NOW)
