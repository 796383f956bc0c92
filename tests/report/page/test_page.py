"""The page as text: what it says, whatever the runs are, and that it needs nothing else."""

import base64
import hashlib
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from trilab.looks import Looks, settle
from trilab.report import make_report
from trilab.report.page import page_html
from trilab.sequential import Spending

from ..conftest import adds_runs
from .conftest import Written
from .fixture import leave_all

AddRun = Callable[..., Path]


class Seen(HTMLParser):
    """The words of a page without its scripts and styles, and every tag's attributes."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.attributes: list[tuple[str, dict[str, str | None]]] = []
        self._open = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._open = tag
        self.attributes.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self._open not in ("script", "style"):
            self.words.append(data)

    @property
    def text(self) -> str:
        """In one line."""
        return " ".join("".join(self.words).split())


def page(experiment: Path) -> Seen:
    html = page_html(make_report(experiment))
    html.encode()
    return Seen(html)


def test_it_says_first_what_is_better_by_how_much_and_how_sure(whole: Written) -> None:
    best, comparison = whole.record["rows"][0], whole.record["rows"][0]["comparisons"]["val_loss"]
    text = Seen(whole.html).text
    assert f"{best['name']} is better than the baseline none by {-comparison['difference']:.4f} nats" in text
    assert f"95 % interval {-comparison['high']:.4f} to {-comparison['low']:.4f}" in text
    assert "3 seeds)" in text
    assert re.search(r"Of 5 rows compared with none: \d better", text)


def test_failed_and_missing_runs_are_named_and_every_row_has_its_commands(whole: Written) -> None:
    text = Seen(whole.html).text
    assert "gru-seed0" in text
    assert "BadInput: too steep" in text
    assert "attention-seed3-00000000" in text
    for row in whole.record["rows"]:
        assert f"{whole.path.with_name('report.json')} --row {row['name']}" in text
        for run in row["runs"]:
            assert run["command"] in text


def test_it_asks_for_nothing_and_lets_nothing_run_but_its_own_script(whole: Written) -> None:
    seen = Seen(whole.html)
    (policy,) = (a["content"] for tag, a in seen.attributes if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    for tag in ("script", "style"):
        (content,) = re.findall(f"<{tag}>(.*?)</{tag}>", whole.html, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
        assert "innerHTML" not in content
        assert "url(" not in content
    for _, attributes in seen.attributes:
        for name, value in attributes.items():
            assert name != "style"
            assert not name.startswith("on")
            if name in ("src", "href"):
                assert (value or "").startswith(("data:image/png;base64,", "#"))


def test_every_link_within_the_page_leads_somewhere_and_no_id_is_there_twice(whole: Written) -> None:
    seen = Seen(whole.html)
    ids = [value for _, attributes in seen.attributes if (value := attributes.get("id"))]
    assert len(ids) == len(set(ids))
    for _, attributes in seen.attributes:
        for key in ("aria-labelledby", "aria-describedby"):
            assert set((attributes.get(key) or "").split()) <= set(ids)
        if (link := attributes.get("href")) is not None:
            assert link.removeprefix("#") in ids


def test_what_predictors_reach_that_are_not_trained_is_drawn_over_steps_and_over_every_cost(whole: Written) -> None:
    for chart in ("curves", "cost-parameters", "cost-flops", "cost-seconds"):
        [drawing] = re.findall(rf'<svg[^>]*"{chart}-desc".*?</svg>', whole.html, re.DOTALL)
        assert "<title>2-gram: 2.4940</title>" in drawing, chart


def test_over_positions_only_predictors_are_drawn_to_which_they_make_no_difference(
    experiment: Path, add_run: AddRun
) -> None:
    lines = {"uniform": 2.9, "unigram": 2.8, "windowed": {"2": 2.5, "3": 2.4}, "full": {"2": 2.5}, "source": 2.3}
    add_run("none", summary={"loss_by_position": [3.0, 2.2], "references": lines})
    [drawing] = re.findall(r'<svg[^>]*"positions-desc".*?</svg>', page_html(make_report(experiment)), re.DOTALL)
    assert re.findall("<title>(.*?): ", drawing) == ["uniform", "1-gram", "2-gram"]


def test_fifty_runs_take_less_than_a_megabyte(tmp_path: Path) -> None:
    experiment = tmp_path / "large"
    experiment.mkdir()
    add_run = adds_runs(experiment)
    for k in range(25):
        for seed in range(2):
            leave_all(add_run, f"strategy_{k}", 2.5 - 0.01 * k, seed=seed, T=64, H=8, layers=2)
    html = page_html(make_report(experiment))
    assert len(html.encode()) < 1_000_000
    assert re.search(r"The first \d heads? of 8 a layer\.", html)


def test_one_run_is_a_page(experiment: Path, add_run: AddRun) -> None:
    add_run("attention", val_loss=2.4)
    assert "attention comes to a final validation loss of 2.4000 nats per character (1 seed)." in page(experiment).text


def test_no_finished_run_is_a_page(experiment: Path, add_run: AddRun) -> None:
    add_run("attention", summary={"status": "failed", "error": {"type": "Fault", "message": "lost"}})
    seen = page(experiment)
    assert "No run has finished yet: there is nothing to compare." in seen.text
    assert "Fault: lost" in seen.text
    assert not any(tag == "svg" for tag, _ in seen.attributes)


def test_without_a_baseline_it_says_so(experiment: Path, add_run: AddRun) -> None:
    add_run("attention", val_loss=2.4)
    add_run("window", val_loss=2.5)
    text = page(experiment).text
    assert "attention has the lowest final validation loss, 2.4000" in text
    assert "there is no baseline to compare with" in text


def test_one_seed_is_undecided(experiment: Path, add_run: AddRun) -> None:
    add_run("none", val_loss=2.5)
    add_run("attention", val_loss=2.4)
    text = page(experiment).text
    assert "0.1000 nats per character below the baseline none; that is undecided (with one seed it is not known" in text


def test_rows_without_a_common_seed_are_a_page(experiment: Path, add_run: AddRun) -> None:
    add_run("none", 0, 2.5)
    add_run("attention", 1, 2.4)
    assert "no seed in common with none" in page(experiment).text


def test_a_lowest_loss_that_seeds_of_its_own_made_is_not_called_better(experiment: Path, add_run: AddRun) -> None:
    for seed in range(3):
        add_run("none", seed, 2.5 + 0.001 * seed)
        add_run("attention", seed, 2.6 + 0.0012 * seed)
    for seed in range(3, 9):
        add_run("attention", seed, 2.0)
    assert "attention is worse than the baseline none by 0.1002 nats" in page(experiment).text


def test_a_row_over_text_is_marked(experiment: Path, add_run: AddRun) -> None:
    for agg, level in (("none", 2.5), ("attention", 2.4)):
        nats = [1000 * (level + 0.01 * (k % 7)) for k in range(100)]
        blocks = {"nats": nats, "characters": [1000] * 100}
        add_run(agg, val_loss=sum(nats) / 100_000, summary={"loss_by_block": blocks})
    seen = page(experiment)
    assert "attention†" in seen.text.replace(" ", "")
    assert "says nothing of other seeds" in seen.text


def test_a_baseline_that_nothing_beats_is_the_result(experiment: Path, add_run: AddRun) -> None:
    for seed in range(3):
        add_run("none", seed, 2.5 + 0.001 * seed)
        add_run("sum", seed, 2.9 + 0.0012 * seed)
    assert "Nothing has a lower final validation loss than the baseline none" in page(experiment).text


def test_twins_are_told_and_share_a_line(experiment: Path, add_run: AddRun) -> None:
    for agg in ("none", "cumsum", "loop"):
        for seed in range(2):
            run = add_run(agg, seed, (2.5 if agg == "none" else 2.4) + 0.01 * seed)
            level = 2.5 if agg == "none" else 2.4
            (run / "metrics.jsonl").write_text(f'{{"step": 1, "val/loss": {level}}}\n{{"step": 2, "val/loss": 2.4}}\n')
    seen = page(experiment)
    assert "same bits as cumsum" in seen.text
    lines = [attributes["data-name"] for tag, attributes in seen.attributes if tag == "g" and "data-name" in attributes]
    assert sorted(str(line) for line in lines) == ["cumsum = loop", "none"]


@pytest.mark.parametrize("losses", [(2.5, 2.5), (1e-300, 1e300), (0.0, 0.0), (-1.0, 1.0)])
def test_equal_huge_and_tiny_numbers_never_print_nan(
    experiment: Path, add_run: AddRun, losses: tuple[float, float]
) -> None:
    for seed in range(2):
        for agg, loss in zip(("none", "attention"), losses, strict=True):
            summary = {"loss_by_position": [loss] * 3, "seconds": 0, "n_params": 0, "flops_per_char": loss}
            run = add_run(agg, seed, loss, summary=summary)
            line = json.dumps({"step": 0, "val/loss": loss})
            (run / "metrics.jsonl").write_text(f"{line}\n")
    seen = page(experiment)
    drawn = " ".join(str(value) for _, attributes in seen.attributes for value in attributes.values())
    assert not re.search(r"\b(nan|inf|infinity|none,)\b", drawn, re.IGNORECASE)
    assert not re.search(r"\bnan\b|\binf\b", seen.text, re.IGNORECASE)


def test_foreign_content_in_every_field_breaks_nothing(experiment: Path, add_run: AddRun) -> None:
    for odd in (None, "text", -1, [], {}, [None], {"a": None}, True, 10**400, [1, "x"]):
        keys = ("best_val_loss", "test_loss", "n_params", "flops_per_char", "seconds", "steps", "state_size")
        more = ("loss_by_position", "loss_by_block", "references", "command", "git", "versions", "hardware", "data")
        name = f"odd {type(odd).__name__} {str(odd)[:9]}"
        run = add_run("none", val_loss=2.5, label=name, folder=name, summary=dict.fromkeys((*keys, *more), odd))
        (run / "metrics.jsonl").write_bytes(b'{"step": 1, "val/loss": "x"}\n{"step":\n\xff\n')
        (run / "sample.txt").write_bytes(b"\xff\xfe\x00")
        (run / "tables.npz").write_bytes(b"PK")
    assert "odd NoneType None" in page(experiment).text


def test_a_table_that_training_left_alone_is_shown_once(experiment: Path, add_run: AddRun) -> None:
    table = np.tril(np.full((1, 4, 4), 0.5, dtype=np.float32))
    for name, after in (("window", table), ("table", 2 * table)):
        run = add_run(name)
        np.savez(run / "tables.npz", **{"before/layer_0": table, "after/layer_0": after})
    pictures = [str(a["alt"]) for tag, a in page(experiment).attributes if tag == "img" and "Weights" in str(a["alt"])]
    assert sorted(alt.partition(":")[0] for alt in pictures) == [
        "Weights of table, layer 0, head 0, after training",
        "Weights of table, layer 0, head 0, before training",
        "Weights of window, layer 0, head 0, before and after training",
    ]


def test_rows_that_were_looked_at_say_at_how_many_seeds_they_were_decided(experiment: Path, add_run: AddRun) -> None:
    for seed, noise in enumerate((0.0, 0.001, -0.001)):
        add_run("none", seed, 2.5 + noise)
        add_run("table", seed, 2.4 + 1.1 * noise)
        add_run("ema", seed, 2.48 + 30 * noise)
    plain = page_html(make_report(experiment))
    settle(experiment, Looks(Spending(first=3, last=7), "none", "val_loss", 0.005))
    looked = page_html(make_report(experiment))
    assert "at 3 of at most 7 seeds" in looked
    assert "after 3 of at most 7 seeds" in looked
    assert "a look at them spends 1 % of the 5 %" in looked
    assert "of at most" not in plain
    assert "p is at most 0.01, what a look may spend." in Seen(looked).text
    assert "p is at most 0.05." in Seen(plain).text


def test_it_says_on_which_text_the_loss_was_measured(experiment: Path, add_run: AddRun) -> None:
    for agg, loss in (("none", 2.5), ("table", 2.4)):
        add_run(agg, val_loss=loss, summary={"test_loss": loss})
    assert "on average over the validation text" in page(experiment).text
    tested = Seen(page_html(make_report(experiment, measure="test_loss"))).text
    assert "on average over the test text" in tested
