"""`trilab data PATH`: what is in a text before anything is trained on it, and how to train on it."""

import io
import json
import shlex
import sys
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from trilab.corpus import Corpus
from trilab.errors import BadInput
from trilab.terminal import harmless

STRETCH = 1 << 20  # characters counted at a time
SHOWN = 40  # characters that the table has at most at either end; JSON has all
RARE = 10  # characters that come less often are hardly learned
BLOCK_SIZE = 8  # data.block_size of a run that does not set it
BATCH_SIZE = 32  # and data.batch_size
ENOUGH = 1_000_000  # characters that tell a loss to the third decimal: more of them only take time


@dataclass(frozen=True)
class Inspection:
    """What is in a text. The splits are its beginning, what follows, and its end."""

    corpus: Corpus
    counts: dict[str, NDArray[np.int64]]
    """Split → (V,) how often each character comes in it."""

    @property
    def total(self) -> NDArray[np.int64]:
        """(V,) how often each character comes in the whole text."""
        total: NDArray[np.int64] = np.sum(list(self.counts.values()), axis=0)
        return total

    def only_in(self, split: str) -> str:
        """The characters that come in this split and in no other."""
        own = self.counts[split]
        found = np.flatnonzero((own > 0) & (own == self.total))
        return "".join(self.corpus.vocabulary.characters[place] for place in found)

    @property
    def odd(self) -> list[str]:
        """What one would want to know before training, in words."""
        found, total = self.corpus.findings, self.total
        said: list[str] = []
        if found:
            said += [f"{found.files:,} files joined"] * (found.files > 1)
            said += [f"{found.empty_files:,} of them empty, passed over"] * bool(found.empty_files)
            said += [_many(found.marks, "byte order mark", " removed")] * bool(found.marks)
            ends = [f"{found.crlf:,} CRLF"] * bool(found.crlf) + [f"{found.cr:,} CR"] * bool(found.cr)
            kept = "kept" if "\r" in self.corpus.vocabulary.characters else "read as LF"
            said += [f"{' and '.join(ends)} line end{'s' if found.crlf + found.cr > 1 else ''} {kept}"] * bool(ends)
            said += [_many(found.nul, "NUL character")] * bool(found.nul)
            said += [_many(found.controls, "other control character")] * bool(found.controls)
        for what, more, is_one in (
            ("replacement character", " (U+FFFD): it was read in a wrong encoding before", lambda c: c == "\ufffd"),
            ("byte order mark", " inside (U+FEFF)", lambda c: c == "\ufeff"),
            ("combining mark", ": --normalise nfc makes one character of two where it can", unicodedata.combining),
            ("invisible character", " to direct others", lambda c: c != "\ufeff" and unicodedata.category(c) == "Cf"),
            ("character", " of private use", lambda c: unicodedata.category(c) == "Co"),
            (
                "character",
                f" unknown to Unicode {unicodedata.unidata_version}",
                lambda c: unicodedata.category(c) == "Cn",
            ),
        ):
            count = sum(int(n) for c, n in zip(self.corpus.vocabulary.characters, total, strict=True) if is_one(c))
            said += [_many(count, what, more)] * bool(count)
        if rare := int(np.count_nonzero(total < RARE)):
            said.append(f"{rare:,} of {_many(len(total), 'character')} come{'s' * (rare == 1)} fewer than {RARE} times")
        for split in self.counts:
            if own := self.only_in(split):
                shown = ", ".join(f"{character!r}" for character in own[:SHOWN])
                more = f" and {len(own) - SHOWN:,} more" if len(own) > SHOWN else ""
                one = "s" * (len(own) == 1)
                said.append(f"{_many(len(own), 'character')} come{one} in the {split} split only: {shown}{more}")
        said += [
            f"too short to train on: the {split} split has {_many(size, 'character')}, and "
            f"data.block_size={BLOCK_SIZE} needs {BLOCK_SIZE + 1}"
            for split, size in self._too_short.items()
        ]
        if 0 < (windows := self._windows) < BATCH_SIZE:
            said.append(
                f"too short for data.batch_size={BATCH_SIZE}: with data.block_size={BLOCK_SIZE} the training split has "
                f"{_many(windows, 'window')}; add data.batch_size={windows}"
            )
        if len(total) == 1:
            said.append("one character over and over: there is nothing to predict, and it cannot be trained on")
        return said

    @property
    def trainable(self) -> bool:
        """Whether a run that sets no sizes, but for the batch, can be trained on it."""
        return not self._too_short and len(self.corpus.vocabulary) > 1

    @property
    def keys(self) -> list[str]:
        """What has to be set besides the source."""
        return [f"data.batch_size={self._windows}"] * (0 < self._windows < BATCH_SIZE)

    @property
    def _too_short(self) -> dict[str, int]:
        """The splits without a window, and their characters."""
        sizes = {split: int(counts.sum()) for split, counts in self.counts.items()}
        return {split: size for split, size in sizes.items() if size <= BLOCK_SIZE}

    @property
    def _windows(self) -> int:
        return int(self.counts["training"].sum()) - BLOCK_SIZE


def inspect(corpus: Corpus, *, val_share: float, test_share: float) -> Inspection:
    """Count the characters of each split, as `trilab.windows.split` cuts them.

    Raises:
        BadInput: shares that leave no room for one another.
    """
    if not (0 < val_share < 1 and 0 <= test_share < 1 and val_share + test_share < 1):
        raise BadInput(
            f"--val-share {val_share} and --test-share {test_share} are not shares of one text: the first must be "
            "above 0, the second at least 0, and both together below 1."
        )
    val, test, n = Fraction(str(val_share)), Fraction(str(test_share)), len(corpus)
    ends = [int(share * n) // corpus.episode * corpus.episode for share in (1 - val - test, 1 - test)]
    parts = {"training": (0, ends[0]), "validation": (ends[0], ends[1]), "test": (ends[1], n)}
    if not test_share:
        parts.pop("test")
    return Inspection(corpus, {name: _counted(corpus, *part) for name, part in parts.items()})


def show(
    inspection: Inspection, overrides: Sequence[str], *, val_share: float, test_share: float, as_json: bool
) -> None:
    """Print it.

    Args:
        inspection: of the text.
        overrides: key=value of the source, as typed: data=file and its own keys.
        val_share, test_share: that it was made with.
        as_json: an object, and nothing else.
    """
    command = None
    if inspection.trainable:
        command = command_for([*overrides, *inspection.keys], val_share=val_share, test_share=test_share)
    if as_json:
        print(json.dumps(_as_json(inspection, command)))
        return
    corpus, console = inspection.corpus, Console(soft_wrap=True)
    size = f"{_many(len(corpus), 'character')}, {len(corpus.vocabulary):,} different"
    say = [f"{corpus.name}: {size}, sha256 {corpus.sha256}"]
    say += ["  ".join(f"{split} {int(counts.sum()):,}" for split, counts in inspection.counts.items())]
    with console.capture() as shown:  # the console itself would end the process where nobody reads it
        for line in say:
            console.print(harmless(line), markup=False, highlight=False)
        console.print(_table(inspection))
        for line in [*(f"- {line}" for line in inspection.odd), ""]:
            console.print(harmless(line), markup=False, highlight=False)
    print(shown.get(), end="", flush=True)
    _print_to_be_pasted(harmless(command or "As it is, it cannot be trained on."))


def useful_share(corpus: Corpus) -> float:
    """How much of a text to validate on: a tenth, but of a long one no more than is of use."""
    return 0.1 if len(corpus) <= 20 * ENOUGH else float(f"{ENOUGH / len(corpus):.0e}")


def command_for(overrides: Sequence[str], *, val_share: float, test_share: float) -> str:
    """The command line that trains on a text."""
    keys = list(overrides)
    keys += [f"data.val_share={val_share:g}"] * (val_share != 0.1)
    keys += [f"data.test_share={test_share}"] * bool(test_share)
    return shlex.join(["trilab", "train", *keys])


def _print_to_be_pasted(line: str) -> None:
    """As UTF-8 in every locale, and with those bytes of file names that are none."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.buffer.write(f"{line}\n".encode("utf-8", "surrogateescape"))
        sys.stdout.buffer.flush()
    else:
        print(line)


def _many(count: int, what: str, more: str = "") -> str:
    """So many of something, of which there may be one."""
    return f"{count:,} {what}{'s' if count != 1 else ''}{more}"


def _counted(corpus: Corpus, begins: int, ends: int) -> NDArray[np.int64]:
    counts = np.zeros(len(corpus.vocabulary), dtype=np.int64)
    for start in range(begins, ends, STRETCH):
        counts += np.bincount(corpus.tokens[start : min(start + STRETCH, ends)], minlength=len(counts))
    return counts


def _table(inspection: Inspection) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("character", "code point", "name"):
        table.add_column(column)
    for column in ("count", *inspection.counts):
        table.add_column(column, justify="right")
    total = inspection.total
    order = sorted(range(len(total)), key=lambda place: -int(total[place]))
    shown = order if len(order) <= 2 * SHOWN else [*order[:SHOWN], None, *order[-SHOWN:]]
    for place in shown:
        if place is None:
            table.add_row(f"… {len(order) - 2 * SHOWN:,} more …", "", "(--json lists all)")
            continue
        character = inspection.corpus.vocabulary.characters[place]
        each = [f"{int(counts[place]):,}" for counts in inspection.counts.values()]
        table.add_row(
            harmless(repr(character)[1:-1]),
            f"U+{ord(character):04X}",
            _name(character),
            f"{int(total[place]):,}",
            *each,
        )
    return table


def _as_json(inspection: Inspection, command: str | None) -> dict[str, Any]:
    corpus = inspection.corpus
    return {
        "name": corpus.name,
        "path": corpus.origin,
        "sha256": corpus.sha256,
        "characters": len(corpus),
        "splits": {split: int(counts.sum()) for split, counts in inspection.counts.items()},
        "vocabulary": [
            {
                "character": character,
                "code_point": f"U+{ord(character):04X}",
                "name": _name(character),
                "count": int(inspection.total[place]),
                **{split: int(counts[place]) for split, counts in inspection.counts.items()},
            }
            for place, character in enumerate(corpus.vocabulary.characters)
        ],
        "only_in": {split: inspection.only_in(split) for split in inspection.counts},
        "odd": inspection.odd,
        "command": command,
    }


def _name(character: str) -> str:
    return unicodedata.name(character, "control character" if unicodedata.category(character) == "Cc" else "")
