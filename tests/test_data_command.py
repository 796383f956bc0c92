"""`trilab data` tells what is in a text, and gives a command that trains on it."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser

from trilab.corpora.file import read
from trilab.corpus import Corpus
from trilab.data_command import BATCH_SIZE, BLOCK_SIZE, inspect, useful_share
from trilab.errors import BadInput
from trilab.windows import TrainWindows, split

from .conftest import ROOT

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
    assert "1 character comes in the validation split only: 'z'" in found.odd


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\xef\xbb\xbfab\r\ncd\r", ["1 byte order mark removed", "1 CRLF and 1 CR line ends read as LF"]),
        (b"a\0b\x07c", ["1 NUL character\n", "1 other control character\n"]),
        ("a\ufffd\ufeffb".encode(), ["1 replacement character (U+FFFD)", "1 byte order mark inside"]),
        ("e\u0301 \u200b\ue000\u0378".encode(), ["1 combining mark:", "1 invisible", "private use", "unknown to"]),
    ],
)
def test_what_is_odd_is_told(trilab, tmp_path, content, said):
    (tmp_path / "odd.txt").write_bytes(content)
    out = trilab("data", tmp_path / "odd.txt").out
    for words in said:
        assert words in out


def test_nothing_is_odd_about_a_plain_text(text):
    assert inspect(read(str(text)), **SHARES).odd == []


def test_of_a_long_text_the_splits_and_the_command_validate_on_a_small_share(trilab, tmp_path):
    path = tmp_path / "long.txt"
    path.write_text("ab" * 15_500_000)
    os.utime(path, (0, 0))
    found = json.loads(trilab("data", path, "--json").out)
    assert found["splits"] == {"training": 30_070_000, "validation": 930_000}
    assert found["command"].endswith("data.val_share=0.03")
    found = json.loads(trilab("data", path, "--json", "--val-share", "0.1").out)
    assert found["splits"] == {"training": 27_900_000, "validation": 3_100_000}
    assert "val_share" not in found["command"]


def test_of_a_short_text_a_tenth_is_validated_on(trilab, text):
    assert "val_share" not in trilab("data", text).out
    assert useful_share(read(str(text))) == 0.1


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("aaaa" * 100, "one character over and over"),
        ("abc", "the training split has 2 characters, and data.block_size=8 needs 9"),
        ("ab" * 10, "the validation split has 2 characters, and data.block_size=8 needs 9"),
    ],
)
def test_what_cannot_be_trained_on_is_told(trilab, tmp_path, content, why):
    (tmp_path / "short.txt").write_text(content)
    assert why in trilab("data", tmp_path / "short.txt").out


@pytest.mark.parametrize(("characters", "windows"), [(17, None), (18, 1), (78, 31), (80, None)])
def test_fewer_windows_than_a_batch_takes_are_told_as_training_refuses_them(characters, windows):
    corpus = Corpus.of("text", "ab" * (characters // 2) + "c" * (characters % 2), "text")
    odd = [words for words in inspect(corpus, val_share=0.5, test_share=0.0).odd if "batch" in words]
    train = torch.from_numpy(corpus.tokens[: characters // 2])
    if windows is None:
        assert odd == []
        return
    with pytest.raises(BadInput, match=f"is more than the {windows} windows"):
        TrainWindows(train, BLOCK_SIZE, BATCH_SIZE, seed=0)
    assert len(TrainWindows(train, BLOCK_SIZE, windows, seed=0).starts(0)) == windows
    assert odd[0].startswith(f"too short for data.batch_size={BATCH_SIZE}")
    assert odd[0].endswith(f"has {windows} window{'s' * (windows > 1)}; add data.batch_size={windows}")


def test_windows_and_batches_that_are_spoken_of_are_those_of_a_run_that_sets_none():
    data = yaml.safe_load((ROOT / "conf" / "train.yaml").read_text(encoding="utf-8"))["data"]
    assert (data["block_size"], data["batch_size"]) == (BLOCK_SIZE, BATCH_SIZE)


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
@pytest.mark.parametrize("name", ["été 漢字.txt".encode(), b"caf\xe9 $x.txt", b"plain.txt"])
def test_the_command_names_the_file_by_its_own_bytes_in_every_locale(tmp_path, name, locale):
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).write_text("some words\n" * 100)
    environment = os.environ | {"LC_ALL": locale, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    words = [sys.executable, "-m", "trilab.cli", "data", name]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, check=True)
    [word] = [w for w in shlex.split(os.fsdecode(done.stdout.splitlines()[-1])) if w.startswith("data.path=")]
    parsed = OverridesParser.create().parse_override(word).value()
    assert os.fsencode(str(parsed)) == name


def test_nobody_has_to_read_all_of_it(tmp_path):
    (tmp_path / "text.txt").write_text("".join(map(chr, range(0x4E00, 0x5000))), encoding="utf-8")
    for flags in ([], ["--json"]):
        words = [sys.executable, "-m", "trilab.cli", "data", str(tmp_path / "text.txt"), *flags]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as telling:
            assert telling.stdout is not None
            assert telling.stderr is not None
            telling.stdout.close()
            assert not [line for line in telling.stderr if b"no C compiler" not in line]  # where that is so, it is told
        assert telling.returncode == 141


def test_words_about_the_reading_are_beside_what_is_told(trilab, tmp_path):
    (tmp_path / "odd.txt").write_bytes(b"a\0bc" * 100)
    done = trilab("data", tmp_path / "odd.txt")
    assert "which stay in the text" in done.err
    assert "which stay in the text" not in done.out


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


@pytest.mark.parametrize("text", ["abc def", "aaaa " * 4, "a" * 900])
def test_no_command_is_given_for_a_text_that_none_can_train_on(trilab, tmp_path, text):
    (tmp_path / "text.txt").write_text(text)
    assert trilab("data", tmp_path / "text.txt").out.splitlines()[-1] == "As it is, it cannot be trained on."
    assert json.loads(trilab("data", tmp_path / "text.txt", "--json").out)["command"] is None


def test_the_command_for_a_short_text_sets_a_batch_that_it_can_fill(trilab, tmp_path):
    (tmp_path / "text.txt").write_text("abc def " * 5)
    command = trilab("data", tmp_path / "text.txt", "--val-share", "0.5").out.splitlines()[-1]
    assert f"data.batch_size={20 - BLOCK_SIZE} " in command
