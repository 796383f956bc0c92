"""docs/add-a-strategy.md does what it says, from an empty folder to a row in the table."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "add-a-strategy.md"
BLOCK = re.compile(r"(?:`([\w./]+)`:\n\n)?```(python|yaml|console)\n(.*?)```", re.DOTALL)
# what makes a training of some seconds one of a moment
QUICK = ["data=file", "data.path=text.txt", "trainer.max_steps=2", "logger=none", "callbacks.sample_chars=0"]
LAST_EDITS = {
    "import About, Aggregation, accumulator": "import About, Aggregation, Flops, State, accumulator",
    "from torch import Tensor\n": "from torch import Tensor\nfrom torch.nn.functional import pad\n",
    '"O(T²·C)"': '"O(T·C)"',
    '"T·C"': '"stride·C + 1"',
}


def trilab(folder: Path, words: list[str]) -> subprocess.CompletedProcess[str]:
    if words[0] == "train":
        words += [word for word in QUICK if word.partition("=")[0] not in {w.partition("=")[0] for w in words}]
    return subprocess.run(
        [sys.executable, "-m", "trilab.cli", *words],
        cwd=folder,
        env=os.environ | {"COLUMNS": "80", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )


def commands(block: str) -> Iterator[tuple[list[str], int, list[str]]]:
    """Words after `trilab`, exit code, lines shown below; `⋮` stands for any lines."""
    for part in re.split(r"^\$ trilab ", block, flags=re.MULTILINE)[1:]:
        line, _, shown = part.partition("\n")
        command, _, comment = line.partition("   # exit code ")
        yield shlex.split(command), int(comment or 0), shown.splitlines()


def same(line: str) -> str:
    """A line without what differs from machine to machine: digits and spaces at the end."""
    return re.sub(r"[\d,.]+(e[+-]\d+)?", "#", line).rstrip()


@pytest.mark.slow
def test_every_step_of_the_page_works_and_prints_what_stands_there(tmp_path: Path, text: Path) -> None:
    blocks = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    assert [kind for _, kind, _ in blocks].count("console") > 5
    for name, kind, content in blocks:
        if kind == "console":
            for words, code, shown in commands(content):
                done = trilab(tmp_path, words)
                assert done.returncode == code, done.stderr
                said = [same(line) for line in (done.stdout + done.stderr).splitlines()]
                for line in shown:
                    assert line == "⋮" or same(line) in said, f"{line!r} is not in:\n{done.stdout}{done.stderr}"
        elif name:
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
        else:  # to add to the class, with what the page then says of its first lines
            path = tmp_path / "dilated.py"
            source = path.read_text(encoding="utf-8")
            for old, new in LAST_EDITS.items():
                source = source if new in source else source.replace(old, new)
            path.write_text(f"{source}\n{content}", encoding="utf-8")
    assert list((tmp_path / "outputs/dilated").glob("DilatedMean-seed2-*"))


def test_the_page_links_to_files_that_are_there() -> None:
    for link in re.findall(r"\]\(([^)#:]+)\)", PAGE.read_text(encoding="utf-8")):
        assert (PAGE.parent / link).exists(), link
