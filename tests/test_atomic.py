"""Files that are whole or not there."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from trilab.atomic import replacing


def test_the_file_takes_its_name_only_when_it_is_complete(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    target.write_bytes(b"old")
    with replacing(target) as file:
        file.write(b"new")
        file.flush()
        assert target.read_bytes() == b"old"
        (partial,) = set(tmp_path.iterdir()) - {target}
        assert partial.read_bytes() == b"new"  # beside the target: on its own file system
    assert target.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("old", [b"old", None])
def test_an_exception_leaves_the_old_file_and_no_litter(
    tmp_path: Path, error: type[BaseException], old: bytes | None
) -> None:
    target = tmp_path / "a.txt"
    if old is not None:
        target.write_bytes(old)

    def broken_off() -> None:
        with replacing(target) as file:
            file.write(b"half")
            raise error

    with pytest.raises(error):
        broken_off()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == ({"a.txt": old} if old else {})


def test_a_target_that_cannot_be_replaced_leaves_no_litter(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"), replacing(tmp_path / "folder") as file:
        file.write(b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_folders_on_the_way_are_made(tmp_path: Path) -> None:
    with replacing(tmp_path / "a" / "b" / "c.txt") as file:
        file.write(b"new")
    assert (tmp_path / "a" / "b" / "c.txt").read_bytes() == b"new"


@pytest.mark.parametrize("umask", [0o022, 0o002, 0o077])
def test_the_mode_follows_the_umask_and_the_umask_stays(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        with replacing(tmp_path / "a.txt") as file:
            file.write(b"new")
        assert stat.S_IMODE((tmp_path / "a.txt").stat().st_mode) == 0o666 & ~umask
    finally:
        assert os.umask(before) == umask


def test_a_process_killed_amid_writing_leaves_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    target.write_bytes(b"old")
    killed = (
        "import os, signal, sys; from pathlib import Path; from trilab.atomic import replacing\n"
        "with replacing(Path(sys.argv[1])) as file:\n"
        "    file.write(b'new'); file.flush(); os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert subprocess.run([sys.executable, "-c", killed, str(target)], check=False).returncode == -9
    assert target.read_bytes() == b"old"
