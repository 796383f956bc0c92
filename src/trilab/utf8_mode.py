"""Arguments, file names and output are UTF-8, whatever the locale."""

import os
import sys


def ensure_utf8() -> None:
    """Where the locale knows ASCII only, start this command again in Python's UTF-8 mode, in the same process.

    Python takes the C locale for UTF-8 by itself unless PYTHONUTF8=0 forbids it. What an argument holds beyond ASCII
    would then be bytes in the guise of halves of surrogate pairs, which YAML does not take, and no file could be made
    of a name that a config gives. Child processes find the mode in their environment.
    """
    if sys.getfilesystemencoding() == "ascii" and os.environ.get("PYTHONUTF8") != "1":
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], os.environ | {"PYTHONUTF8": "1"})
