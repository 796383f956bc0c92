"""The import of torch and of what brings it along, in less time."""

import atexit
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def importing_torch() -> Iterator[None]:
    """Import torch inside, or what imports it: a million objects that stay.

    Nothing of them is garbage: looking through them for some, again and again while they are made and once more when
    the process ends, would take a third of the time of a short command. So they are put where nobody looks; and what
    is forked from this process shares their memory for longer.

    Source:
        Python's documentation of gc.freeze.
    """
    if "torch" in sys.modules or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
        gc.freeze()
        if "triton" in sys.modules:
            atexit.register(gc.unfreeze)  # it tells of all its objects that are left when the process ends
    finally:
        gc.enable()
