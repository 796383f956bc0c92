"""What reading a text costs, against Python's own ways on the same text."""

import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from trilab.bench.machine import machine
from trilab.bench.measured import Measured, Series
from trilab.bench.telling import Tell
from trilab.bench.turns import take_turns
from trilab.corpora import file
from trilab.vocabulary import Vocabulary

WORDS = {
    "ASCII": "the of and to in that it with as his on be at by had not are but from or have an they which one you were",
    "Latin": "l’été à naïve façon œuvre où “ça va” être déjà forêt Müller groß für über señor mañana corazón não –",
    "mixed": "naïve 漢字 🙂 Привет мир 天地玄黃 καλημέρα שלום words and more words in between – “quoted” ½ e\u0301",
}
OURS = "trilab: read, decode, sha256, encode, write"
ENCODE, LOOP, TRANSLATE = "Vocabulary.encode(text)", "[ids[c] for c in text]", "text.translate(table)"
MEASURE = "MB of text per processor second"
SAMPLE = 8_000_000  # characters that str → ids is measured on
NOTES = (
    "1 MB is 10^6 bytes of UTF-8. The first row is everything; the others have the text in memory and decoded.",
    "Vocabulary.encode and the loop are the same work: characters whose ids are known → ids.",
)


def measure(
    *, quick: bool, threads: int, tell: Tell, megabytes: int | None = None, rounds: int | None = None
) -> Measured:
    """Read texts of random words in every way.

    Args:
        megabytes: of each text; None: as `quick` says.
        rounds: likewise.
    """
    size = megabytes or (4 if quick else 100)
    found: list[Series] = []
    with tempfile.TemporaryDirectory() as folder:
        for kind in WORDS:
            tell(f"data: {kind}, {size} MB")
            path = Path(folder, f"{kind}.txt")
            write_text(path, kind, size)
            speeds = take_turns(_ways(path, Path(folder)), rounds or (3 if quick else 9))
            found += [Series(kind, MEASURE, way, "MB/s", tuple(values)) for way, values in speeds.items()]
            path.unlink()
    return Measured("data", "cpu", quick, machine(threads), LOOP, tuple(found), NOTES)


def _ways(path: Path, folder: Path) -> dict[str, Callable[[], float]]:
    with path.open(encoding="utf-8", newline="") as stream:
        text = stream.read(SAMPLE)
    whole, part = path.stat().st_size / 1e6, len(text.encode()) / 1e6
    ids = {character: place for place, character in enumerate(sorted(set(text)))}
    table = {ord(character): chr(place) for character, place in ids.items()}
    vocabulary = Vocabulary("".join(ids))
    return {
        OURS: partial(_read, path, folder / "prepared", whole),
        ENCODE: partial(_rate, part, lambda: vocabulary.encode(text)),
        LOOP: partial(_rate, part, lambda: [ids[c] for c in text]),
        TRANSLATE: partial(_rate, part, lambda: text.translate(table)),
    }


def _read(path: Path, prepared: Path, megabytes: float) -> float:
    shutil.rmtree(prepared, ignore_errors=True)  # so that nothing is found that was prepared before
    return _rate(megabytes, lambda: file.read(str(path), prepared=str(prepared)))


def _rate(megabytes: float, work: Callable[[], object]) -> float:
    busy = time.process_time()
    work()
    return megabytes / (time.process_time() - busy)


def write_text(path: Path, kind: str, megabytes: int) -> None:
    """A text of seeded random words, so many 10**6 bytes long.

    Args:
        kind: of WORDS.
    """
    draw = random.Random(0)
    words = WORDS[kind].split()
    pages = ["".join(draw.choice(words) + draw.choice("      \n,.") for _ in range(20_000)).encode() for _ in range(20)]
    left = megabytes * 10**6
    with path.open("wb") as stream:
        while left > 0:
            left -= stream.write(draw.choice(pages))
    os.utime(path, (0, 0))  # one that has just been written would be read again, to be sure
