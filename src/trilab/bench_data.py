"""What reading a text costs, against Python's own ways on the same text: `python -m trilab.bench_data`."""

import argparse
import json
import os
import random
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from trilab.corpora import file

WORDS = {
    "ascii": "the of and to in that it with as his on be at by had not are but from or have an they which one you were",
    "latin": "l’été à naïve façon œuvre où “ça va” être déjà forêt Müller groß für über señor mañana corazón não –",
    "mixed": "naïve 漢字 🙂 Привет мир 天地玄黃 καλημέρα שלום words and more words in between – “quoted” ½ e\u0301",
}
OURS, AGAIN = "trilab: read, decode, sha256, encode, write", "trilab, the second time"
SAMPLE = 8_000_000  # characters that Python's own ways are measured on


@dataclass(frozen=True)
class Speed:
    """How quickly something was done; processor seconds are what is left of it on a machine with other work."""

    way: str
    megabytes: float
    seconds: float
    processor_seconds: float

    @property
    def rate(self) -> float:
        """Megabytes (10**6 bytes of the file) a processor second."""
        return self.megabytes / self.processor_seconds


def bench(path: Path, folder: Path, rounds: int) -> list[Speed]:
    """Read a UTF-8 text in every way: ours with all that belongs to it, then Python's on the beginning of it.

    The ways take turns, and of each the round with the fewest processor seconds counts: the least disturbed one.

    Args:
        path: the text.
        folder: where its token ids go, anew in each round.
        rounds: how many.
    """
    with path.open(encoding="utf-8", newline="") as stream:
        text = stream.read(SAMPLE)
    size, part = path.stat().st_size / 1e6, len(text.encode()) / 1e6
    ids = {character: place for place, character in enumerate(sorted(set(text)))}
    table = {ord(character): chr(place) for character, place in ids.items()}
    best: list[Speed] = []
    for number in range(rounds):
        prepared = folder / str(number)
        read = partial(file.read, str(path), prepared=str(prepared))
        speeds = [
            _measured(OURS, size, read),
            _measured(AGAIN, size, read),
            _measured("[ids[c] for c in text], nothing else", part, lambda: [ids[c] for c in text]),
            _measured("text.translate(table), nothing else", part, lambda: text.translate(table)),
        ]
        shutil.rmtree(prepared, ignore_errors=True)
        best = [
            min(pair, key=lambda speed: speed.processor_seconds) for pair in zip(best or speeds, speeds, strict=True)
        ]
    return best


def write_text(path: Path, kind: str, megabytes: int) -> None:
    """A text of seeded random words, so many 10**6 bytes long."""
    draw = random.Random(0)
    words = WORDS[kind].split()
    pages = ["".join(draw.choice(words) + draw.choice("      \n,.") for _ in range(20_000)).encode() for _ in range(20)]
    left = megabytes * 10**6
    with path.open("wb") as stream:
        while left > 0:
            left -= stream.write(draw.choice(pages))
    os.utime(path, (0, 0))  # one that has just been written would be read again, to be sure


def _measured(way: str, megabytes: float, work: Callable[[], object]) -> Speed:
    began, busy = time.perf_counter(), time.process_time()
    work()
    return Speed(way, megabytes, time.perf_counter() - began, time.process_time() - busy)


def main() -> None:
    """Print a table, or with --json an object; on Linux also the most memory that the process has held."""
    parser = argparse.ArgumentParser(prog="python -m trilab.bench_data", description=__doc__)
    parser.add_argument("path", nargs="?", type=Path, help="a UTF-8 text (default: texts of random words)")
    parser.add_argument("--megabytes", type=int, default=200, help="of each text of random words (default: 200)")
    parser.add_argument(
        "--folder", type=Path, help="where they and what is prepared lie meanwhile (default: the system's)"
    )
    parser.add_argument("--rounds", type=int, default=3, help="of which the best counts (default: 3)")
    parser.add_argument("--json", action="store_true", help="print a JSON object, and nothing else")
    arguments = parser.parse_args()
    found = {}
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        for kind in ["given"] if arguments.path else list(WORDS):
            path = arguments.path or Path(folder, f"{kind}.txt")
            if not arguments.path:
                write_text(path, kind, arguments.megabytes)
            found[kind] = bench(path, Path(folder), arguments.rounds)
            if not arguments.path:
                path.unlink()
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e6
    if arguments.json:
        print(
            json.dumps({"ways": {kind: [asdict(s) for s in speeds] for kind, speeds in found.items()}, "peak_mb": most})
        )
        return
    for kind, (ours, again, *others) in found.items():
        print(f"\n{kind}")
        for speed in (ours, *others):
            took = f"{speed.seconds:>7.2f} s {speed.processor_seconds:>7.2f} s CPU {speed.rate:>6,.0f} MB/s"
            print(f"  {speed.way:<46}{speed.megabytes:>6,.0f} MB {took} {speed.rate / others[0].rate:>6.1f} x the loop")
        print(f"  {again.way:<56}{again.seconds:>7.3f} s")
    print(
        f"\nMost memory held: {most:,.0f} MB, the interpreter and the {SAMPLE:,} characters for Python's ways among it."
    )


if __name__ == "__main__":
    main()
