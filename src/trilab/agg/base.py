"""The contract that every aggregation strategy keeps, and what a strategy says of itself."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from trilab.errors import BadInput
from trilab.ops.triangle import triangular_product, triangular_product_flops
from trilab.ops.triangular_product import serves

# Tokens times heads from which skipping the upper half of a table is worth more products and a copy of the values: with
# several heads the plain product copies the table for each row of the batch.
TRIANGULAR_FROM = 512

# What is carried from token to token: tensors whose first dimension is the batch.
State = tuple[Tensor, ...]


@dataclass(frozen=True)
class About:
    """What a strategy says of itself, for tables and docs. C is n_embd, T the number of tokens, H the heads."""

    formula: str = ""
    cost: str = ""
    """Arithmetic of one forward pass over T tokens, as O(…)."""
    state: str = ""
    """Numbers carried from token to token, as a formula in T, C, H and the strategy's knobs; see `state_size`."""
    rows_sum_to_one: bool = False
    data_dependent: bool = True
    """Whether the table is made from the tokens; else it is the same for every text."""
    source: str = ""


@dataclass(frozen=True)
class Flops:
    """Floating-point operations, a multiplication and an addition being two.

    Counted are products, sums over time, transforms and solves; what acts on each number by itself is left out, as
    torch.utils.flop_counter does.
    """

    forward: int = 0
    backward: int = 0

    def __add__(self, other: "Flops") -> "Flops":
        return Flops(self.forward + other.forward, self.backward + other.backward)

    def __mul__(self, times: int) -> "Flops":
        return Flops(self.forward * times, self.backward * times)

    @property
    def training(self) -> int:
        """Of one forward and backward pass."""
        return self.forward + self.backward


def product_flops(rows: int, inner: int, columns: int, *, gradients: int = 2) -> Flops:
    """Of (rows, inner) @ (inner, columns), and of the gradients of one or both factors."""
    once = 2 * rows * inner * columns
    return Flops(once, gradients * once)


class Aggregation(nn.Module):
    """A causal token mixer: output t is a summary of inputs 0…t, y = A @ v with A lower-triangular.

    Subclasses give `weights` (what fills A), or `mix` (a faster way to A @ v, or a summary that is no weighted sum at
    all), or both; then `mix` must be the same operation as the table, values and gradients. A strategy that needs less
    than the whole past to go on gives `init_state`, `mix_step` and `state_size`. Residual, norm of the residual
    stream, additive positions and output dropout belong to the block around it, so that comparisons are fair.

    Constructors are ordinary PyTorch. The model sees to it that whatever they draw in place (as nn.init does) is a
    function of (seed, parameter name) alone: see init.py.

    Args:
        n_embd: channels C in and out.
        block_size: most tokens T of one call.
    Raises:
        BadInput: a size below 1.
    """

    about: ClassVar[About] = About()

    def __init__(self, n_embd: int, block_size: int) -> None:
        super().__init__()
        for name, value in (("n_embd", n_embd), ("block_size", block_size)):
            if value < 1:
                raise BadInput(f"{name}={value} must be at least 1.")
        self.n_embd = n_embd
        self.block_size = block_size
        self.value: nn.Module = nn.Identity()
        self.output: nn.Module = nn.Identity()

    def project(self, *, value: bool, output: bool) -> None:
        """Put a learned map before (value, no bias) and after (output) the mixing; both are identities at first."""
        if value:
            self.value = nn.Linear(self.n_embd, self.n_embd, bias=False)
        if output:
            self.output = nn.Linear(self.n_embd, self.n_embd)

    @property
    def has_weights(self) -> bool:
        """Whether the strategy is a weighted sum, with a table to show; a nonlinear recurrence is not."""
        return type(self).weights is not Aggregation.weights

    def weights(self, x: Tensor) -> Tensor:
        """The table A for this input.

        Args:
            x: (B, T, C) floating point.
        Returns:
            (B or 1, H or 1, T, T), exactly zero above the diagonal, float32 or wider: rounded to half precision a row
            of weights no longer sums to 1. H may be n_embd: a table a channel.
        """
        raise NotImplementedError(f"{type(self).__name__} is not a weighted sum: it has no table of weights.")

    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        """A(x) @ v, head by head; what a strategy with a faster way overrides.

        Args:
            x: (B, T, C), what the weights are made from.
            v: (B, T, C), what is averaged.
        Returns:
            (B, T, C).
        """
        return weighted_sum(self.weights(x), v)

    def loop(self, x: Tensor, v: Tensor) -> Tensor:
        """The slow truth of `mix`: the same operation in loops, as on a blackboard. See `mix` for shapes."""
        A = self.weights(x)  # (B|1, H|1, T, T)
        y = torch.zeros_like(v)
        heads = v.shape[2] // A.shape[1]  # channels of one head
        for t in range(v.shape[1]):
            for s in range(t + 1):
                y[:, t] = y[:, t] + A[:, :, t, s].repeat_interleave(heads, 1) * v[:, s]
        return y

    def forward(self, x: Tensor) -> Tensor:
        """Summarise the past of every position.

        Args:
            x: (B, T, C) floating point; T in tokens, 1 ≤ T ≤ block_size.
        Returns:
            (B, T, C), dtype and device of x.
        Raises:
            ValueError: T > block_size; the message gives both.
        """
        self._fits(x.shape[1])
        y: Tensor = self.output(self.mix(x, self.value(x)))
        return y

    def init_state(self, like: Tensor) -> State:
        """What `step` carries, before the first token.

        Args:
            like: (B, C); gives batch size, dtype and device.
        Returns:
            Tensors whose first dimension is the batch. Unless a strategy needs less: the values so far (B, 0, C), and
            before them the inputs so far (B, 0, C) where weights are made from these.
        """
        nothing = like.new_empty(len(like), 0, self.n_embd)
        return (nothing, nothing) if self.about.data_dependent else (nothing,)

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """Take one more token; one after another these give what `forward` gives for all at once.

        Args:
            x: (B, C), the next token.
            state: what `init_state` or the last `step` returned; it is not changed.
        Returns:
            (B, C) and the new state.
        Raises:
            ValueError: more than block_size tokens, where the past is kept token by token.
        """
        y, state = self.mix_step(x, self.value(x), state)
        return self.output(y), state

    def mix_step(self, x: Tensor, v: Tensor, state: State) -> tuple[Tensor, State]:
        """`mix` for one more token: what a strategy overrides that needs less than the whole past.

        Args:
            x, v: (B, C).
        """
        state = tuple(
            torch.cat([past, new[:, None]], 1)
            for past, new in zip(state, (x, v) if self.about.data_dependent else (v,), strict=True)
        )
        xs, vs = state[0], state[-1]  # (B, t + 1, C)
        self._fits(vs.shape[1])
        if not self.has_weights:
            return self.mix(xs, vs)[:, -1], state
        return weighted_sum(self.weights(xs)[..., -1:, :], vs)[:, 0], state

    def state_size(self, time: int) -> int:
        """Numbers of state of one row of the batch after `time` tokens."""
        return (1 + self.about.data_dependent) * time * self.n_embd

    @property
    def recurrent(self) -> bool:
        """Whether the state stops growing, so that `step` may go on for ever."""
        return self.state_size(2**40) == self.state_size(2**41)

    @property
    def reach(self) -> int | None:
        """Most tokens that an output depends on, its own included; None where only the text's length bounds them."""
        return None

    def flops(self, time: int) -> Flops:
        """Of one row of `time` tokens, projections included."""
        projections = isinstance(self.value, nn.Linear) + isinstance(self.output, nn.Linear)
        return product_flops(time, self.n_embd, self.n_embd) * projections + self.mix_flops(time)

    def mix_flops(self, time: int) -> Flops:
        """Of `mix`; a strategy that does more, or less, than one product with a given table says how much."""
        gradients = 1 + (self._learned or self.about.data_dependent)
        return product_flops(time, time, self.n_embd, gradients=gradients)

    @property
    def _learned(self) -> bool:
        """Whether the mixing itself, without value and output maps, has parameters."""
        return any(not name.startswith(("value.", "output.")) for name, _ in self.named_parameters())

    @property
    def flops_known(self) -> bool:
        """Whether `mix_flops` speaks of this `mix`: not where a subclass overrides the one without the other."""
        cls = type(self)
        return cls.mix is Aggregation.mix or cls.mix_flops is not Aggregation.mix_flops

    def _fits(self, time: int) -> None:
        if time > self.block_size:
            raise ValueError(f"{time} tokens are more than block_size={self.block_size}.")


class StaticTableAggregation(Aggregation):
    """A mixer whose table is the same for every text, given row by row; `softmax` and `matmul` show the plain way.

    In a large one what lies above the diagonal is skipped: O(T²·C) time all the same, about half of it. A token at a
    time needs one row.
    """

    n_head = 1

    def rows(self, first: int, time: int, dtype: torch.dtype) -> Tensor:
        """Rows first … time - 1 of the table for `time` tokens: (H, time - first, time), zero above the diagonal."""
        raise NotImplementedError

    def weights(self, x: Tensor) -> Tensor:
        return self.rows(0, x.shape[1], accumulator(x.dtype))[None]

    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        weights = self.weights(x)
        skips = self._skips(v.shape[1]) or serves(weights[0], v)
        return triangular_sum(weights[0], v) if skips else weighted_sum(weights, v)

    def mix_step(self, x: Tensor, v: Tensor, state: State) -> tuple[Tensor, State]:
        seen = torch.cat([state[0], v[:, None]], 1)  # (B, t + 1, C)
        time = seen.shape[1]
        self._fits(time)
        return weighted_sum(self.rows(time - 1, time, accumulator(v.dtype))[None], seen)[:, 0], (seen,)

    def mix_flops(self, time: int) -> Flops:
        if not self._skips(time):
            return super().mix_flops(time)
        once = triangular_product_flops(time, self.n_embd)
        return Flops(once, (2 if self._learned else 1) * once)

    def _skips(self, time: int) -> bool:
        """Whether the upper half of a table for so many tokens is left out; where a kernel serves, it always is."""
        return time * self.n_head >= TRIANGULAR_FROM


class QueryKeyAggregation(Aggregation):
    """A mixer whose weights come from tokens that ask and tokens that answer: queries x Wq and keys x Wk, in H heads.

    Args:
        n_embd: channels C.
        block_size: most tokens T of one call.
        n_head: heads H; must divide n_embd.
    Raises:
        BadInput: n_embd not divisible by n_head.
    """

    def __init__(self, n_embd: int, block_size: int, *, n_head: int) -> None:
        super().__init__(n_embd, block_size)
        self.head_size = head_size(n_embd, n_head)
        self.n_head = n_head
        self.query = nn.Linear(n_embd, n_embd, bias=False)
        self.key = nn.Linear(n_embd, n_embd, bias=False)

    def heads(self, x: Tensor) -> Tensor:
        """(B, T, n) → (B, H, T, n / H), float32 or wider: a large product of queries and keys overflows float16."""
        return split_heads(x.to(accumulator(x.dtype)), self.n_head)


def weighted_sum(weights: Tensor, v: Tensor) -> Tensor:
    """A @ v, head by head: (B|1, H|1, R, T) and (B, T, C) → (B, R, C), in the dtype of v."""
    return merge_heads(weights @ split_heads(v.to(weights.dtype), weights.shape[1])).to(v.dtype)


def triangular_sum(weights: Tensor, v: Tensor) -> Tensor:
    """`weighted_sum` of one table for all rows of the batch, its upper half skipped: (H, T, T) and (B, T, C)."""
    return triangular_product(weights, v.to(weights.dtype)).to(v.dtype)


def accumulator(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which sums over time are kept: float32, or wider if dtype is."""
    return torch.promote_types(dtype, torch.float32)


def head_size(n_embd: int, n_head: int) -> int:
    """Channels of one head, C / H.

    Raises:
        BadInput: H below 1, or not a divisor of C.
    """
    if n_head < 1:
        raise BadInput(f"agg.n_head={n_head} must be at least 1.")
    if n_embd % n_head:
        raise BadInput(f"model.n_embd={n_embd} is not divisible by agg.n_head={n_head}, the number of heads.")
    return n_embd // n_head


def split_heads(x: Tensor, n_head: int) -> Tensor:
    """(B, T, C) → (B, H, T, C / H)."""
    batch, time, channels = x.shape
    return x.view(batch, time, n_head, channels // n_head).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """(B, H, T, C / H) → (B, T, C)."""
    batch, n_head, time, size = x.shape
    return x.transpose(1, 2).reshape(batch, time, n_head * size)


def lower_triangle(block_size: int, device: torch.device | None = None) -> Tensor:
    """(T, T) booleans, true where position t (row) may look at position s (column): s ≤ t."""
    return torch.ones(block_size, block_size, dtype=torch.bool, device=device).tril()
