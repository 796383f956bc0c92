"""Words of the command line → a strategy that can be built at any size, and what it is in one line."""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import torch

from trilab.agg.base import About, Aggregation
from trilab.compose import choosing, composed, conf_dir, strategy_names
from trilab.config import strategies
from trilab.errors import BadInput

HEAD_SIZE = 2  # channels of one head: the lecture's toy has two channels


@dataclass(frozen=True)
class Strategy:
    """A strategy with its knobs.

    name: of the file, or the dotted path of the class.
    knobs: as they were given, knob=value.
    make: (n_embd, block_size) → an aggregation.
    """

    name: str
    knobs: tuple[str, ...]
    make: partial[Aggregation]

    def build(self, n_embd: int, block_size: int) -> Aggregation:
        """One in evaluation mode, its initial values drawn from torch's global random state.

        Raises:
            BadInput: the knobs do not go with these sizes.
        """
        return self.make(n_embd, block_size).eval()

    @property
    def cls(self) -> type[Aggregation]:
        """Its class."""
        cls = self.make.func
        assert inspect.isclass(cls)
        assert issubclass(cls, Aggregation)
        return cls

    @property
    def about(self) -> About:
        """What it says of itself."""
        return self.cls.about

    @property
    def n_head(self) -> int:
        """Heads, 1 where it has no such knob, or one that its constructor will refuse."""
        return max(1, int(self.make.keywords.get("n_head", 1)))

    @cached_property
    def what(self) -> str:
        """What it is: the comment above its YAML, or the first line of its class."""
        path = conf_dir() / "agg" / f"{self.name}.yaml"
        if path.is_file():
            return path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
        return (self.cls.__doc__ or "").strip().partition("\n")[0]


def parameters(aggregation: Aggregation) -> int:
    """How many numbers are learned."""
    return sum(parameter.numel() for parameter in aggregation.parameters())


def strategy(words: Sequence[str], *, n_head: int = 1) -> Strategy:
    """The strategy that the words name.

    Args:
        words: a name (attention, or agg=attention) or the dotted path of a class, then its knobs as knob=value.
        n_head: heads, where it has heads and the words do not say.
    Raises:
        BadInput: no or several names, an unknown name or knob, a class that is no strategy.
    """
    named = [word.removeprefix("agg=") for word in words if "=" not in word or word.startswith("agg=")]
    knobs = tuple(word.removeprefix("agg.") for word in words if "=" in word and not word.startswith("agg="))
    if len(named) != 1:
        raise BadInput(f"{' '.join(words)}: one strategy is explained at a time, as in attention n_head=2.")
    (name,) = named
    config = composed([*choosing(name, knobs), f"model.n_head={n_head}"])
    make = strategies(config)[0]
    if not (inspect.isclass(make.func) and issubclass(make.func, Aggregation)):
        raise BadInput(f"{name} must be a subclass of trilab.agg.base.Aggregation.")
    return Strategy(name, knobs, make)


def every_strategy(*, n_head: int = 1) -> list[Strategy]:
    """All of conf/agg in the order of an explanation: tables that are given, that are learned, that tokens make.

    Given and learned ones: means before sums. Those from tokens: a past kept whole before one that is summed up. Then
    by the size of the state.
    """
    return sorted((strategy([name], n_head=n_head) for name in strategy_names()), key=_place)


def _place(each: Strategy) -> tuple[bool, bool, bool, int, str]:
    with torch.random.fork_rng(devices=[]):
        small = each.build(HEAD_SIZE * each.n_head, 1)
    about = each.about
    summed_up = about.data_dependent and small.recurrent
    late = summed_up or not (about.data_dependent or about.rows_sum_to_one)
    return about.data_dependent, parameters(small) > 0, late, small.state_size(2**20), each.name
