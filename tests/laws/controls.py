"""Strategies broken on purpose, each in one way, and the laws that must reject it. All other laws must let it pass."""

import os

import torch
from torch import Tensor, nn

from trilab.agg.base import About, Aggregation, State, accumulator, lower_triangle, split_heads


class Weighted(Aggregation):
    """Softmax over the past of affinities of zero; what a control breaks is the mask or the affinities."""

    about = About(rows_sum_to_one=True, data_dependent=False)
    n_head = 1

    def __init__(self, n_embd: int = 4, block_size: int = 8) -> None:
        super().__init__(n_embd, block_size)

    def mask(self, time: int) -> Tensor:
        """What may be looked at: booleans that broadcast with (B, H, T, T)."""
        return lower_triangle(time)

    def affinities(self, x: Tensor) -> Tensor:
        """(B|1, H, T, T)."""
        return x.new_zeros(1, self.n_head, x.shape[1], x.shape[1], dtype=accumulator(x.dtype))

    def weights(self, x: Tensor) -> Tensor:
        allowed = self.mask(x.shape[1]).to(x.device)
        return self.affinities(x).masked_fill(~allowed, -torch.inf).softmax(-1)


class Attending(Weighted):
    """Affinities made from the tokens: queries meet keys."""

    about = About(rows_sum_to_one=True)

    def __init__(self, n_embd: int = 4, block_size: int = 8) -> None:
        super().__init__(n_embd, block_size)
        self.query = nn.Linear(n_embd, n_embd, bias=False)
        self.key = nn.Linear(n_embd, n_embd, bias=False)

    def affinities(self, x: Tensor) -> Tensor:
        wide = accumulator(x.dtype)
        q, k = (split_heads(part(x).to(wide), self.n_head) for part in (self.query, self.key))  # (B, H, T, C / H)
        return q @ k.mT


# Masks


class NoMask(Weighted):
    """There is no mask: every position sees the whole text."""

    def mask(self, time: int) -> Tensor:
        return torch.ones(time, time, dtype=torch.bool)


class OffByOne(Weighted):
    """The mask is off by one: every position sees the next token."""

    def mask(self, time: int) -> Tensor:
        return torch.ones(time, time, dtype=torch.bool).tril(1)


class TransposedMask(Weighted):
    """The mask is transposed: every position sees itself and what follows."""

    def mask(self, time: int) -> Tensor:
        return lower_triangle(time).T


class MaskLostInTraining(Weighted):
    """The mask is applied in evaluation mode only."""

    def mask(self, time: int) -> Tensor:
        return torch.ones(time, time, dtype=torch.bool) if self.training else lower_triangle(time)


class FiniteMask(Attending):
    """The mask is the number -1e4, which large scores outbid."""

    def weights(self, x: Tensor) -> Tensor:
        return self.affinities(x).masked_fill(~self.mask(x.shape[1]).to(x.device), -1e4).softmax(-1)


class MaskLostForOneHead(Attending):
    """The mask is written for the first of two heads; the second sees the whole text."""

    n_head = 2

    def mask(self, time: int) -> Tensor:
        mask = torch.ones(2, time, time, dtype=torch.bool)
        mask[:1] = lower_triangle(time)
        return mask


class MaskScrambledOverHeads(Attending):
    """The mask, repeated for two heads as (H·T, T), is viewed as (T, H, T): rows go to the wrong positions."""

    n_head = 2

    def mask(self, time: int) -> Tensor:
        return lower_triangle(time).repeat(2, 1).view(time, 2, time).transpose(0, 1)


class LeakPastHalf(Weighted):
    """Positions past half of the block see the whole text."""

    def mask(self, time: int) -> Tensor:
        mask = lower_triangle(time)
        mask[self.block_size // 2 :] = True
        return mask


# What is summed, compared or divided over all of time


class WrongAxis(Attending):
    """The softmax is taken over the query axis: a weight depends on later queries, and rows do not sum to 1."""

    def weights(self, x: Tensor) -> Tensor:
        return self.affinities(x).masked_fill(~self.mask(x.shape[1]).to(x.device), -torch.inf).softmax(-2)


class DividedByT(Weighted):
    """The sum is divided by T, the length of the text, in place of t + 1."""

    about = About(data_dependent=False)

    def weights(self, x: Tensor) -> Tensor:
        return self.mask(x.shape[1]).to(x.device, accumulator(x.dtype))[None, None] / x.shape[1]


class MaxOverTime(Aggregation):
    """The maximum is taken over all of time, not over the past."""

    def __init__(self, n_embd: int = 4, block_size: int = 8) -> None:
        super().__init__(n_embd, block_size)

    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        return v.amax(1, keepdim=True).expand_as(v)


class LeakAtLargeScale(Weighted):
    """The maximum that keeps exp from overflowing is taken over all of time: a large later score erases a row."""

    about = About(rows_sum_to_one=True)

    def weights(self, x: Tensor) -> Tensor:
        x = x.to(accumulator(x.dtype))
        affinities = (x @ x.mT)[:, None].masked_fill(~self.mask(x.shape[1]).to(x.device), -torch.inf)
        powers = (affinities - affinities.amax((-2, -1), keepdim=True)).exp()
        return powers / powers.sum(-1, keepdim=True).clamp_min(1e-30)


class NormalisedOverTime(Weighted):
    """Affinities are made from inputs standardised over all of time."""

    about = About(rows_sum_to_one=True)

    def affinities(self, x: Tensor) -> Tensor:
        x = x.to(accumulator(x.dtype))
        x = (x - x.mean(1, keepdim=True)) * (x.var(1, correction=0, keepdim=True) + 1e-5).rsqrt()
        return (x @ x.mT)[:, None]


class CircularFFT(Aggregation):
    """A convolution by FFT without zero padding: the end of the text wraps around to its beginning."""

    about = About(data_dependent=False)

    def __init__(self, n_embd: int = 4, block_size: int = 8) -> None:
        super().__init__(n_embd, block_size)
        self.filter = nn.Parameter(1 / torch.arange(1, block_size + 1))

    def weights(self, x: Tensor) -> Tensor:
        time = x.shape[1]
        distance = torch.arange(time)[:, None] - torch.arange(time)
        table = self.filter.to(accumulator(x.dtype))[distance.clamp_min(0)]
        return table.masked_fill(distance.to(x.device) < 0, 0)[None, None]

    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        time, wide = v.shape[1], accumulator(v.dtype)
        product = torch.fft.rfft(v.to(wide), dim=1) * torch.fft.rfft(self.filter[:time].to(wide))[:, None]
        return torch.fft.irfft(product, n=time, dim=1).to(v.dtype)


class GradientLeak(Weighted):
    """The outputs are causal and the gradients are not: a mean over all of time is added and taken away detached."""

    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        mean = v.mean(1, keepdim=True)
        return super().mix(x, v) + (mean - mean.detach())


class LeakInFloat32(Weighted):
    """The path taken in float32 and half precision has no mask; the one in float64 has."""

    def weights(self, x: Tensor) -> Tensor:
        affinities = self.affinities(x)
        return affinities.softmax(-1) if x.dtype != torch.float64 else super().weights(x)


class LeakWithGradients(Weighted):
    """The mask is lost where gradients are enabled, as in training."""

    def mask(self, time: int) -> Tensor:
        seen = torch.ones(time, time, dtype=torch.bool)
        return seen if torch.is_grad_enabled() else seen.tril()


class ReshapedBack(Aggregation):
    """A result with time first is reshaped, not transposed, back: right for one row, scrambled for more."""

    def __init__(self, n_embd: int = 4, block_size: int = 8) -> None:
        super().__init__(n_embd, block_size)

    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        return v.transpose(0, 1).cumsum(0).reshape(v.shape)


# Everything but causality


class LastTokenOnly(Aggregation):
    """Only the last output is given."""

    def __init__(self, n_embd: int = 4, block_size: int = 8) -> None:
        super().__init__(n_embd, block_size)

    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        return v[:, -1:]


class AlwaysFloat32(Aggregation):
    """The output is float32 whatever the input is."""

    def __init__(self, n_embd: int = 4, block_size: int = 8) -> None:
        super().__init__(n_embd, block_size)

    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        return v.float()


class BatchMean(Weighted):
    """What is averaged is the mean over the batch."""

    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        return super().mix(x, v.mean(0, keepdim=True).expand_as(v))


class NotNormalised(Weighted):
    """Rows are said to sum to 1 and do not."""

    def weights(self, x: Tensor) -> Tensor:
        return self.mask(x.shape[1]).to(x.device, accumulator(x.dtype))[None, None]


class FixedInNameOnly(Weighted):
    """The table is said to be the same for every text and is not."""

    def affinities(self, x: Tensor) -> Tensor:
        x = x.to(accumulator(x.dtype))
        return (x @ x.mT)[:, None]


class AnotherTable(Weighted):
    """The fast path is another operation than the table."""

    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        return v


class GradientForgotten(Weighted):
    """The fast path gives the values of the table and none of its gradients."""

    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        return super().mix(x, v.detach())


class AnotherLoop(Weighted):
    """The loop is another operation than the table."""

    def loop(self, x: Tensor, v: Tensor) -> Tensor:
        return v


class UnusedParameter(Weighted):
    """A parameter has no part in the output."""

    def __init__(self, n_embd: int = 4, block_size: int = 8) -> None:
        super().__init__(n_embd, block_size)
        self.unused = nn.Parameter(torch.zeros(3))


class SquaresInHalf(Aggregation):
    """Squares are kept in the dtype of the input: they overflow float16."""

    def __init__(self, n_embd: int = 4, block_size: int = 8) -> None:
        super().__init__(n_embd, block_size)

    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        return (v.square() + 1).sqrt()


class ForgetfulState(Weighted):
    """The state holds the last three values only."""

    def mix_step(self, x: Tensor, v: Tensor, state: State) -> tuple[Tensor, State]:
        return super().mix_step(x, v, tuple(past[:, -3:] for past in state))


class StateChangedInPlace(Weighted):
    """`step` writes into the state that it was given."""

    def init_state(self, like: Tensor) -> State:
        return (torch.zeros_like(like), like.new_zeros(len(like)))

    def mix_step(self, x: Tensor, v: Tensor, state: State) -> tuple[Tensor, State]:
        total, count = state
        total += v
        count += 1
        return total / count[:, None], state


class NoiseInEvaluation(Weighted):
    """Noise is added in evaluation mode too."""

    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        return super().mix(x, v) + torch.randn_like(v)


class UnseededDraw(Weighted):
    """Initial values are drawn from the machine's entropy, which no seed reaches."""

    about = About(data_dependent=False)

    def __init__(self, n_embd: int = 4, block_size: int = 8) -> None:
        super().__init__(n_embd, block_size)
        generator = torch.Generator().manual_seed(int.from_bytes(os.urandom(7)))
        self.table = nn.Parameter(torch.randn(block_size, block_size, generator=generator))

    def weights(self, x: Tensor) -> Tensor:
        time = x.shape[1]
        return self.table[:time, :time].to(accumulator(x.dtype)).tril()[None, None]


class BufferNotSaved(Weighted):
    """Random affinities are a buffer that is not saved."""

    def __init__(self, n_embd: int = 4, block_size: int = 8) -> None:
        super().__init__(n_embd, block_size)
        self.register_buffer("table", torch.randn(block_size, block_size), persistent=False)

    def affinities(self, x: Tensor) -> Tensor:
        time = x.shape[1]
        return self.get_buffer("table")[None, None, :time, :time].to(accumulator(x.dtype))


class RandomInAttribute(Weighted):
    """A random number is a Python attribute, which no checkpoint holds."""

    def __init__(self, n_embd: int = 4, block_size: int = 8) -> None:
        super().__init__(n_embd, block_size)
        self.slope = torch.rand(()).item()

    def affinities(self, x: Tensor) -> Tensor:
        return super().affinities(x) + self.slope * torch.arange(x.shape[1], device=x.device)


class CompiledPathDiffers(Weighted):
    """The path taken under torch.compile is the sum, the other the mean."""

    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        return v.cumsum(1) if torch.compiler.is_compiling() else super().mix(x, v)


_LEAK = {"causality_prefix", "causality_perturbation", "causality_gradient", "stream"}
_LEAKING_TABLE = _LEAK | {"triangle", "loop"}

CONTROLS: dict[str, set[str]] = {
    "NoMask": _LEAKING_TABLE,
    "OffByOne": _LEAKING_TABLE,
    "TransposedMask": _LEAKING_TABLE,
    "MaskLostInTraining": _LEAKING_TABLE,
    "FiniteMask": {"causality_prefix", "causality_perturbation", "triangle"},
    "MaskLostForOneHead": _LEAKING_TABLE,
    "MaskScrambledOverHeads": _LEAKING_TABLE,
    "LeakPastHalf": _LEAKING_TABLE,
    "WrongAxis": _LEAK | {"triangle"},
    "DividedByT": {"causality_prefix", "stream"},
    "MaxOverTime": _LEAK,
    "LeakAtLargeScale": {"causality_prefix", "causality_perturbation", "triangle"},
    "NormalisedOverTime": _LEAK,
    "CircularFFT": _LEAK | {"table", "loop"},
    "GradientLeak": {"causality_gradient", "table", "loop"},
    "LeakInFloat32": {"causality_perturbation"},
    "LeakWithGradients": _LEAKING_TABLE - {"triangle"},  # a table is looked at without gradients
    "ReshapedBack": _LEAK | {"batch"},
    "LastTokenOnly": _LEAK | {"shape"},  # one output for many positions: where they come from cannot be told
    "AlwaysFloat32": {"shape"},
    "BatchMean": {"batch", "table", "loop", "stream"},
    "NotNormalised": {"triangle"},
    "FixedInNameOnly": {"triangle"},
    "AnotherTable": {"table", "loop", "stream"},
    "GradientForgotten": {"table", "loop"},
    "AnotherLoop": {"loop"},
    "UnusedParameter": {"gradient"},
    "SquaresInHalf": {"finite_range"},
    "ForgetfulState": {"stream"},
    "StateChangedInPlace": {"stream"},
    "NoiseInEvaluation": {"seed"},
    "UnseededDraw": {"seed"},
    "BufferNotSaved": {"state_dict"},
    "RandomInAttribute": {"state_dict"},
    "CompiledPathDiffers": {"compiled"},
}
