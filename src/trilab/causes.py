"""What a leak looks like, matched against the ways in which causal strategies are known to be broken."""

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial

import torch
from torch import Tensor, nn

from trilab.agg.base import Aggregation
from trilab.influence import future, response
from trilab.laws import Conditions, Setting
from trilab.laws.trials import Trial, draw_input, trials

SEED = 0  # of torch's default generator, before every call
REDRAWS = 16  # of all later inputs together
SMALL_STEP = 1e-3  # of the way from one input to another
# Relative to the largest number; what is told apart here differs by far more.
SAME = 1e-6


class Evidence:
    """One aggregation under a setting in which it leaks, without its projections, which mix channels.

    A float64 copy without dropout. Everything is looked at once, when a predicate first asks for it.

    Args:
        aggregation: stays as it is.
        setting: where it leaks.
        only_large: whether it does not leak under small numbers.
    """

    def __init__(self, aggregation: Aggregation, setting: Setting, *, only_large: bool = False) -> None:
        self.original = aggregation
        self.setting = setting
        self.only_large = only_large
        bare = copy.deepcopy(aggregation)
        bare.value, bare.output = nn.Identity(), nn.Identity()
        trial = _trial(bare, setting)
        assert isinstance(trial.module, Aggregation)
        self.aggregation = trial.module
        self.x = trial.input  # (1, T, C)
        self.other = self.drawn(1)  # (1, T, C)

    def drawn(self, seed: int) -> Tensor:
        """(1, T, C), another input of the same scale."""
        assert self.setting.input_scale is not None
        return draw_input(self.aggregation, 1, self.setting.time, self.setting.input_scale, seed)

    def called(self, f: Callable[[Tensor], Tensor], x: Tensor, seed: int = SEED) -> Tensor:
        """f(x), under the same draws each time; what f does to its input is not seen."""
        return _called(f, x.clone(), training=self.setting.training, seed=seed)

    def of(self, x: Tensor, seed: int = SEED) -> Tensor:
        """(1, T, C) → (T, C)."""
        return self.called(self.aggregation, x, seed)[0]

    def response(self, other: Tensor) -> Tensor:
        """(T, T): how output t moves when input s alone is replaced by the other one."""
        return response(lambda x: self.called(self.aggregation, x), self.x, other)

    @cached_property
    def y(self) -> Tensor:
        """(T, C), the outputs for x."""
        return self.of(self.x)

    @cached_property
    def moves(self) -> Tensor:
        """(T, T): how output t moves when input s is replaced."""
        return self.response(self.other)

    @cached_property
    def leaks(self) -> Tensor:
        """(T, T) booleans above the diagonal: which later input moves which output."""
        return future(self.moves)

    @cached_property
    def endings(self) -> Tensor:
        """(T, C): output t when the text ends there."""
        return torch.stack([self.of(self.x[:, : t + 1])[-1] for t in range(len(self.y))])

    @cached_property
    def leaking_channels(self) -> list[int]:
        """The output channels that move with a later input."""
        moved = torch.zeros_like(self.y[0])
        for s in range(1, len(self.y)):
            changed = self.x.clone()
            changed[:, s] = self.other[:, s]
            moved = torch.maximum(moved, (self.of(changed) - self.y)[:s].abs().amax(0))
        return (moved > SAME * moved.max()).nonzero().flatten().tolist()

    @cached_property
    def tables(self) -> Tensor | None:
        """(H, T, T) weights for x, where the strategy has any."""
        return self.tables_of(self.x)

    def tables_of(self, x: Tensor) -> Tensor | None:
        """(1, T, C) → (H, T, T)."""
        return self.called(self.aggregation.weights, x)[0] if self.aggregation.has_weights else None

    @cached_property
    def draws(self) -> bool:
        """Whether it draws at random by itself: then texts of other lengths meet other draws."""
        return not _same(self.y, self.of(self.x, SEED + 1))

    @cached_property
    def broken(self) -> bool:
        """Whether an output moves with later inputs, or with the length of the text."""
        if self.leaks.any() or self.leaks_together:
            return True
        return not (self.draws or _same(self.y, self.endings))

    @cached_property
    def leaks_together(self) -> bool:
        """Whether an output moves when all inputs after it are replaced at once, for one of several replacements."""
        time = len(self.y)
        for seed in range(1, 1 + REDRAWS):
            other = self.drawn(seed)
            for cut in {1, time // 2, time - 1} - {0, time}:  # inputs that are kept
                y = self.of(torch.cat([self.x[:, :cut], other[:, cut:]], 1))
                if not _same(self.y[:cut], y[:cut]):
                    return True
        return False


def likely_cause(aggregation: Aggregation, setting: Setting) -> str | None:
    """In words, what a leaking aggregation looks like; None if it looks like nothing known.

    Args:
        aggregation: stays as it is.
        setting: one in which it leaks.
    """
    try:
        if (cause := unlike_a_function(aggregation, setting)) is not None:
            return cause
        evidence = gather(aggregation, setting)
        if not evidence.broken:
            return rows_mixed(evidence)
        return next((cause for look in CAUSES if (cause := look(evidence)) is not None), None)
    except Exception:  # a guess must never stand in the way of the error that it explains
        return None


def unlike_a_function(aggregation: Aggregation, setting: Setting) -> str | None:
    """Changes its input, or answers the same input differently after another call; then no other look can be trusted.

    Projections stay: what is changed behind a value projection is not the input.
    """
    fresh, used = _trial(aggregation, setting), _trial(aggregation, setting)
    given = fresh.input.clone()
    call = partial(_called, training=setting.training)
    y = call(fresh.module, given)
    if not given.equal(fresh.input):
        return "changes its input in place"
    call(used.module, draw_input(aggregation, 1, setting.time, setting.input_scale, seed=1))
    if not torch.allclose(y, call(used.module, used.input), rtol=SAME, equal_nan=True):
        return "carries something from one call to the next, or draws from a random generator of its own"
    return None


def rows_mixed(evidence: Evidence) -> str | None:
    """One row by itself does not leak, but two come out differently beside one another."""
    beside = evidence.called(evidence.aggregation, torch.cat([evidence.x, evidence.other]))
    alone = torch.stack([evidence.y, evidence.of(evidence.other)])
    if evidence.draws or _same(alone, beside):
        return None
    return "rows of the batch are mixed, as by a reshape in place of a transpose, or a sum over the batch"


def gather(aggregation: Aggregation, setting: Setting) -> Evidence:
    """Under small numbers if it leaks there too, where weights are not yet saturated; else under this setting."""
    for parameter_scale in (None, aggregation.n_embd**-0.5):  # the latter keeps the scale of x
        tame = Evidence(aggregation, replace(setting, parameter_scale=parameter_scale, input_scale=1.0))
        if tame.broken:
            return tame
    return Evidence(aggregation, setting, only_large=True)


def mode_lost(evidence: Evidence) -> str | None:
    """Leaks in one mode only; where there is no table, that need not be a mask."""
    training = evidence.setting.training
    mode = f"{'training' if training else 'evaluation'} mode"
    other = Evidence(evidence.original, replace(evidence.setting, training=not training))
    if not evidence.leaks.any() or other.leaks.any():
        return None
    if evidence.tables is not None:
        return f"mask lost in {mode}"
    return f"only in {mode}: a mask lost there, or a statistic over time or batch"


def divided_by_length(evidence: Evidence) -> str | None:
    """Nothing moves with a later input, but T · y_t = (t + 1) · y_t of the text that ends at t."""
    time = len(evidence.y)
    seen = torch.arange(1, time + 1).to(evidence.y)[:, None]
    if not evidence.leaks.any() and _same(time * evidence.y, seen * evidence.endings):
        return "divided by T, the length of the text, in place of t + 1"
    return None


def wrong_axis(evidence: Evidence) -> str | None:
    """Columns of the tables sum to 1, rows do not."""
    tables = evidence.tables
    if tables is not None and _sums_to_one(tables, -2) and not _sums_to_one(tables, -1):
        return "softmax over the wrong axis: columns sum to 1, rows do not"
    return None


def decided(evidence: Evidence) -> str | None:
    """Small changes of later inputs move nothing; large ones do, or only all of them together."""
    if evidence.leaks.any():
        nearby = evidence.x + SMALL_STEP * (evidence.other - evidence.x)
        steps = not evidence.only_large and not future(evidence.response(nearby)).any()
    else:
        steps = evidence.leaks_together
    return "a decision taken over all time (a sort, a top-k, a sign of a sum)" if steps else None


def length_in_formula(evidence: Evidence) -> str | None:
    """Nothing moves with a later input, but outputs change with the length of the text."""
    return None if evidence.leaks.any() else "the length of the text is in the formula"


def outbid(evidence: Evidence) -> str | None:
    """Leaks at large scale only; if by weights of rows that still sum to 1, a mask was outbid."""
    if not evidence.only_large:
        return None
    if evidence.tables is not None and evidence.tables.triu(1).any() and _sums_to_one(evidence.tables, -1):
        return "finite mask value: large scores outbid it"
    return "only at large scale: a bound, or a maximum over all time, that small numbers do not reach"


def maximum(evidence: Evidence) -> str | None:
    """Every output is the maximum, or the minimum, of all inputs."""
    for name, extreme in (("maximum", evidence.x.amax(1)), ("minimum", evidence.x.amin(1))):
        if _same(evidence.y, extreme.expand_as(evidence.y)):
            return f"{name} over all time"
    return None


def transposed(evidence: Evidence) -> str | None:
    """Outputs move with every later input and with no earlier one."""
    if evidence.leaks.equal(_future_of(evidence)) and not future(evidence.moves.T).any():
        return "transposed mask"
    return None


def off_by_some(evidence: Evidence) -> str | None:
    """Every output moves with the next input, or the next few, and with none after these."""
    ahead = int(evidence.leaks[0].sum())
    if 0 < ahead < len(evidence.leaks) - 1 and evidence.leaks.equal(_future_of(evidence).tril(ahead)):
        return f"mask off by {'one' if ahead == 1 else ahead}"
    return None


def blocks(evidence: Evidence) -> str | None:
    """Outputs move with every later input of their own block and with none after it."""
    size = int(evidence.leaks[0].sum()) + 1
    number = torch.arange(len(evidence.leaks), device=evidence.leaks.device) // size
    if 1 < size < len(number) and evidence.leaks.equal((number[:, None] == number).triu(1)):
        return f"averages over blocks of {size} positions, later ones among them"
    return None


def scrambled_over_heads(evidence: Evidence) -> str | None:
    """The tables' rows are those of lower triangles, each length once a head, but not at their positions."""
    if evidence.tables is None or len(evidence.tables) == 1:
        return None
    heads, time, _ = evidence.tables.shape
    seen = evidence.tables != 0  # (H, T, T)
    lengths = seen.sum(-1)  # (H, T)
    whole = seen.equal(torch.arange(time, device=seen.device) < lengths[..., None])
    each_once = torch.arange(1, time + 1, device=seen.device).repeat_interleave(heads)
    if whole and lengths.flatten().sort().values.equal(each_once):
        return "mask scrambled over heads: its rows stand at other positions"
    return None


def heads_lost(evidence: Evidence) -> str | None:
    """Some output channels move with later inputs, the others do not."""
    channels, count = evidence.leaking_channels, evidence.y.shape[1]
    return None if len(channels) == count else f"mask lost for some heads: channels {_ranges(channels)} of {count}"


def wraps_around(evidence: Evidence) -> str | None:
    """Linear in x, and what moves with what depends on (t - s) mod T only, without weights that say so."""
    if evidence.tables is not None and evidence.tables.triu(1).any():
        return None
    moves, time = evidence.moves, len(evidence.moves)
    turned = torch.stack([moves[t].roll(-t) for t in range(time)])  # (T, T), column d for input t + d
    constant = _same(moves, moves[0, 0])
    if _is_linear(evidence) and _same(turned, turned[0]) and not constant:
        return "convolution by FFT without zero padding: the end wraps around to the beginning"
    return None


def normalised(evidence: Evidence) -> str | None:
    """Another scale and origin of each channel of x leave tables or outputs as they are, or change y alike."""
    if _is_linear(evidence):
        return None
    channels = torch.arange(evidence.y.shape[1]).to(evidence.y)
    scale, origin = 1.5 + channels.sin(), evidence.x.std() * channels.cos()  # (C,) each
    changed = scale * evidence.x + origin
    y, tables = evidence.of(changed), evidence.tables_of(changed)
    expected = [(y, evidence.y), (y, scale * evidence.y + origin)]
    if tables is not None and evidence.tables is not None:
        expected.append((tables, evidence.tables))
    if any(_same(one, two, part=1e-3) for one, two in expected):  # room for what keeps a variance from zero
        return "normalised over all time: another scale and origin of x change nothing"
    return None


def no_mask(evidence: Evidence) -> str | None:
    """Outputs move with every later input, or with as many later ones as earlier ones, at the same distances."""
    if not (evidence.leaks.equal(_future_of(evidence)) or evidence.leaks.equal(future(evidence.moves.T))):
        return None
    if evidence.tables is not None and not evidence.tables.triu(1).any():
        return "a number taken over all time: a norm, a sum or a maximum"
    other = "" if evidence.tables is not None else ", or a number taken over all time (a norm, a mean, a maximum)"
    return f"no mask{other}"


def from_some_position(evidence: Evidence) -> str | None:
    """The first outputs do not move with later inputs, or none moves with the first of these."""
    output, later = (int(evidence.leaks.any(axis).nonzero()[0]) for axis in (1, 0))
    if output > 0:
        return f"only from position {output} on"
    return f"only inputs from position {later} on" if later > 1 else None


# The most specific first: what a later one looks at may hold for an earlier one too.
CAUSES: tuple[Callable[[Evidence], str | None], ...] = (
    mode_lost,
    divided_by_length,
    wrong_axis,
    decided,
    length_in_formula,
    outbid,
    maximum,
    transposed,
    off_by_some,
    blocks,
    scrambled_over_heads,
    heads_lost,
    wraps_around,
    normalised,
    no_mask,
    from_some_position,
)


def _trial(aggregation: Aggregation, setting: Setting) -> Trial:
    """One row of input, and a copy of the aggregation in the setting."""
    assert setting.input_scale is not None
    conditions = Conditions((setting.parameter_scale,), (setting.input_scale,), (setting.training,), batch_size=1)
    (trial,) = trials(aggregation, conditions, [setting.time])
    return trial


def _called(f: Callable[[Tensor], Tensor], x: Tensor, *, training: bool, seed: int = SEED) -> Tensor:
    """f(x), in training with gradients enabled, and with torch's default generator at the seed.

    The generator goes on afterwards as if nothing had been drawn.
    """
    devices = [x.device] if x.is_cuda else []
    with torch.random.fork_rng(devices=devices), torch.set_grad_enabled(training):
        torch.manual_seed(seed)
        return f(x).detach()


def _same(one: Tensor, two: Tensor, part: float = SAME) -> bool:
    return bool((one - two).abs().max() <= part * one.abs().max())


def _sums_to_one(tables: Tensor, axis: int) -> bool:
    return bool(((tables.sum(axis) - 1).abs() <= SAME).all())


def _future_of(evidence: Evidence) -> Tensor:
    """(T, T) booleans, true above the diagonal."""
    return torch.ones_like(evidence.leaks).triu(1)


def _is_linear(evidence: Evidence) -> bool:
    return _same(evidence.of(evidence.x + evidence.other), evidence.y + evidence.of(evidence.other))


def _ranges(numbers: list[int]) -> str:
    """0, 1, 2, 5 → "0-2, 5"."""
    starts = [n for n in numbers if n - 1 not in numbers]
    ends = [n for n in numbers if n + 1 not in numbers]
    return ", ".join(f"{a}-{b}" if a < b else f"{a}" for a, b in zip(starts, ends, strict=True))
