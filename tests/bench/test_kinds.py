"""Each kind of measurement, at the smallest sizes: that it runs and what it leaves, never how fast."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from trilab.bench import agg, data, generate, memory, startup, sweep, train
from trilab.bench.machine import cores
from trilab.bench.measured import Measured
from trilab.bench.plain_loops import PlainLoop, all_at_once, as_in_gpt_py, one_by_one, vectorised
from trilab.build import build_model
from trilab.compose import composed
from trilab.model import LanguageModel

from ..conftest import Outcome


@pytest.fixture(autouse=True)
def own_threads() -> object:
    """Measuring sets the number of threads."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def quiet(_: str) -> None: ...


def ways(found: Measured, measure: str) -> dict[str, list[str]]:
    """The ways of each case."""
    of: dict[str, list[str]] = {}
    for one in found.series:
        if one.measure == measure:
            of.setdefault(one.case, []).append(one.way)
    return of


def whole(found: Measured, rounds: int) -> bool:
    """Whether every series has a finite value above 0 for each round."""
    return all(
        len(one.values) == (1 if one.measure == agg.MEMORY else rounds)
        and all(math.isfinite(value) and value > 0 for value in one.values)
        for one in found.series
    )


@pytest.mark.slow
def test_strategies_are_measured_over_time_until_they_take_too_long() -> None:
    grid = agg.Grid(
        8, 2, 64, (4, 8, 16), ((2, 8, 8),), (2, 8, 8), ((1, 2, 70, 8),), rounds=2, least=0.0, most=5.0, most_bytes=1e9
    )
    found = agg.measure(quick=True, threads=1, device="cpu", tell=quiet, grid=grid, names=["window size=2"])
    assert whole(found, 2)
    assert list(ways(found, agg.BACKWARD)) == ["(2, 8, 8)", "(1, 2, 70, 8)", "T = 4", "T = 8", "T = 16"]
    assert {agg.COPY, "window size=2"} <= set(ways(found, agg.BACKWARD)["T = 16"])
    assert {"table", agg.FULL_TABLE, "ema", agg.CUMSUM} <= set(ways(found, agg.FORWARD)["(2, 8, 8)"])
    assert len(found.exponents(agg.BACKWARD, "window size=2")) == 2


def test_what_takes_too_much_is_cut_and_the_note_says_where() -> None:
    grid = agg.Grid(8, 2, 64, (4, 8), (), (2, 8, 8), (), rounds=1, least=0.0, most=5.0, most_bytes=-1)
    found = agg.measure(quick=True, threads=1, device="cpu", tell=quiet, grid=grid, names=["cumsum"])
    assert "cumsum" not in ways(found, agg.FORWARD)["T = 4"]
    assert any("cumsum is not measured from T = 4 on" in note for note in found.notes)


def test_attention_is_measured_against_torch_s_and_under_a_window_where_the_text_is_longer() -> None:
    heads = ((1, 1, 9, 8), (1, 2, 70, 8))
    grid = agg.Grid(8, 2, 64, (), (), (2, 8, 8), heads, rounds=1, least=0.0, most=5.0, most_bytes=1e9)
    found = agg.measure(quick=True, threads=1, device="cpu", tell=quiet, grid=grid)
    assert whole(found, 1)
    whole_texts = [agg.KERNEL, agg.TORCHS_KERNEL]
    assert ways(found, agg.BACKWARD)["(1, 1, 9, 8)"] == whole_texts
    assert ways(found, agg.BACKWARD)["(1, 2, 70, 8)"] == [
        *whole_texts,
        *(way + agg.UNDER_WINDOW for way in whole_texts),
    ]


class Hungry(nn.Module):
    """Takes 64 MB, whatever it is given."""

    def __init__(self, n_embd: int, block_size: int) -> None:
        super().__init__()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.ones(16_000_000).sum() * 0 if x.shape[0] > 1 else x * 1


def test_peak_memory_is_that_of_the_pass_and_not_of_what_was_loaded_before() -> None:
    from functools import partial

    taken = memory.peak(partial(Hungry), (2, 8, 8), threads=1, device="cpu", most_seconds=60)
    assert taken is not None
    assert 60e6 < taken.bytes < 100e6


def test_both_ways_to_cut_windows_give_targets_that_follow_the_inputs() -> None:
    tokens = torch.arange(100)
    for draw in (one_by_one, all_at_once):
        inputs, targets = draw(tokens, 8, 16, torch.device("cpu"))
        assert inputs.shape == targets.shape == (16, 8)
        assert torch.equal(targets, inputs + 1)
        assert len(inputs[:, 0].unique()) > 1
        assert inputs.diff().unique().tolist() == [1]


def in_half(model: LanguageModel, tokens: torch.Tensor, batch_size: int) -> PlainLoop:
    """As on a GPU, but not compiled."""
    return PlainLoop(model, tokens, batch_size, all_at_once, fused=True, half=True)


@pytest.mark.parametrize("make", [as_in_gpt_py, vectorised, in_half])
def test_the_plain_loops_learn(make: Callable[..., PlainLoop]) -> None:
    torch.manual_seed(0)
    loop = make(build_model(composed(train.TINY.keys), 2).train(), torch.arange(1000) % 2, 32)
    inputs, targets = all_at_once(loop.tokens, 8, 32, loop.device)

    def loss() -> float:
        with torch.no_grad():
            return nn.functional.cross_entropy(loop.model(inputs).flatten(0, 1), targets.flatten()).item()

    before = loss()
    loop.steps(100)
    assert loss() < before - 0.1


def test_generation_is_measured_against_recomputing_and_far_past_the_context() -> None:
    keys = ("model.n_layer=1", "model.n_head=1", "model.n_embd=8")
    sizes = generate.Sizes(
        8, keys, ("attention",), (4, 8), ("ema", "attention"), rounds=2, rounds_without_end=2, timed=2
    )
    found = generate.measure(quick=True, threads=1, device="cpu", tell=quiet, sizes=sizes)
    assert whole(found, 2)
    assert set(ways(found, generate.LATE)["attention, context 8"]) == {generate.STREAMING, generate.RECOMPUTING}
    assert ways(found, generate.FAR) == {"at 4": ["ema"], "at 8": ["ema"]}  # attention's state grows: it has an end


def test_recomputing_draws_the_text_that_streaming_draws() -> None:
    model = generate._model("attention", ("model.n_layer=1", "model.n_head=1", "model.n_embd=8"), 8, "cpu")
    streamed, recomputed = generate._streamed(model, unbounded=False), generate._recomputed(model)
    assert [next(streamed).item() for _ in range(12)] == [next(recomputed).item() for _ in range(12)]


def test_reading_is_measured_for_every_kind_of_text() -> None:
    found = data.measure(quick=True, threads=1, tell=quiet, megabytes=1, rounds=1)
    assert whole(found, 1)
    assert {case: len(of) for case, of in ways(found, data.MEASURE).items()} == {"ASCII": 4, "Latin": 4, "mixed": 4}


def test_the_texts_of_random_words_are_the_same_each_time_and_as_long_as_was_said(tmp_path: Path) -> None:
    for name in ("a", "b"):
        data.write_text(tmp_path / name, "mixed", 1)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert 1e6 <= (tmp_path / "a").stat().st_size < 1.2e6


def test_nothing_to_measure_and_nothing_to_show_is_one_line(trilab: Callable[..., Outcome]) -> None:
    done = trilab("bench")
    assert done.code == 2
    assert done.err.startswith("Nothing to measure: name some of agg, train,")


def test_a_kind_that_there_is_not_is_one_line(trilab: Callable[..., Outcome]) -> None:
    done = trilab("bench", "speed")
    assert done.code == 2
    assert done.err == "speed is nothing that can be measured: agg, train, generate, data, sweep, startup, or all.\n"


@pytest.mark.parametrize("flag", ["--threads", "--megabytes"])
def test_numbers_below_one_are_refused(trilab: Callable[..., Outcome], flag: str) -> None:
    done = trilab("bench", "data", flag, "0")
    assert (done.code, done.err) == (2, f"{flag}=0 must be at least 1.\n")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_one_line(trilab: Callable[..., Outcome]) -> None:
    done = trilab("bench", "agg", "--device", "cuda")
    assert done.code == 2
    assert "no GPU" in done.err


def test_the_command_leaves_json_picture_and_page_and_shows_them_again(
    trilab: Callable[..., Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data, "WORDS", {"ASCII": data.WORDS["ASCII"]})
    files = ("--json", tmp_path / "b.json", "--svg", tmp_path / "svg", "--page", tmp_path / "page.md")
    done = trilab("bench", "data", "--quick", "--megabytes", "1", *files)
    assert done.code == 0
    assert "data: ASCII, 1 MB" in done.err
    assert "data: MB of text per processor second" in done.out
    assert [one["kind"] for one in json.loads((tmp_path / "b.json").read_text())["measured"]] == ["data"]
    assert (tmp_path / "svg" / "data.svg").exists()
    assert "not measured" in (tmp_path / "page.md").read_text()
    again = trilab("bench", "--json", tmp_path / "b.json")
    assert again.out == done.out


@pytest.mark.slow
def test_train_py_is_measured_from_outside_and_against_both_loops(text: Path) -> None:
    keys = (*train.TINY.keys, "data=file", f"data.path={text}", "data.batch_size=8")
    size = train.Size("small", keys, also=("optim.grad_clip=1.0",), large=True)
    found = train.measure(
        quick=False,
        threads=1,
        device="cpu",
        tell=quiet,
        also=["optim.grad_clip=1.0"],
        sizes=[size],
        length=train.Length(0.01, rounds=1, log_every=5),
    )
    assert whole(found, 1)
    expected = {train.TRAIN_PY, f"{train.TRAIN_PY} optim.grad_clip=1.0", train.GPT_PY, train.VECTORISED}
    for case in ("small", *(("small, all cores",) if cores() > 1 else ())):
        assert set(ways(found, train.SPEED)[case]) == expected
    ours = {name for name in expected if train.TRAIN_PY in name}
    assert set(ways(found, train.VALIDATION)["small"]) == ours
    losses = {name: found.find("small", train.LOSS, name) for name in ours}
    values = [loss.values for loss in losses.values() if loss is not None]
    assert len(values) == 2
    assert values[0] == pytest.approx(values[1], abs=0.1)  # the same steps, clipped or not
    assert 0 < values[0][0] < 6


@pytest.mark.slow
def test_a_start_is_measured_to_the_first_step(text: Path) -> None:
    found = startup.measure(quick=True, threads=1, tell=quiet, rounds=1, keys=["data=file", f"data.path={text}"])
    assert whole(found, 1)
    assert len(ways(found, startup.MEASURE)[startup.CASE]) == 5


@pytest.mark.slow
def test_a_sweep_is_measured_against_its_runs_one_by_one(text: Path) -> None:
    keys = ("data=file", f"data.path={text}", "trainer.max_steps=4", "callbacks.sample_chars=0")
    ablation = sweep.Ablation(("none",), (0, 1), keys, rounds=1)
    found = sweep.measure(quick=True, threads=1, tell=quiet, ablation=ablation)
    assert whole(found, 1)
    assert {one.way for one in found.series} == {sweep.SWEEP, sweep.SHARE}
