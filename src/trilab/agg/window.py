"""`window`: the mean of the last few tokens."""

import torch
from torch import Tensor

from trilab.agg.base import About, Aggregation, Flops, State, accumulator, lower_triangle
from trilab.errors import BadInput
from trilab.ops.sliding import sliding_sum, sliding_sum_additions


class WindowMean(Aggregation):
    """Average of this token and the size - 1 before it: A = softmax(mask(0)), the mask -inf outside the band.

    The first rows have fewer tokens to look at; the softmax divides each row by what it has. No parameters.
    O(T·log size·C) time by sums of sums, O(T·C) memory; min(T, size - 1)·C numbers of state.

    Args:
        n_embd: channels C.
        block_size: most tokens T of one call.
        size: tokens averaged, this one included; 1 is `none`, block_size or more is `softmax`.
    Raises:
        BadInput: size below 1.
    Source:
        Karpathy, Let's build GPT, 54:42-58:26 (version 3), with a band in place of the whole triangle.
    """

    about = About(
        formula="A = softmax(mask(0)), s > t - size",
        cost="O(T·log size·C)",
        state="min(T, size - 1)·C",
        rows_sum_to_one=True,
        data_dependent=False,
        source="Karpathy, Let's build GPT, 54:42-58:26 (version 3), with a band",
    )

    def __init__(self, n_embd: int, block_size: int, *, size: int = 4) -> None:
        super().__init__(n_embd, block_size)
        if size < 1:
            raise BadInput(f"agg.size={size} must be at least 1: tokens averaged, this one included.")
        self.size = size

    def weights(self, x: Tensor) -> Tensor:
        time = x.shape[1]
        affinities = torch.zeros(time, time, dtype=accumulator(x.dtype), device=x.device)
        band = lower_triangle(time, x.device).triu(1 - self.size)  # no buffer: nothing else takes T² numbers
        affinities = affinities.masked_fill(~band, -torch.inf)
        return affinities.softmax(-1)[None, None]

    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        counts = torch.arange(1, v.shape[1] + 1, device=v.device).clamp(max=self.size)
        return (sliding_sum(v.to(accumulator(v.dtype)), self.size) / counts[:, None]).to(v.dtype)

    def loop(self, x: Tensor, v: Tensor) -> Tensor:
        y = []
        for t in range(v.shape[1]):
            first = max(0, t + 1 - self.size)
            y.append(v[:, first : t + 1].mean(1))  # (B, C)
        return torch.stack(y, dim=1)

    def mix_step(self, x: Tensor, v: Tensor, state: State) -> tuple[Tensor, State]:
        seen = torch.cat([state[0], v[:, None]], dim=1)  # (B, at most size, C)
        mean = seen.mean(1, dtype=accumulator(v.dtype)).to(v.dtype)
        return mean, (seen[:, max(0, seen.shape[1] + 1 - self.size) :],)

    @property
    def reach(self) -> int:
        return self.size

    def state_size(self, time: int) -> int:
        return min(time, self.size - 1) * self.n_embd

    def mix_flops(self, time: int) -> Flops:
        additions = time * self.n_embd * sliding_sum_additions(min(self.size, time))
        return Flops(additions, additions)
