"""Torch imported in less time: nobody notices anything else of it."""

import gc
import subprocess
import sys

import pytest

from trilab.imports import importing_torch

IMPORT = """
import gc
from trilab.imports import importing_torch
with importing_torch():
    {first}
    import torch
    assert not gc.isenabled()
assert gc.isenabled()
print(gc.get_freeze_count() > 10_000)
"""

FAILS = """
import gc
from trilab.imports import importing_torch
try:
    with importing_torch():
        import nowhere
except ImportError:
    print(gc.isenabled(), gc.get_freeze_count())
"""


@pytest.mark.parametrize("first", ["", pytest.param("import triton", marks=pytest.mark.slow)], ids=["torch", "triton"])
def test_what_is_imported_is_not_looked_through_again_and_a_process_ends_without_a_word(first: str) -> None:
    if first:
        pytest.importorskip("triton", reason="it comes with torch for GPUs")
    done = subprocess.run([sys.executable, "-c", IMPORT.format(first=first)], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


def test_where_all_is_there_already_nothing_is_done() -> None:
    import lightning  # noqa: F401
    import torch  # noqa: F401

    frozen = gc.get_freeze_count()
    with importing_torch():
        assert gc.isenabled()
    assert gc.get_freeze_count() == frozen


def test_an_import_that_fails_leaves_the_collector_on() -> None:
    done = subprocess.run([sys.executable, "-c", FAILS], capture_output=True, text=True, check=True)
    assert done.stdout == "True 0\n"


WITHOUT_SOUND = """
import sys
from trilab.imports import importing_lightning
with importing_lightning():
    import lightning
assert not [name for name in sys.modules if name.startswith("scipy.signal")]
import scipy.signal, torchmetrics.audio
assert scipy.signal is sys.modules["scipy.signal"]
print(len(scipy.signal.windows.hann(8)))
"""


def test_lightning_comes_without_scipys_signal_which_is_there_for_whoever_wants_it() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_SOUND], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "8\n", "")


def test_what_trains_needs_no_signal_of_scipy() -> None:
    code = "import sys, trilab.preloaded; print('lightning' in sys.modules, 'scipy.signal' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True False\n"
