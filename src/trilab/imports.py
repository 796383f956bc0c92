"""The imports of torch and Lightning, and of what brings them along, in less time."""

import atexit
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

HEAVY = {"torch", "lightning"}
FOR_SOUND = "scipy.signal"


@contextmanager
def importing_torch() -> Iterator[None]:
    """Import torch inside, or what brings it along: a million objects that stay.

    Nothing of them is garbage: looking through them for some, again and again while they are made and once more when
    the process ends, would take a third of the time of a short command. So they are put where nobody looks; and what
    is forked from this process shares their memory for longer.

    Source:
        Python's documentation of gc.freeze.
    """
    if not gc.isenabled() or sys.modules.keys() >= HEAVY:
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


@contextmanager
def importing_lightning() -> Iterator[None]:
    """Import our own modules inside that import Lightning, as with `importing_torch`, and without scipy.signal.

    Lightning imports torchmetrics, and that imports scipy.signal, which nothing here uses and which takes a fifth of
    the time of a start: to put an old name back into it, for one metric of speech. An empty module with that name
    stands in its place meanwhile. Whoever wants scipy.signal later gets it, without the old name.

    Source:
        torchmetrics/__init__.py.
    """
    with importing_torch():
        if FOR_SOUND in sys.modules or "torchmetrics" in sys.modules:
            yield
            return
        stand_in = ModuleType(FOR_SOUND)
        stand_in.__dict__["hamming"] = None
        sys.modules[FOR_SOUND] = stand_in
        try:
            yield
        finally:
            del sys.modules[FOR_SOUND]
