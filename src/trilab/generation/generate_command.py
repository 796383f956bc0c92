"""`trilab generate`: what a model writes, or what a text costs it, on a terminal, in a pipe or as JSON."""

import io
import json
import os
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trilab.errors import BadInput
from trilab.generation.sampling import Sampling
from trilab.generation.typed import without_last_line_end
from trilab.imports import importing_torch
from trilab.named_run import find_run
from trilab.reading.decoding import check_encoding
from trilab.reading.sources import as_given, shown
from trilab.reading.standard_input import readable
from trilab.terminal import harmless

if TYPE_CHECKING:  # torch takes seconds to load: what can be said without it is said before
    from trilab.generation.scoring import Loss, Score
    from trilab.trained import Trained

SHOWN = 60  # characters of a line in the table of losses
AT_A_TIME = 100  # lines of JSON


def write_texts(
    run: str,
    *,
    prompt: str | None,
    prompt_file: str | None,
    encoding: str | None,
    count: int,
    number: int,
    sampling: Sampling,
    seed: int,
    stops: Sequence[str],
    unbounded: bool,
    skip_unknown: bool,
    outputs: Path,
    trust: bool,
    as_json: bool,
) -> None:
    """Print texts as they are written, each after its prompt; see `writing.write`.

    Args:
        run, outputs: as `named_run.find_run` takes them.
        prompt, prompt_file: how each text begins, as given or in a file; neither, or an empty one: by itself.
        encoding: of a file without a byte order mark; None: UTF-8.
        count: characters to write at most.
        number: of texts.
        skip_unknown: leave characters out of the prompt that the model does not know, and say which.
        trust: as `load_trained` takes it.
        as_json: print one JSON object a text, one a line.
    Raises:
        BadInput: a number out of range, no such run or file, or what `writing.write` refuses.
        KeyboardInterrupt: Ctrl-C; what was written stays.
    """
    if count < 0:
        raise BadInput(f"--tokens {count} must be 0 or more characters.")
    if number < 1:
        raise BadInput(f"--number {number} must be 1 or more texts.")
    path = find_run(run, outputs)
    if prompt_file is None:
        origin, given, trained = "--prompt", prompt or "", _loaded(path, trust=trust)
    else:
        origin = as_given("--prompt-file", shown(prompt_file))
        trained, given = _loaded_with_text(path, prompt_file, "--prompt-file", encoding, trust=trust)
        given = without_last_line_end(given)

    from trilab.generation.known_text import known_text
    from trilab.generation.writing import write

    known = known_text(given, trained, origin=origin, skip=skip_unknown)
    if known.left_out:
        print(f"{origin}: {known}", file=sys.stderr)
    prompt = trained.vocabulary.decode(known.tokens)
    stops = [known_text(stop, trained, origin="--stop, which could never come,", skip=False).text for stop in stops]
    _same_in_every_locale()
    for text in range(1, number + 1):
        written = write(
            trained,
            prompt,
            count=count,
            sampling=sampling,
            seed=seed,
            number=text,
            stops=stops,
            unbounded=unbounded,
        )
        if as_json:
            said = "".join(written)
            stop = next((stop for stop in stops if said.endswith(stop)), None)
            print(json.dumps({"number": text, "prompt": prompt, "text": said, "stop": stop}), flush=True)
        else:
            _show(f"=== {text} of {number} ===\n" if number > 1 else "", prompt, written)


def show_losses(
    run: str, file: str, *, encoding: str | None, skip_unknown: bool, outputs: Path, trust: bool, as_json: bool
) -> None:
    """Print what a text costs a model, in nats and bits a character: each line of it, and the whole.

    Args:
        run, outputs: as `named_run.find_run` takes them.
        file: as `standard_input.readable` takes it.
        encoding: of a file without a byte order mark; None: UTF-8.
        skip_unknown: leave out and count characters that the model does not know.
        trust: as `load_trained` takes it.
        as_json: print one JSON object, and nothing else.
    Raises:
        BadInput: no such run or file, a character that the model does not know, or fewer than two that it does.
        KeyboardInterrupt: Ctrl-C.
    """
    path = find_run(run, outputs)
    trained, text = _loaded_with_text(path, file, "--loss", encoding, trust=trust)

    from rich.console import Console

    from trilab.generation.known_text import known_text
    from trilab.generation.scoring import score

    known = known_text(text, trained, origin=as_given("--loss", shown(file)), skip=skip_unknown)
    scored = score(trained.model, known, console=Console(stderr=True))
    _same_in_every_locale()
    if as_json:
        _print_json(scored)
        return
    print(f"{'line':>9}{'characters':>12}{'nats/char':>11}{'bits/char':>11}  text")
    for n, (line, loss) in enumerate(scored.lines(), 1):
        begins = line if len(line) <= SHOWN else f"{line[: SHOWN - 1]}…"
        print(f"{n:>9,}{_columns(loss)}  {harmless(begins)}".rstrip())
    print(f"{'whole':>9}{_columns(scored.whole)}")
    if known.left_out:
        print(known)


def _print_json(scored: "Score") -> None:
    """One object, some lines at a time: all of them together would take many times the memory of the text."""
    whole = json.dumps(_plain(scored.whole) | {"unknown": scored.known.left_out}, allow_nan=False)
    print(whole.removesuffix("}"), end=', "lines": [')
    lines = ({"line": n, **_plain(loss), "text": line} for n, (line, loss) in enumerate(scored.lines(), 1))
    between = ""
    while some := list(islice(lines, AT_A_TIME)):
        print(between + json.dumps(some, allow_nan=False)[1:-1], end="")
        between = ", "
    print("]}")


def _columns(loss: "Loss") -> str:
    rates = (loss.nats_per_char, loss.bits_per_char)
    return f"{loss.characters:>12,}" + "".join("          -" if rate is None else f"{rate:>11.4f}" for rate in rates)


def _plain(loss: "Loss") -> dict[str, Any]:
    rates = {"nats_per_char": loss.nats_per_char, "bits_per_char": loss.bits_per_char}
    return {"characters": loss.characters, "nats": loss.nats, **rates}


def _show(heading: str, prompt: str, written: Iterator[str]) -> None:
    """Write a text as it comes; a terminal gets nothing that commands it."""
    terminal = sys.stdout.isatty()
    sys.stdout.write(heading + (harmless(prompt) if terminal else prompt))
    sys.stdout.flush()
    try:
        for character in written:
            sys.stdout.write(harmless(character) if terminal else character)
            sys.stdout.flush()
    except KeyboardInterrupt:
        if terminal:
            print(flush=True)  # the shell's next line begins at the left
        raise
    print(flush=True)


def _same_in_every_locale() -> None:
    """What goes to a file or a pipe is UTF-8 with LF, as texts are read; a terminal says itself what it can show."""
    if isinstance(sys.stdout, io.TextIOWrapper) and not sys.stdout.isatty():
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace", newline="\n")


def _loaded_with_text(
    path: Path, file: str, option: str, encoding: str | None, *, trust: bool
) -> tuple["Trained", str]:
    """A model, and a text read as its own was; where there is no such file, that is told at once."""
    if encoding is not None:
        check_encoding(encoding, key="--encoding")
    with readable(file, option) as sources:
        trained = _loaded(path, trust=trust)

        from trilab.generation.known_text import text_of

        return trained, text_of(sources, trained, encoding)


def _loaded(path: Path, *, trust: bool) -> "Trained":
    with importing_torch():
        import torch

        from trilab.trained import load_trained

    trained = load_trained(path, trust=trust)
    torch.set_num_threads(min(trained.config.threads, os.cpu_count() or 1))  # their number moves logits by 1e-7
    return trained
