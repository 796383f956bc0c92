"""Texts, files, values and command lines that nobody would think of: each trains, or is refused by one clear error.

    python -m tests.fuzz                                    every kind, 200 of each
    python -m tests.fuzz --examples 1000 --only texts       more of one kind
    python -m tests.fuzz --page docs/reliability.md         also writes the table into the page

What trains takes two steps, and its text comes back from its tokens. What is refused ends with exit code 2, without a
traceback and without a run left behind. Hypothesis draws the examples, and makes one that fails smaller.
"""

import argparse
import contextlib
import gzip
import io
import os
import re
import shlex
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from trilab.cli import main as trilab_main
from trilab.compose import composed
from trilab.corpus import read_corpus
from trilab.launch import main as train_main
from trilab.report.runs import read_run

from .conftest import QUICK, exit_code

MARK = "fuzz"  # of the table in a page
TWO_STEPS = (
    *QUICK,
    *("trainer.max_steps=2", "data.block_size=4", "data.batch_size=2", "check.causality=off"),
    *("callbacks.weight_tables=false", "callbacks.progress=false"),
)
TRAINED, FAILED, REFUSED, ANSWERED = "trained", "failed, and said why", "refused", "answered"

# Characters of every kind: ASCII, line ends, a mark, controls, lone surrogates, others than the basic plane's.
CHARACTERS = st.one_of(
    st.sampled_from(list("ab \n\r\t.,'\"")),
    st.sampled_from(
        ["\ufeff", "\0", "\x85", "\u2028", "\u0301", "é", "e\u0301", "漢", "🙂", "\ud800", "\udfff", "\x1b"]
    ),
    st.characters(codec="utf-8"),
)
SHORT = st.lists(CHARACTERS, min_size=2, max_size=12).map("".join)
TEXTS = st.one_of(
    st.lists(CHARACTERS, max_size=60).map("".join),
    *[st.tuples(SHORT, SHORT).map(lambda parts, times=times: parts[0] * times + parts[1] * times) for times in (9, 80)],
)
MARKS = st.sampled_from([b"", b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"\xff\xfe\0\0", b"\0\0\xfe\xff", b"\x1f\x8b"])
ENCODINGS = st.sampled_from(["utf-8", "utf-16", "utf-32", "utf-16-le", "utf-16-be", "cp1252", "latin-1", "shift_jis"])
FILES = st.one_of(
    st.binary(max_size=400),
    st.tuples(MARKS, st.binary(max_size=400)).map(b"".join),
    st.tuples(TEXTS, ENCODINGS).map(lambda t: t[0].encode(t[1], "ignore")),
    TEXTS.map(lambda text: gzip.compress(text.encode("utf-8", "ignore") * 5)),
    TEXTS.map(lambda text: gzip.compress(text.encode("utf-8", "ignore") * 5)[:-5]),
)
VALUES = st.one_of(
    st.sampled_from(
        [
            *("", "null", "~", "true", "-1", "0", "1", "2", "3.5", "1e400", "nan", "inf", "-inf", "1e-320", "-0.0"),
            *(
                "abc",
                "é",
                "🙂",
                "[]",
                "[1,2]",
                "{}",
                "{a:1}",
                "{_target_:os.system}",
                "os.system",
                "trilab.agg.ema.Ema",
            ),
            *("${seed}", "${nope}", "${oc.env:NOPE}", "${run_id:}", "'", '"x"', "???", "a/b", "a=b", "a,b", "0x10"),
            *(
                "1_000",
                " ",
                "\\n",
                "x" * 300,
                str(10**30),
                str(-(10**30)),
                str(2**63),
                str(10**18),
                "1" + "0" * 400,
                "range(0,3)",
                "glob(*)",
                "(",
                "\0",
            ),
        ]
    ),
    st.integers(-3, 40).map(str),
    st.floats().map(str),
    st.text(max_size=8),
)
# What is legal for these takes for ever, starts so many processes, or leaves the folder that this is tried in.
SMALL_ONLY = ("trainer.max_steps", "callbacks.sample_chars", "trainer.devices", "trainer.num_nodes", "threads")
NOT_TRIED = ("paths.outputs", "data.path", "data.prepared")
# power, which trains, is not among them
COMMANDS = ("check", "explain", "report", "reproduce", "runs", "dashboard", "generate", "data", "export")
WORDS = st.one_of(
    st.sampled_from(
        [
            *("--help", "--json", "--tokens", "--prompt", "--seed", "--row", "--baseline", "--margin", "--temperature"),
            *("-", "--", "-m", "-x", "3", "-3", "nan", "1e400", "none", "ema", "os.system", "my_pkg.MyAgg", "no/where"),
            *("size=0", "size=abc", "=", "a=", "[", "[ema,", "[]", ".", "text.txt", "report.json", "--out", "--loss"),
        ]
    ),
    st.text(max_size=6),
)


class Unclear(AssertionError):
    """Something that is neither trained nor refused by one clear error."""


def run(main: Callable[[], None], *arguments: str) -> tuple[int, str, str]:
    """A command in this process: exit code, and what it said."""
    out, err = io.StringIO(), io.StringIO()
    argv, sys.argv = sys.argv, ["trilab", *arguments]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = exit_code(main)
    except Exception:
        raise Unclear(traceback.format_exc()) from None
    finally:
        sys.argv = argv
    return code, out.getvalue(), err.getvalue()


def fate(code: int, out: str, err: str) -> str:
    """What a command came to.

    Raises:
        Unclear: a traceback, an exit code that nobody promised, or an error without a word.
    """
    if "Traceback" in err or "Traceback" in out or code not in (0, 1, 2):
        raise Unclear(f"exit code {code}\n{out}\n{err}")
    if code and not err.strip():
        raise Unclear(f"exit code {code} and nothing on stderr:\n{out}")
    return {0: ANSWERED, 1: FAILED, 2: REFUSED}[code]


def trained(folder: Path, *keys: str) -> str:
    """What two steps of training come to."""
    code, out, err = run(train_main, *TWO_STEPS, f"paths.outputs={folder / 'outputs'}", *keys)
    came_to = fate(code, out, err)
    left = list((folder / "outputs").rglob("config.yaml"))
    if came_to == REFUSED and left:
        raise Unclear(f"refused, but {left} is left: {err}")
    for config in left:
        if (kept := read_run(config.parent)).status == "unreadable":
            raise Unclear(f"what is left cannot be reported: {kept.reason}")
    return TRAINED if came_to == ANSWERED and left else came_to


def try_file(content: bytes, folder: Path, expected: str | None = None) -> str:
    """Train on a file with this content; its text must come back from its tokens."""
    path = folder / "text.txt"
    path.write_bytes(content)
    came_to = trained(folder, f"data.path={path}")
    if came_to == TRAINED:
        found = read_corpus({"_target_": "trilab.corpora.file.read", "path": str(path)})
        if expected is not None and found.text != expected:
            raise Unclear(f"{expected!r} came back as {found.text!r}")
        if found.vocabulary.encode(found.text).tolist() != found.tokens.tolist():
            raise Unclear(f"{found.text!r} has other tokens than those it was decoded from")
    return came_to


def try_text(text: str, folder: Path) -> str:
    """Train on a text; a lone surrogate makes the file one that is not UTF-8."""
    expected = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    return try_file(text.encode("utf-8", "surrogatepass"), folder, expected)


def try_value(pair: tuple[str, str], folder: Path) -> str:
    """Train with one key set to something."""
    key, value = pair
    path = folder / "text.txt"
    path.write_text("abc cab bad\nhid fig jig\nace dig\n" * 20)
    return trained(folder, f"data.path={path}", f"{key}={value}")


def try_line(words: list[str], folder: Path) -> str:
    """Give a command that trains nothing."""
    del folder
    return fate(*run(trilab_main, *words))


@cache
def keys() -> list[str]:
    """Every key of the config, and the groups."""

    def flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
        for name, value in tree.items():
            yield f"{prefix}{name}"
            if isinstance(value, Mapping):
                yield from flat(value, f"{prefix}{name}.")

    found = list(flat(composed(["data=file", "data.path=text.txt", "agg=attention", "model=gpt"]).tree))
    return [key for key in found if key not in NOT_TRIED]


def _may_be_tried(pair: tuple[str, str]) -> bool:
    key, value = pair
    digits = re.sub(r"[^0-9]", "", value)
    return key not in SMALL_ONLY or not digits or (len(value) < 3 and int(digits) < 3)


def values() -> st.SearchStrategy[tuple[str, str]]:
    """A key and a value for it."""
    return st.tuples(st.sampled_from(keys()), VALUES).filter(_may_be_tried)


KINDS: Mapping[str, tuple[Callable[[], st.SearchStrategy[Any]], Callable[[Any, Path], str]]] = {
    "texts": (lambda: TEXTS, try_text),
    "files": (lambda: FILES, try_file),
    "config values": (values, try_value),
    "command lines": (
        lambda: st.tuples(st.sampled_from(COMMANDS), st.lists(WORDS, min_size=1, max_size=4)).map(_line),
        try_line,
    ),
}


def _line(parts: tuple[str, list[str]]) -> list[str]:
    return [parts[0], *(word.replace("\0", "") for word in parts[1])]


def fuzz(kind: str, examples: int, *, seed: int = 0) -> Counter[str]:
    """Try so many examples of a kind; returns how many came to what.

    Raises:
        Unclear: the smallest example that was neither trained nor refused by one clear error.
    """
    counts: Counter[str] = Counter()
    made, attempt = KINDS[kind]

    @hypothesis.seed(seed)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(made())
    def one(example: Any) -> None:
        before = Path.cwd()
        with tempfile.TemporaryDirectory() as name:
            os.chdir(name)
            try:
                counts[attempt(example, Path(name))] += 1
            except Unclear as error:
                shown = shlex.join(example) if kind == "command lines" else repr(example)
                raise Unclear(f"{kind}: {shown}\n{error}") from None
            finally:
                os.chdir(before)

    one()
    return counts


def table(found: Mapping[str, Counter[str]]) -> str:
    """What every kind came to."""
    columns = (TRAINED, ANSWERED, REFUSED, FAILED)
    lines = [f"| what was made up | tried | {' | '.join(columns)} | anything else |", "| --- " * 7 + "|"]
    for kind, counts in found.items():
        numbers = " | ".join(f"{counts[column]:,}" for column in columns)
        lines.append(f"| {kind} | {counts.total():,} | {numbers} | 0 |")
    return "\n".join(lines)


def main() -> None:
    """Fuzz, print the table; exit code 1, and the smallest example, where something is not clear."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=200, help="of each kind (default: 200)")
    parser.add_argument("--seed", type=int, default=0, help="of the examples (default: 0)")
    parser.add_argument("--only", choices=list(KINDS), help="this kind alone")
    parser.add_argument("--page", type=Path, help="a page with the two marks between which the table stands")
    arguments = parser.parse_args()
    found = {}
    for kind in [arguments.only] if arguments.only else KINDS:
        found[kind] = fuzz(kind, arguments.examples, seed=arguments.seed)
        print(f"{kind}: {dict(found[kind])}", flush=True)
    print(table(found))
    if arguments.page:
        before, mark, rest = arguments.page.read_text(encoding="utf-8").partition(f"<!-- {MARK} -->\n")
        after = rest.partition(f"<!-- /{MARK} -->")[2]
        written = f"{before}{mark}{table(found)}\n<!-- /{MARK} -->{after}"
        arguments.page.write_text(written, encoding="utf-8")


if __name__ == "__main__":
    main()
