"""`conv`: a short causal convolution, a filter for each channel."""

import torch
from torch import Tensor, nn
from torch.nn.functional import conv1d, pad

from trilab.agg.base import About, Aggregation, Flops, State, accumulator, product_flops
from trilab.errors import BadInput


class ShortConvolution(Aggregation):
    """Weighted sum of this token and the few before it, other weights for each channel: y_t = Σ_j w_j · v_{t-j}.

    A[t, s] = w[t - s] for t - size < s ≤ t, a table a channel; weights may be negative and rows sum to anything. What
    lies before the first token counts as zero. size·C parameters, uniform within ±1/√size at first: values of variance
    1 give sums of variance 1/3. O(T·size·C) time, min(T, size - 1)·C numbers of state.

    Args:
        n_embd: channels C.
        block_size: most tokens T of one call.
        size: tokens of one sum, this one included; 1 scales each channel.
    Raises:
        BadInput: size below 1.
    Source:
        So et al., Primer, 2021, and Gu and Dao, Mamba, 2023: depthwise, three and four tokens. There it prepares the
        input of another mixer; here it is alone, without bias.
    """

    about = About(
        formula="y_t = Σ_j w_j · v_{t-j}, j < size, w learned for each channel",
        cost="O(T·size·C)",
        state="min(T, size - 1)·C",
        data_dependent=False,
        source="So et al., Primer, 2021; Gu and Dao, Mamba, 2023; here alone",
    )

    def __init__(self, n_embd: int, block_size: int, *, size: int = 4) -> None:
        super().__init__(n_embd, block_size)
        if size < 1:
            raise BadInput(f"agg.size={size} must be at least 1: tokens of one sum, this one included.")
        self.size = size
        self.filter = nn.Parameter(torch.empty(n_embd, size))  # of this token, the one before, …
        nn.init.uniform_(self.filter, -(size**-0.5), size**-0.5)

    def weights(self, x: Tensor) -> Tensor:
        time = x.shape[1]
        taps = pad(self.filter.to(accumulator(x.dtype)), (0, time - self.size))  # (C, T)
        now = torch.arange(time, device=x.device)
        distance = (now[:, None] - now).clamp(min=0)  # (T, T)
        return taps[:, distance].tril()[None]

    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        accumulate = accumulator(v.dtype)
        past = pad(v.to(accumulate).mT, (self.size - 1, 0))  # (B, C, size - 1 + T)
        taps = self.filter.to(accumulate).flip(1)[:, None]  # (C, 1, size), oldest first
        return conv1d(past, taps, groups=self.n_embd).mT.to(v.dtype)

    def loop(self, x: Tensor, v: Tensor) -> Tensor:
        y = []
        for t in range(v.shape[1]):
            y_t = torch.zeros_like(v[:, t])  # (B, C)
            for j in range(min(self.size, t + 1)):
                y_t = y_t + self.filter[:, j] * v[:, t - j]
            y.append(y_t)
        return torch.stack(y, dim=1)

    def mix_step(self, x: Tensor, v: Tensor, state: State) -> tuple[Tensor, State]:
        seen = torch.cat([state[0], v[:, None]], dim=1)  # (B, at most size, C)
        taps = self.filter.to(accumulator(v.dtype))[:, : seen.shape[1]].flip(1)  # (C, at most size)
        y = (taps.T * seen).sum(1).to(v.dtype)
        return y, (seen[:, max(0, seen.shape[1] + 1 - self.size) :],)

    @property
    def reach(self) -> int:
        return self.size

    def state_size(self, time: int) -> int:
        return min(time, self.size - 1) * self.n_embd

    def mix_flops(self, time: int) -> Flops:
        return product_flops(time, self.size, 1) * self.n_embd
