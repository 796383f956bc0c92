"""Sources that draw their text: what is asked, what it costs the source, that it stays the same for all time."""

import hashlib
import itertools
import json
import math
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from trilab.compose import composed
from trilab.corpora import copy, induction, markov, parity, recall
from trilab.corpora.drawn import MOST_CHARACTERS
from trilab.corpus import Corpus, read_corpus
from trilab.errors import BadInput
from trilab.report import make_report

from ..conftest import ROOT

Read = Callable[..., Corpus]

EPISODIC: dict[str, tuple[Read, dict[str, Any]]] = {
    "recall": (recall.read, {}),
    "recall of an odd length": (recall.read, {"episode": 33, "pairs": 1}),
    "copy": (copy.read, {}),
    "copy after a gap": (copy.read, {"gap": 11}),
    "induction": (induction.read, {}),
    "induction of an odd length": (induction.read, {"episode": 27, "gap": 0}),
    "induction once": (induction.read, {"gap": 17}),
    "parity": (parity.read, {}),
    "parity of many bits": (parity.read, {"every": 6}),
}


def drawn(name: str, **changed: Any) -> Corpus:
    read, knobs = EPISODIC[name]
    return read(**{"episode": 32, "characters": 64_000, **knobs, **changed})


def episodes(corpus: Corpus) -> list[str]:
    text = corpus.text
    return [text[at : at + corpus.episode] for at in range(0, len(text), corpus.episode)]


def asked(corpus: Corpus) -> list[list[int]]:
    """The places of the answers, episode by episode."""
    assert corpus.answers is not None
    return [np.flatnonzero(row).tolist() for row in corpus.answers.reshape(-1, corpus.episode)]


def nats(corpus: Corpus) -> Any:
    """(episodes, T) float64."""
    assert corpus.source_nats is not None
    return corpus.source_nats.astype(np.float64).reshape(-1, corpus.episode)


# Of all of them

# sha256 of 10,016 characters; another value means that everybody's text has changed
FOREVER = {
    "recall": "ed9b7390589e21504b80e1883325559e96d08724fe111099081fc815f702227e",
    "copy": "d6b8f6bc9b7ecfdbdd2ed53922fed9bc920d4d6d634e71adad5e7efa3b467866",
    "induction": "8ea42b5840d03f2f49a534b3af2bc32869277d9d1acae723412f87f03e2b4111",
    "parity": "72e36d26ea0921371137231b5dad1262898cd1f43f4ae0dbbd5d52043d603af2",
    "markov": "acb96b1175ac7c8aacbc736858b9645fc59849f5d9547a84ca8904631d20cabe",
}
READ: dict[str, Callable[[int, int], Corpus]] = {
    "recall": lambda n, seed: recall.read(episode=32, characters=n, seed=seed),
    "copy": lambda n, seed: copy.read(episode=32, characters=n, seed=seed),
    "induction": lambda n, seed: induction.read(episode=32, characters=n, seed=seed),
    "parity": lambda n, seed: parity.read(episode=32, characters=n, seed=seed),
    "markov": lambda n, seed: markov.read(characters=n, seed=seed),
}


@pytest.mark.parametrize("source", READ)
def test_the_text_of_a_seed_is_the_same_for_all_time(source: str) -> None:
    assert READ[source](10_016, 0).sha256 == FOREVER[source]


@pytest.mark.parametrize("source", READ)
def test_another_seed_is_another_text_and_a_run_s_seed_has_no_say(source: str) -> None:
    texts = {READ[source](10_016, seed).text for seed in (0, 1, -1, 2**64)}
    assert len(texts) == 4


@pytest.mark.parametrize("source", READ)
def test_a_corpus_says_all_that_is_known_of_each_character(source: str) -> None:
    corpus = READ[source](10_016, 0)
    assert (corpus.name, corpus.origin, len(corpus)) == (source, f"data={source}", 10_016)
    assert corpus.sha256 == hashlib.sha256(corpus.text.encode()).hexdigest()
    assert corpus.source_nats is not None
    assert corpus.source_nats.shape == (10_016,)
    assert corpus.source_nats.dtype == np.float32
    assert np.isfinite(corpus.source_nats).all()
    assert (corpus.source_nats >= 0).all()
    if source == "markov":
        assert (corpus.episode, corpus.answers) == (1, None)
    else:
        assert corpus.episode == 32
        assert corpus.answers is not None
        assert (corpus.answers.shape, corpus.answers.dtype) == ((10_016,), bool)


@pytest.mark.parametrize("name", EPISODIC)
def test_every_episode_begins_with_a_line_end_and_answers_cost_the_source_nothing(name: str) -> None:
    corpus = drawn(name)
    assert all(episode[0] == "\n" and "\n" not in episode[1:] for episode in episodes(corpus))
    assert all(asked(corpus))
    assert (nats(corpus)[:, 0] == 0).all()
    assert (nats(corpus).ravel()[corpus.answers] == 0).all()


@pytest.mark.parametrize("name", EPISODIC)
def test_whole_episodes_only_are_drawn(name: str) -> None:
    whole = drawn(name)
    assert len(drawn(name, characters=64_000 + whole.episode - 1)) % whole.episode == 0


@pytest.mark.parametrize(
    ("read", "knobs"),
    [
        (recall.read, {"episode": 9, "pairs": 2, "keys": 3, "values": 2}),
        (recall.read, {"episode": 8, "pairs": 1, "keys": 2, "values": 3}),
        (copy.read, {"episode": 8, "gap": 1, "symbols": 3}),
        (induction.read, {"episode": 7, "gap": 0, "symbols": 2}),
        (induction.read, {"episode": 8, "gap": 1, "symbols": 2}),
        (induction.read, {"episode": 9, "gap": 2, "symbols": 2}),
        (parity.read, {"episode": 8, "every": 1}),
        (parity.read, {"episode": 8, "every": 2}),
        (parity.read, {"episode": 8, "every": 6}),
    ],
)
def test_what_a_character_costs_the_source_is_how_often_it_follows_its_episode_so_far(
    read: Read, knobs: dict[str, Any]
) -> None:
    corpus = read(**knobs, characters=200_000)
    found, told = episodes(corpus), nats(corpus)
    for at in range(corpus.episode):
        before = Counter(episode[:at] for episode in found)
        so_far = Counter(episode[: at + 1] for episode in found)
        cost = {episode[: at + 1]: told[i, at] for i, episode in enumerate(found)}
        for prefix, times in so_far.items():
            p, n = math.exp(-cost[prefix]), before[prefix[:-1]]
            assert abs(times / n - p) < 5 * math.sqrt(p * (1 - p) / n) + 1e-6, (prefix, times, n, p)


@pytest.mark.parametrize("name", EPISODIC)
def test_what_is_told_of_a_character_depends_on_the_past_alone(name: str) -> None:
    # two episodes that agree up to a character agree on whether it is an answer and on what comes before it
    corpus = drawn(name, characters=320_000)
    told, found = nats(corpus), episodes(corpus)
    for at in range(1, 9):
        by_past = {}
        for i, episode in enumerate(found):
            assert by_past.setdefault(episode[: at + 1], told[i, at]) == told[i, at]


EXPECTED_NATS = {
    "recall": sum(math.log(16 - i) for i in range(4)) + 4 * math.log(16) + 11 * math.log(4),
    "recall of an odd length": 2 * math.log(16),
    "copy": 15 * math.log(16),
    "copy after a gap": 9 * math.log(16),
    "parity": 15 * math.log(2),
    "parity of many bits": 24 * math.log(2),
}


@pytest.mark.parametrize("name", EXPECTED_NATS)
def test_an_episode_costs_the_source_what_its_formula_says(name: str) -> None:
    sums = nats(drawn(name)).sum(1)
    assert sums == pytest.approx(np.full(len(sums), EXPECTED_NATS[name]), rel=1e-5)


# Of each


@pytest.mark.parametrize("name", ["recall", "recall of an odd length"])
def test_every_answer_is_the_value_that_its_key_was_shown_with(name: str) -> None:
    corpus = drawn(name)
    for episode, places in zip(episodes(corpus), asked(corpus), strict=True):
        mark = episode.index("?")
        shown = dict(zip(episode[1:mark:2], episode[2:mark:2], strict=True))
        assert len(shown) == (mark - 1) // 2  # keys are distinct
        assert [episode[place] for place in places] == [shown[episode[place - 1]] for place in places]
        assert places == list(range(mark + 2, mark + 2 + 2 * len(places), 2))
        assert set(episode[places[-1] + 1 :]) <= {"."}


@pytest.mark.parametrize("name", ["copy", "copy after a gap"])
def test_what_stands_after_the_mark_is_what_stood_before_the_gap(name: str) -> None:
    corpus, gap = drawn(name), EPISODIC[name][1].get("gap", 0)
    for episode, places in zip(episodes(corpus), asked(corpus), strict=True):
        length = len(places)
        assert episode[1 + length : places[0]] == "." * gap + ">"
        back = length + gap + 1
        assert all(episode[place] == episode[place - back] for place in places)
        assert set(episode[places[-1] + 1 :]) <= {"."}


INDUCTION = ["induction", "induction of an odd length", "induction once"]


@pytest.mark.parametrize("name", INDUCTION)
def test_every_answer_is_what_followed_the_trigger_so_many_characters_before(name: str) -> None:
    corpus, gap = drawn(name), EPISODIC[name][1].get("gap", 4)
    firsts = set()
    for episode, places in zip(episodes(corpus), asked(corpus), strict=True):
        triggers = [place for place, character in enumerate(episode) if character == "!"]
        assert {after - before for before, after in itertools.pairwise(triggers)} == {gap + 2}
        assert places == [place + 1 for place in triggers[1:] if place + 1 < corpus.episode]
        assert {episode[place] for place in places} == {episode[triggers[0] + 1]}
        assert triggers[-1] + gap + 2 >= corpus.episode  # until it is full
        firsts.add(triggers[0])
    assert firsts == set(range(1, min(gap + 2, corpus.episode - gap - 4) + 1))


@pytest.mark.parametrize("name", INDUCTION)
def test_an_episode_of_induction_costs_the_place_of_its_trigger_and_its_noise(name: str) -> None:
    corpus, gap = drawn(name), EPISODIC[name][1].get("gap", 4)
    for episode, places, cost in zip(episodes(corpus), asked(corpus), nats(corpus).sum(1), strict=True):
        noise = corpus.episode - 1 - episode.count("!") - len(places)
        place = math.log(min(gap + 2, corpus.episode - gap - 4))
        assert cost == pytest.approx(place + noise * math.log(16), rel=1e-5)


@pytest.mark.parametrize("name", ["parity", "parity of many bits"])
def test_every_answer_is_the_parity_of_all_bits_before_it(name: str) -> None:
    corpus, every = drawn(name), EPISODIC[name][1].get("every", 1)
    for episode, places in zip(episodes(corpus), asked(corpus), strict=True):
        assert places == list(range(1 + every, places[-1] + 1, every + 1))
        assert corpus.episode - places[-1] - 1 <= every
        for place in places:
            assert episode[place] == "eo"[episode[:place].count("1") % 2]
            assert set(episode[place - every : place]) <= set("01")


def test_symbols_go_on_where_the_letters_end() -> None:
    corpus = recall.read(episode=64, characters=640_000, keys=40, values=1000)
    keys = {c for c in corpus.text if c.islower() or "\u4e00" <= c < "\uac00"}
    values = {c for c in corpus.text if c.isupper() or c >= "\uac00"}
    assert (len(keys), len(values)) == (40, 1000)


# The Markov chain


@pytest.mark.parametrize(("order", "symbols"), [(1, 2), (1, 5), (2, 3), (3, 2)])
def test_the_chain_is_drawn_from_its_table_and_costs_what_the_table_says(order: int, symbols: int) -> None:
    knobs = {"order": order, "symbols": symbols, "concentration": 0.7, "seed": 3}
    corpus, table = markov.read(**knobs, characters=200_000), markov.transitions(**knobs) / markov.ONE
    ids = [ord(c) - ord("a") for c in corpus.text]
    counts = np.zeros_like(table)
    assert corpus.source_nats is not None
    assert corpus.source_nats[:order] == pytest.approx([math.log(symbols)] * order)
    for at in range(order, len(ids)):
        state = 0
        for one in ids[at - order : at]:
            state = state * symbols + one
        counts[state, ids[at]] += 1
        if at < 500:
            assert corpus.source_nats[at] == pytest.approx(-math.log(table[state, ids[at]]), rel=1e-5)
    n = counts.sum(1, keepdims=True)
    assert (np.abs(counts - n * table) <= 5 * np.sqrt(n * table * (1 - table)) + 1e-6).all()


def brute_force_rate(table: Any, symbols: int) -> float:
    """By the whole matrix of states and its eigenvector, state by state."""
    n = len(table)
    moves = np.zeros((n, n))
    for state in range(n):
        for symbol in range(symbols):
            moves[state, (state * symbols + symbol) % n] += table[state, symbol]
    values, vectors = np.linalg.eig(moves.T)
    share = np.real(vectors[:, np.argmin(np.abs(values - 1))])
    share /= share.sum()
    return -sum(
        share[s] * table[s, x] * math.log(table[s, x]) for s in range(n) for x in range(symbols) if table[s, x] > 0
    )


@pytest.mark.parametrize(("order", "symbols"), [(1, 2), (1, 7), (2, 3), (3, 3), (5, 2)])
@pytest.mark.parametrize("concentration", [0.1, 1.0, 30.0])
def test_the_entropy_rate_is_that_of_the_whole_matrix_of_states(order: int, symbols: int, concentration: float) -> None:
    knobs: dict[str, Any] = {"order": order, "symbols": symbols, "concentration": concentration, "seed": 1}
    table = markov.transitions(**knobs) / markov.ONE
    assert markov.entropy_rate(**knobs) == pytest.approx(brute_force_rate(table, symbols), rel=1e-9)


def test_a_long_text_costs_the_source_its_entropy_rate() -> None:
    corpus = markov.read(characters=400_000)
    assert corpus.source_nats is not None
    error = corpus.source_nats.std() / math.sqrt(len(corpus))
    assert abs(corpus.source_nats.mean(dtype=np.float64) - markov.entropy_rate()) < 8 * error


def test_a_chain_that_goes_in_circles_has_an_entropy_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    # a → b or c, evenly; b and c → a: ln 2 every other step, and the share of a never settles without lazy steps
    circle = np.array([[0, markov.ONE // 2, markov.ONE // 2], [markov.ONE, 0, 0], [markov.ONE, 0, 0]])
    monkeypatch.setattr(markov, "transitions", lambda **knobs: circle)
    assert markov.entropy_rate(order=1, symbols=3) == pytest.approx(math.log(2) / 2)


def test_uniform_rows_have_the_entropy_of_the_alphabet_and_sure_ones_nearly_none() -> None:
    assert markov.entropy_rate(order=1, symbols=8, concentration=1e9) == pytest.approx(math.log(8), rel=1e-6)
    assert markov.entropy_rate(order=2, symbols=4, concentration=0.003, seed=2) < 0.1


@pytest.mark.parametrize("concentration", [1e-300, 1e-6, 1e-3, 1.0, 1e9, 1.7e308])
def test_rows_of_the_table_are_distributions_at_every_concentration(concentration: float) -> None:
    table = markov.transitions(order=2, symbols=6, concentration=concentration, seed=0)
    assert table.shape == (36, 6)
    assert (table >= 0).all()
    assert (table.sum(1) == markov.ONE).all()


# What does not fit


@pytest.mark.parametrize(
    ("read", "knobs", "said"),
    [
        (recall.read, {"episode": 8}, "data.pairs=4 need episodes of at least 12 characters"),
        (recall.read, {"episode": 8}, "at most data.pairs=2 fit"),
        (recall.read, {"episode": 5, "pairs": 1}, "not even one pair fits"),
        (recall.read, {"episode": 64, "pairs": 17}, "data.pairs=17 must lie between 1 and data.keys=16"),
        (recall.read, {"episode": 64, "pairs": 0}, "data.pairs=0 must lie between 1"),
        (recall.read, {"episode": 64, "keys": 1}, "data.keys=1 must lie between 2 and 1,000"),
        (recall.read, {"episode": 64, "values": 1001}, "data.values=1001 must lie between 2 and 1,000"),
        (recall.read, {"episode": 64, "characters": 63}, "data.characters=63 holds no whole episode of 64"),
        (copy.read, {"episode": 16, "gap": 13}, "data.gap=13 leaves no room .* data.gap=12 is the most"),
        (copy.read, {"episode": 3}, "4 are the least"),
        (copy.read, {"episode": 16, "gap": -1}, "data.gap=-1 must be at least 0"),
        (copy.read, {"episode": 16, "symbols": 0}, "data.symbols=0 must lie between"),
        (induction.read, {"episode": 16, "gap": 12}, "data.gap=12 leaves no room .* data.gap=11 is the most"),
        (induction.read, {"episode": 4, "gap": 0}, "5 are the least"),
        (induction.read, {"episode": 16, "gap": -2}, "data.gap=-2 must be at least 0"),
        (parity.read, {"episode": 16, "every": 15}, "data.every=15 leaves no room .* data.every=14 is the most"),
        (parity.read, {"episode": 2}, "3 are the least"),
        (parity.read, {"episode": 16, "every": 0}, "data.every=0 must be at least 1"),
        (markov.read, {"order": 0}, "data.order=0 must be at least 1"),
        (markov.read, {"order": 5}, "data.order=5 with data.symbols=16 .* data.order=4 is the most"),
        (markov.read, {"order": 10**9}, "data.order=1000000000 with"),
        (markov.read, {"symbols": 1}, "data.symbols=1 must lie between"),
        (markov.read, {"order": 10**400}, "data.order=10+ with data.symbols=16 .* data.order=4 is the most"),
        (markov.read, {"concentration": 0.0}, "data.concentration=0 must be at least 1e-300 and finite"),
        (markov.read, {"concentration": 1e-310}, "data.concentration=1e-310 must be at least 1e-300"),
        (markov.read, {"concentration": math.inf}, "data.concentration=inf must be at least 1e-300 and finite"),
        (markov.read, {"concentration": math.nan}, "data.concentration=nan must be at least 1e-300 and finite"),
        (markov.read, {"characters": 2}, "data.characters=2 must be at least 3"),
        (copy.read, {"episode": 10**9, "characters": 10**9}, "data.episode=1000000000 must be at most 100,000,000"),
    ],
)
def test_knobs_that_do_not_fit_are_refused_with_what_would(read: Read, knobs: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        read(**knobs)


@pytest.mark.parametrize("source", READ)
@pytest.mark.parametrize("characters", [MOST_CHARACTERS + 1, 10**13, 10**30])
def test_a_text_that_does_not_fit_memory_is_refused_before_it_is_drawn(source: str, characters: int) -> None:
    with pytest.raises(BadInput, match=f"data.characters={characters} must be at most 100,000,000"):
        READ[source](characters, 0)


@pytest.mark.parametrize(("episode", "example"), [(64, 6400), (30_000_000, 90_000_000), (10**8, 10**8)])
def test_where_no_episode_fits_the_size_that_a_message_names_does(episode: int, example: int) -> None:
    with pytest.raises(BadInput, match=rf"holds no whole episode .* for example {example}\.") as refused:
        copy.read(episode=episode, characters=episode - 1)
    assert f"data.characters={episode - 1} " in str(refused.value)
    assert example % episode == 0
    if episode == 64:
        assert len(copy.read(episode=episode, characters=example)) == example


@pytest.mark.parametrize(
    ("read", "knobs", "too_much"),
    [
        (recall.read, {"episode": 11, "pairs": 3}, {"pairs": 4}),
        (recall.read, {"episode": 6, "pairs": 1}, {"pairs": 2}),
        (copy.read, {"episode": 16, "gap": 12}, {"gap": 13}),
        (induction.read, {"episode": 16, "gap": 11}, {"gap": 12}),
        (parity.read, {"episode": 16, "every": 14}, {"every": 15}),
        (markov.read, {"order": 4}, {"order": 5}),
    ],
)
def test_the_most_that_a_message_names_does_fit(read: Read, knobs: dict[str, Any], too_much: dict[str, Any]) -> None:
    assert len(read(**knobs, characters=1000)) > 900
    (knob,) = too_much
    with pytest.raises(BadInput, match=f"data.{knob}={knobs[knob]} (is the most|fit)"):
        read(**(knobs | too_much), characters=1000)


# From the command line


def test_torch_is_not_needed() -> None:
    program = (
        "import sys; from trilab.corpora import copy, induction, markov, parity, recall; "
        "recall.read(episode=32, characters=64); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], env=os.environ).returncode == 0


@pytest.mark.parametrize("source", READ)
def test_a_source_trains_without_any_other_key(train: Any, source: str) -> None:
    quick = ("trainer.max_steps=2", "trainer.val_every=1", "data.characters=40000", "data.block_size=32", "logger=none")
    done = train(f"data={source}", *quick, "check.causality=off", "callbacks.sample_chars=0", quick=False)
    assert done.code == 0, done.err
    summary, corpus = done.summary, READ[source](40_000, 0)
    assert summary["data"] == {
        "name": source,
        "sha256": corpus.sha256,
        "characters": len(corpus),
        "vocab_size": len(corpus.vocabulary),
    }
    begins = int(len(corpus) * 0.9) // corpus.episode * corpus.episode
    assert corpus.source_nats is not None
    targets = corpus.source_nats[begins + 1 :].astype(np.float64)
    assert summary["references"]["source"] == pytest.approx(targets.mean(), rel=1e-12)
    rows = [json.loads(line) for line in (done.run / "metrics.jsonl").read_text().splitlines()]
    assert all(("val/answer_loss" in row) == (source != "markov") for row in rows if "val/loss" in row)


def test_windows_that_do_not_hold_whole_episodes_are_refused(train: Any) -> None:
    done = train("data=copy", "data.episode=24", "data.characters=40000", "logger=none", quick=False)
    assert done.code == 2
    assert "data.block_size=32 does not hold whole episodes of data=copy" in done.err


def test_the_seed_of_a_run_leaves_the_text_as_it_is_and_that_of_the_data_changes_it() -> None:
    def sha(*keys: str) -> str:
        return read_corpus(composed(["data=parity", "data.characters=4000", *keys]).data.source).sha256

    assert sha("seed=0") == sha("seed=1")
    assert sha("data.seed=1") != sha()


def test_an_episode_fills_a_window_however_long_unless_it_is_given_a_length_of_its_own() -> None:
    def episode(*keys: str) -> int:
        return read_corpus(composed(["data=copy", "data.characters=4000", *keys]).data.source).episode

    assert episode() == 32
    assert episode("data.block_size=48") == 48
    assert episode("data.block_size=48", "data.episode=16") == 16


def test_answers_are_told_of_on_both_splits_and_in_the_report_and_lines_are_of_each_split(train: Any) -> None:
    keys = ("data=copy", "data.characters=20000", "data.test_share=0.2", "agg=none", "report.measure=test_loss")
    quick = ("trainer.max_steps=2", "logger=none", "check.causality=off", "callbacks.sample_chars=0")
    done = train(*keys, *quick, quick=False)
    assert done.code == 0, done.err
    corpus, summary = copy.read(episode=32, characters=20_000), done.summary
    assert corpus.source_nats is not None
    cut = [int(len(corpus) * share) // 32 * 32 for share in (0.7, 0.8, 1.0)]
    for name, begins, ends in (("references", *cut[:2]), ("references_test", *cut[1:])):
        assert summary[name]["source"] == corpus.source_nats[begins + 1 : ends].mean(dtype=np.float64)
    assert summary["references"]["unigram"] != summary["references_test"]["unigram"]
    for split in ("", "test_"):
        assert 0 <= summary[f"{split}answer_accuracy"] < 0.5
        assert summary[f"{split}answer_loss"] > summary[f"{split}answer_accuracy"]
    assert summary["answer_loss"] != summary["test_answer_loss"]
    made = make_report(done.run.parent)
    (row,) = made.rows
    assert row.answer_accuracy == summary["answer_accuracy"]
    assert row.losses["answer_loss"].mean == summary["answer_loss"]
    lines = {line.name: line.loss for line in made.references}
    assert lines["true source"] == summary["references_test"]["source"]
    assert lines["2-gram"] == summary["references_test"]["windowed"]["2"]


def test_a_text_too_long_to_be_counted_still_has_its_source_s_line(train: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from trilab import run

    monkeypatch.setattr(run, "COUNTED_AT_MOST", 1000)
    quick = ("trainer.max_steps=1", "logger=none", "check.causality=off", "callbacks.sample_chars=0")
    done = train("data=parity", "data.characters=4000", *quick, quick=False)
    corpus = parity.read(episode=32, characters=4000)
    assert corpus.source_nats is not None
    assert done.summary["references"] == {
        "source": corpus.source_nats[int(len(corpus) * 0.9) // 32 * 32 + 1 :].mean(dtype=np.float64)
    }


@pytest.mark.slow
def test_two_processes_find_the_same_answers_right_as_one(train: Any) -> None:
    keys = ("data=recall", "data.characters=100000", "trainer.max_steps=4", "trainer.val_every=2", "logger=none")
    quick = ("check.causality=off", "callbacks.sample_chars=0", "agg=attention", "data.val_chars=700")
    one, two = (train(*keys, *quick, f"trainer.devices={n}", f"experiment_name=on_{n}", quick=False) for n in (1, 2))
    assert one.code == two.code == 0, two.err
    alone, both = (json.loads((run / "summary.json").read_text()) for run in two.runs)
    assert both["answer_accuracy"] == alone["answer_accuracy"]
    assert both["answer_loss"] == pytest.approx(alone["answer_loss"], abs=1e-6)


# What docs/synthetic.md says

PAGE = (ROOT / "docs" / "synthetic.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("command", re.findall(r"python train\.py ((?:[^\n]*\\\n)*[^\n]*)", PAGE))
def test_every_command_of_the_page_composes(command: str) -> None:
    keys = [key for key in command.replace("\\\n", " ").split() if key != "-m"]
    config = composed([re.sub(r"=([^,]*),.*", r"=\1", key) for key in keys])  # the first run of a sweep
    assert read_corpus(config.data.source).source_nats is not None


def test_the_entropy_rate_and_the_cost_of_the_text_are_those_of_the_page() -> None:
    corpus = markov.read()
    assert corpus.source_nats is not None
    told = re.search(r"([\d.]+) nats for the default chain; its default text .* source ([\d.]+)\.", PAGE)
    assert told is not None
    assert f"{markov.entropy_rate():.4f}" == told[1]
    assert f"{corpus.source_nats.mean(dtype=np.float64):.4f}" == told[2]


def test_who_knows_the_values_and_not_whose_they_are_loses_what_the_page_says() -> None:
    draws = [Counter(values) for values in itertools.product(range(8), repeat=4)]
    nats = [-sum(n / 4 * math.log(n / 4) for n in drawn.values()) for drawn in draws]
    assert f"loses {sum(nats) / len(draws):.4f} nats" in PAGE
    assert f"finds {100 * sum(max(drawn.values()) / 4 for drawn in draws) / len(draws):.1f} %" in PAGE
