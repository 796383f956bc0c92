"""`trilab data` tells what is in a text, and gives a command that trains on it."""

import json
import shlex
import subprocess
import sys

import pytest
import torch
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from trilab.corpora.file import read
from trilab.corpus import Corpus
from trilab.data_command import command_for, inspect
from trilab.override import override
from trilab.windows import split

SHARES = {"val_share": 0.1, "test_share": 0.0}


def test_counts_and_code_points_are_told(trilab, tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("é漢a\n" * 10 + "b" * 60, encoding="utf-8")
    done = trilab("data", path)
    assert done.code == 0
    lines = [line.split() for line in done.out.splitlines()]
    assert ["b", "U+0062", "LATIN", "SMALL", "LETTER", "B", "60", "50", "10"] in lines
    assert ["漢", "U+6F22", "CJK", "UNIFIED", "IDEOGRAPH-6F22", "10", "10", "0"] in lines
    assert "training 90  validation 10" in done.out


def test_json_is_all_of_it_and_nothing_else(trilab, text):
    found = json.loads(trilab("data", text, "--json", "--test-share", "0.2").out)
    assert found["characters"] == 2200
    assert found["splits"] == {"training": 1540, "validation": 220, "test": 440}
    assert "".join(entry["character"] for entry in found["vocabulary"]) == read(str(text)).vocabulary.characters
    assert sum(entry["count"] for entry in found["vocabulary"]) == 2200
    for entry in found["vocabulary"]:
        assert entry["count"] == entry["training"] + entry["validation"] + entry["test"]


@pytest.mark.parametrize("shares", [(0.1, 0.0), (0.1, 0.1), (0.333, 0.2), (1e-3, 0.0)])
def test_the_splits_are_those_that_are_trained_on(shares):
    corpus = Corpus.of("text", "".join(chr(97 + i * i % 23) for i in range(9_973)), "text")
    found = inspect(corpus, val_share=shares[0], test_share=shares[1])
    parts = split(
        torch.from_numpy(corpus.tokens), block_size=1, origin="text", val_share=shares[0], test_share=shares[1]
    )
    sizes = [len(part) for part in parts if len(part)]
    assert [int(counts.sum()) for counts in found.counts.values()] == sizes


def test_characters_that_come_in_one_split_only_are_named():
    found = inspect(Corpus.of("text", "ab" * 90 + "abz" + "a" * 17, "text"), **SHARES)
    assert (found.only_in("training"), found.only_in("validation")) == ("", "z")
    assert "1 characters come in the validation split only: 'z'" in found.odd


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\xef\xbb\xbfab\r\ncd\r", ["1 byte order marks removed", "1 CRLF and 1 CR line ends read as LF"]),
        (b"a\0b\x07c", ["1 NUL characters", "1 other control characters"]),
        ("a\ufffd\ufeffb".encode(), ["1 replacement characters (U+FFFD)", "1 byte order marks inside"]),
        ("e\u0301 \u200b\ue000\u0378".encode(), ["1 combining marks", "invisible", "private use", "does not have"]),
    ],
)
def test_what_is_odd_is_told(trilab, tmp_path, content, said):
    (tmp_path / "odd.txt").write_bytes(content)
    out = trilab("data", tmp_path / "odd.txt").out
    for words in said:
        assert words in out


def test_nothing_is_odd_about_a_plain_text(text):
    assert inspect(read(str(text)), **SHARES).odd == []


def test_of_a_long_text_the_command_validates_on_a_small_share():
    corpus = Corpus.of("text", "ab" * 50, "text")
    found = inspect(corpus, **SHARES)
    assert "val_share" not in command_for(found, ["data=file"], **SHARES)
    object.__setattr__(corpus, "tokens", corpus.tokens.repeat(10_000_00))
    assert "data.val_share=0.01" in command_for(found, ["data=file"], **SHARES)
    assert "data.val_share=0.2" in command_for(found, ["data=file"], val_share=0.2, test_share=0.0)


VALUES = [
    *("notes.txt", "my notes.txt", "it's", 'say "hi"', "a,b", "a=b", "(a)", "[a]*.txt", "{a}", "$HOME", "${seed}"),
    *("漢🙂", "a\\", 'a\\"b', "123", "1e5", "null", "True", "~/x", "C:\\x y\\", "#", "a;b", "", " "),
]


@pytest.mark.parametrize("value", VALUES)
def test_any_path_passes_through_hydras_grammar(value):
    parsed = OverridesParser.create().parse_override(override("data.path", value)).value()
    assert OmegaConf.create({"path": parsed}).path == value


@pytest.mark.slow
def test_the_command_trains(trilab, tmp_path):
    path = tmp_path / "my own, notes.txt"
    path.write_bytes("don\u2019t stop\r\n".encode("cp1252") * 1000)
    command = shlex.split(trilab("data", path, "--encoding", "cp1252", "--newline", "keep").out.splitlines()[-1])
    assert command[:2] == ["trilab", "train"]
    given = ["logger=none", "trainer.max_steps=2", f"paths.outputs={tmp_path / 'outputs'}"]
    subprocess.run([sys.executable, "-m", "trilab.cli", *command[1:], *given], check=True, cwd=tmp_path)


@pytest.mark.parametrize(
    ("option", "why"), [(["--val-share", "2"], "not shares"), (["--encoding", "x"], "no encoding")]
)
def test_bad_options_are_one_line(trilab, text, option, why):
    done = trilab("data", text, *option)
    assert done.code == 2
    assert why in done.err
    assert done.err.count("\n") == 1
