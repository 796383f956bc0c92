"""sweep.until_decided=true, with trainings that are made up: which runs are added, and when it ends."""

import json
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import hydra
import numpy as np
import pytest
from rich.console import Console

from trilab import stopping
from trilab.compose import conf_dir, plain
from trilab.config import Config, read
from trilab.errors import BadInput
from trilab.looks import Looks, read_looks
from trilab.report import make_report
from trilab.sequential import Spending
from trilab.sweep import Sweep
from trilab.until_decided import Job, UntilDecided

from .report.conftest import adds_runs


@pytest.fixture(scope="module")
def config() -> Config:
    """As `train.py -m sweep.until_decided=true` composes it."""
    with hydra.initialize_config_dir(str(conf_dir()), version_base="1.3"):
        return read(plain(hydra.compose("train", ["sweep.until_decided=true", "data=file", "data.path=text.txt"])))


# true difference to the baseline, standard deviation of the paired differences
TRUTH = {"none": (0.0, 0.0), "plain": (0.3, 0.004), "same": (0.0, 0.0), "doubtful": (0.004, 0.01)}


class MadeUp:
    """An experiment whose runs are written down instead of trained."""

    def __init__(self, folder: Path, config: Config, *, most: int = 8) -> None:
        self.folder = folder
        self.folder.mkdir(parents=True, exist_ok=True)
        self.config = replace(config, sweep=replace(config.sweep, max_seeds=most))
        self.add_run = adds_runs(folder)
        self.fails: set[tuple[str, int]] = set()
        self.said: list[str] = []
        self.left = 10_000  # runs that are trained before all is broken off

    def job(self, overrides: Sequence[str]) -> Job:
        given = dict(override.split("=") for override in overrides)
        config = replace(self.config, label=given["agg"], seed=int(given["seed"]))
        return Job(tuple(overrides), config, self.folder / f"{given['agg']}-seed{given['seed']}")

    def train(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            name, seed = job.config.name, job.config.seed
            if job.folder.exists() or self.left == 0:
                continue
            self.left -= 1
            mean, std = TRUTH[name]
            noise = np.random.default_rng(seed).normal(2.5, 0.02)
            own = np.random.default_rng([seed, len(name)]).normal(mean, std)
            self.add_run(name, seed, float(noise + own))
            if (name, seed) in self.fails:
                failed = {"status": "failed", "error": {"type": "Diverged", "message": ""}}
                (job.folder / "summary.json").write_text(json.dumps(failed))

    def sweep(self, names: str, seeds: Sequence[int]) -> UntilDecided:
        """From the first run to the end of it."""
        jobs = [self.job([f"agg={name}", f"seed={seed}"]) for name in names.split(",") for seed in seeds]
        looking = UntilDecided(jobs, self.job)
        looking.settle()
        while jobs and self.left:
            self.train(jobs)
            jobs = looking.further(self.said.append)
        return looking

    @property
    def seeds(self) -> dict[str, list[int]]:
        """Strategy → seeds of all its runs."""
        found: dict[str, list[int]] = {}
        for path in sorted(self.folder.glob("*-seed*")):
            name, _, seed = path.name.partition("-seed")
            found.setdefault(name, []).append(int(seed))
        return {name: sorted(seeds) for name, seeds in found.items()}


@pytest.fixture
def made_up(tmp_path: Path, config: Config) -> MadeUp:
    return MadeUp(tmp_path / "outputs" / "part03", config)


def test_seeds_are_added_to_what_is_undecided_and_to_the_baseline_only(made_up: MadeUp) -> None:
    made_up.sweep("none,plain,same,doubtful", [0])
    assert made_up.seeds == {
        "none": list(range(8)),
        "doubtful": list(range(8)),
        "plain": [0, 1, 2],
        "same": [0, 1, 2],
    }
    assert made_up.said[0] == (
        "Look at 3 seeds of at most 8: same equal, plain worse; undecided: doubtful; spent so far 0.833 of 5 %"
    )
    assert made_up.said[1].startswith("Look at 4 seeds of at most 8: nothing new; undecided: doubtful;")
    assert made_up.said[-1] == "part03: no more seeds are added. sweep.max_seeds=8 is reached."
    verdicts = {row.name: row.comparison.verdict for row in make_report(made_up.folder).rows if row.comparison}
    assert verdicts == {"plain": "worse", "same": "equal", "doubtful": "undecided"}


def test_it_ends_at_the_look_that_decides_the_last(made_up: MadeUp) -> None:
    looking = made_up.sweep("none,plain", [5])
    assert made_up.seeds == {"none": [5, 6, 7], "plain": [5, 6, 7]}
    assert len(made_up.said) == 1
    assert "plain worse; nothing is undecided" in made_up.said[0]
    assert looking.further(made_up.said.append) == []


def test_the_first_look_is_at_the_seeds_given_where_these_are_more_than_three(made_up: MadeUp) -> None:
    made_up.sweep("none,plain", range(5))
    assert read_looks(made_up.folder) == Looks(Spending(first=5, last=8), "none", "val_loss", 0.005)
    assert made_up.seeds["plain"] == list(range(5))
    assert made_up.said[0].startswith("Look at 5 seeds of at most 8: plain worse;")


@pytest.mark.parametrize("trained", [1, 5, 12, 13, 15, 20])
def test_broken_off_anywhere_the_same_command_comes_to_the_same_runs_and_verdicts(
    tmp_path: Path, made_up: MadeUp, config: Config, trained: int
) -> None:
    made_up.sweep("none,plain,same,doubtful", [0])
    broken = MadeUp(tmp_path / "broken" / "part03", config)
    broken.left = trained
    broken.sweep("none,plain,same,doubtful", [0])
    assert broken.seeds != made_up.seeds
    broken.left = 10_000
    broken.said.clear()
    broken.sweep("none,plain,same,doubtful", [0])
    assert (broken.seeds, broken.said) == (made_up.seeds, made_up.said)
    broken.said.clear()
    broken.sweep("none,plain,same,doubtful", [0])  # once more: all is there
    assert (broken.seeds, broken.said) == (made_up.seeds, made_up.said)


def test_a_variant_of_which_a_run_has_failed_is_named_and_gets_no_more(made_up: MadeUp) -> None:
    made_up.fails = {("doubtful", 3)}
    made_up.sweep("none,plain,doubtful", [0])
    assert made_up.seeds == {"none": [0, 1, 2, 3], "plain": [0, 1, 2], "doubtful": [0, 1, 2, 3]}
    assert made_up.said[-1] == "doubtful stays undecided and gets no more seeds: doubtful-seed3 did not finish."


@pytest.mark.parametrize("seed", [0, 4])
def test_without_the_baseline_s_run_there_are_no_more(made_up: MadeUp, seed: int) -> None:
    made_up.fails = {("none", seed)}
    made_up.sweep("none,doubtful", [0])
    assert made_up.seeds["none"] == list(range(seed + 1))
    assert "part03: no more seeds are added. " in made_up.said[-1]
    assert "none" in made_up.said[-1]


def test_where_every_run_has_failed_it_ends(made_up: MadeUp) -> None:
    made_up.fails = {("none", 0), ("plain", 0)}
    made_up.sweep("none,plain", [0])
    assert made_up.seeds == {"none": [0], "plain": [0]}


def test_runs_of_other_sweeps_in_the_experiment_count_in_the_family_and_get_no_seeds(made_up: MadeUp) -> None:
    made_up.train([made_up.job(["agg=doubtful", f"seed={seed}"]) for seed in range(3)])
    made_up.sweep("none,plain", [0])
    assert made_up.seeds["doubtful"] == [0, 1, 2]
    assert "undecided: doubtful" in made_up.said[0]


def test_a_wish_to_stop_adds_no_runs(made_up: MadeUp) -> None:
    jobs = [made_up.job([f"agg={name}", f"seed={seed}"]) for name in ("none", "doubtful") for seed in range(3)]
    looking = UntilDecided(jobs, made_up.job)
    made_up.train(jobs)
    sweep = Sweep(
        [job.folder for job in jobs],
        passed=[],
        given_up=[],
        ours=True,
        console=Console(quiet=True),
        experiments={},
        looking=[looking],
    )
    stopping.wish(signal.SIGTERM)
    try:
        assert sweep.further() == []
    finally:
        stopping.unlisten()
    assert len(looking.jobs) == len(jobs)


Change = Callable[[Config], Config]


@pytest.mark.parametrize(
    ("change", "names", "said"),
    [
        (lambda c: replace(c, report=replace(c.report, choose="optim.lr")), "none,plain", "report.choose=optim.lr"),
        (lambda c: replace(c, report=replace(c.report, baseline="ema")), "none,plain", "report.baseline=ema is not"),
        (lambda c: replace(c, sweep=replace(c.sweep, max_seeds=3)), "none,plain", "4 seeds are given, which is more"),
    ],
)
def test_what_cannot_be_looked_at_is_refused_before_anything_trains(
    made_up: MadeUp, change: Change, names: str, said: str
) -> None:
    made_up.config = change(made_up.config)
    with pytest.raises(BadInput, match=said):
        made_up.sweep(names, range(4))
    assert not list(made_up.folder.iterdir())
