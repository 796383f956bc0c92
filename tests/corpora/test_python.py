import platform
import sys
import sysconfig
from pathlib import Path

import pytest

from trilab.corpora import python
from trilab.errors import BadInput


@pytest.fixture
def library(tmp_path, monkeypatch):
    """A standard library of a few files."""
    for name, content in {
        "json/decoder.py": b"decoder\r\n",
        "json/__init__.py": b"# init\n",
        "abc.py": "# -*- coding: latin-1 -*-\n# naïve\n".encode("latin-1"),
        "abc.pyc": b"no",
        "json/tool.txt": b"no",
        "json/tests/test_it.py": b"no",
        "test/support.py": b"no",
        "unittest/test/one.py": b"no",
        "site-packages/numpy/core.py": b"no",
        "_sysconfigdata_x86.py": b"no",
        "sitecustomize.py": b"no",
        "tkinter/__init__.py": b"no",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    return tmp_path


def test_modules_are_joined_sorted_by_path_and_decoded_as_they_declare(library):
    assert python.read().text == "# -*- coding: latin-1 -*-\n# naïve\n\n# init\n\ndecoder\n"


def test_a_python_without_source_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    with pytest.raises(BadInput, match="has no modules in"):
        python.read()


def test_a_module_that_cannot_be_decoded_is_named(library):
    (library / "abc.py").write_bytes(b"\xff")
    with pytest.raises(BadInput, match=r"abc\.py cannot be read"):
        python.read()


def test_this_python_is_named_by_its_version_and_holds_its_modules():
    corpus = python.read()
    assert corpus.name == f"python-{platform.python_version()}"
    assert len(corpus) > 5_000_000
    assert Path(sysconfig.get_path("stdlib"), "argparse.py").read_text(encoding="utf-8") in corpus.text
    assert "argparse" in sys.stdlib_module_names
