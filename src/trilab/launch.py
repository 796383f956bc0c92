"""Command line → Hydra → runs. Torch is imported only when a run is about to start: help and errors are quick."""

import contextlib
import logging
import os
import re
import shlex
import signal
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console

from trilab import stopping, sweep
from trilab.cluster import requeue
from trilab.compose import conf_dir, plain
from trilab.config import read
from trilab.errors import BadInput
from trilab.folder import RunFailed, attend, speak
from trilab.help import help_text, keys_in_words
from trilab.lock import Held
from trilab.reading.standard_input import in_its_place
from trilab.stopping import Stopped
from trilab.utf8_mode import ensure_utf8

log = logging.getLogger("trilab")

AT_ONCE = "Stopped at once. The same command goes on from the last checkpoint."


# What ended runs in this process. Hydra would print a line of its own before an exception that it lets through.
_errors: list[BadInput | RunFailed] = []


OmegaConf.register_new_resolver("keys_in_words", lambda *, _root_: keys_in_words(_root_, conf_dir()), replace=True)


def main() -> None:
    """Train one run, or with -m a sweep; `--help` tells the rest.

    Exit code 0, 1 (a run did not finish), 2 (bad input), or 128 and the number of the signal that stopped it.
    """
    ensure_utf8()
    os.environ["HYDRA_FULL_ERROR"] = "1"  # let Hydra's errors through: they are told here, in one line
    speak()
    _forget()
    stopping.listen()
    try:
        code = _launch()
        unfinished = sweep.current.end() if sweep.current is not None else 0
        code = code or unfinished
        if signum := stopping.wished():  # also where all ended well in spite of it
            code = 128 + signum
    except KeyboardInterrupt:
        code = _say(AT_ONCE, 130)
    finally:
        stopping.unlisten()
    if sweep.current is None or not sweep.current.searching:  # a search learns from runs that fail
        code = code or int(bool(_errors))
    if code:
        sys.exit(code)


def _launch() -> int:
    try:
        if nameless := [given for given in sys.argv[1:] if given.startswith("=")]:
            raise BadInput(f"{nameless[0]} has no key before its =: write key=value.")
        flags = {given for given in sys.argv[1:] if given.startswith("-")}
        if flags & {"-h", "--help"} and flags <= {"-h", "--help", "-m", "--multirun"}:
            print(help_text([given for given in sys.argv[1:] if given not in flags], conf_dir()))
            return 0
        sys.argv[1:] = in_its_place(sys.argv[1:])
        hydra.main(version_base="1.3", config_path=str(conf_dir()), config_name="train")(job)()
        if _errors and sweep.current is None:
            raise _errors[0]
    except BadInput as error:
        return _say(error, 2)
    except (HydraException, OmegaConfBaseException) as error:
        return _say(_explained(error), 2)
    except RunFailed as error:
        return _say(error, 1)
    except BrokenPipeError:  # whoever read our words has stopped reading, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:  # a folder or a file that Hydra or we could not make; what a training meets is RunFailed
        return _say(f"{error.filename}: {error.strerror}. Free the place, or set paths.outputs.", 2)
    except Exception as error:
        if _raised_in_hydra(error):
            return _say(_explained(error), 2)
        if sweep.current is None:
            raise
        if type(error).__module__.partition(".")[0] not in ("submitit", "joblib"):
            traceback.print_exc()
        # a worker that was killed, a job that was refused: what the others came to is still told
        return _say(f"{type(error).__name__}: {str(error).strip()}", 1)
    except Stopped as stopped:
        return _say(f"Stopped by {stopped.signal.name}. {_what_goes_on()}", stopped.exit_code)
    except KeyboardInterrupt:
        return _say(AT_ONCE, 130)
    return 0


def _raised_in_hydra(error: Exception) -> bool:
    """Hydra answers some words of a command line, model=null or a key of two dots, with errors of any class."""
    *_, (innermost, _) = traceback.walk_tb(error.__traceback__)
    return str(innermost.f_globals.get("__name__")).partition(".")[0] in ("hydra", "omegaconf", "antlr4")


def _what_goes_on() -> str:
    if sweep.current is not None and not sweep.current.ours:
        return "Runs that were handed to a cluster go on there (squeue, scancel); trilab runs shows them."
    return "The same command goes on from there."


def job(config: DictConfig) -> float | None:
    """One run, in whatever process a launcher starts it in.

    Returns:
        The final validation loss, for sweepers that search; None where the run did not finish.
    """
    hydra_config = HydraConfig.get()
    folder = Path(hydra_config.runtime.output_dir)
    alone = hydra_config.mode == RunMode.RUN
    os.chdir(hydra_config.runtime.cwd)  # paths are meant from where the command was given, also with hydra.job.chdir
    stopping.listen()  # in a launcher's worker nobody has done so yet
    if sweep.current is None and sweep.launched_by() == os.getppid():
        stopping.follow(os.getppid())
    try:
        summary = attend(
            read(plain(config)),
            folder,
            console=Console() if alone else None,
            alone=alone,
            sweep=None if alone else sweep.launched_by(),
            command=_command(hydra_config.overrides.task),
        )
    except (BadInput, RunFailed) as error:
        _leave_no_empty(folder)
        if alone or not isinstance(error, Held):  # in a sweep, whether it has finished in the end is what counts
            _errors.append(error)
        if not alone and isinstance(error, BadInput):
            log.error("%s: %s", folder.name, error)
        return None  # a sweep's other runs go on; the folder says why this one did not
    except Stopped as stopped:
        _leave_no_empty(folder)
        if stopped.signal in (signal.SIGUSR1, signal.SIGUSR2):
            stopping.unlisten()
            requeue(os.environ)
        if sweep.current is None and (launcher := sweep.launched_by()):
            if os.getppid() != launcher:
                os._exit(stopped.exit_code)  # it is gone, and its worker would wait for it for ever
            return None  # a worker's: the process that launched the sweep ends it
        if "SUBMITIT_EXECUTOR" in os.environ:
            sys.exit(stopped.exit_code)
        raise
    if alone:
        log.info(
            "val/loss %.4f (best %.4f at step %s) · %s parameters · %s characters/s · %s",
            summary["val_loss"],
            summary["best_val_loss"],
            f"{summary['best_step']:,}",
            f"{summary['n_params']:,}",
            f"{summary['chars_per_second']:,.0f}",
            os.path.relpath(folder),
        )
    return float(summary["val_loss"])


def _command(overrides: Iterable[str]) -> str:
    """What trains this run alone, with the same result."""
    once = ("ckpt=", "force=", "retry=")
    return shlex.join(["python", "train.py", *(given for given in overrides if not given.startswith(once))])


def _leave_no_empty(folder: Path) -> None:
    """Hydra has made the run's folder, and its experiment's, before anybody knew whether there is a use for it."""
    with contextlib.suppress(OSError):  # not empty, or another run's that ended at the same time
        folder.rmdir()
        folder.parent.rmdir()


def _explained(error: Exception) -> str:
    """Hydra's message as one that says what there is."""
    text = str(error).partition("\nConfig search path:")[0].strip()
    if "Could not load 'hydra/sweeper/optuna'" in text:
        return "hydra/sweeper=optuna_tpe needs a package that is not installed: pip install 'trilab[optuna]'."
    if unquoted := re.match(r"LexerNoViableAltException: (.+)", text):
        key, _, value = unquoted[1].partition("=")
        return (
            f"{unquoted[1]} cannot be read: a value of more than letters of ASCII and digits stands in quotes of its "
            f"own, within those of the shell: '{key}=\"{value}\"'."
        )
    unknown = re.match(r"Could not override '(.+?)'", text)
    if not unknown:
        return text
    # Hydra only knows that the key is not there, and advises a `+`; the check of the whole config knows what is
    given = [f"+{a}" if a.startswith(f"{unknown[1]}=") else a for a in sys.argv[1:] if not a.startswith("-")]
    try:
        with hydra.initialize_config_dir(str(conf_dir()), version_base="1.3"):
            for overrides in sweep.combinations(given):
                sweep.check(read(plain(hydra.compose("train", overrides))))
    except BadInput as better:
        return str(better)
    except (HydraException, OmegaConfBaseException):
        return text
    return f"{unknown[1]} is not set in this config, but it may be: write +{unknown[1]}=…"


def _forget() -> None:
    """What an earlier call in this process left."""
    _errors.clear()
    sweep.current = None
    os.environ.pop(sweep.LAUNCHED_BY, None)


def _say(error: Exception | str, code: int) -> int:
    print(error, file=sys.stderr)
    return code
