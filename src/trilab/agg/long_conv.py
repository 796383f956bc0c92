"""`long_conv`: a causal convolution as long as the text, by fast Fourier transforms."""

import math

import torch
from torch import Tensor, nn

from trilab.agg.base import About, Aggregation, Flops, State, accumulator


class LongConvolution(Aggregation):
    """Weighted sum of everything seen so far, a weight for each distance and channel: y_t = Σ_j h_j · v_{t-j}.

    A[t, s] = h[t - s], a table a channel; weights may be negative and rows sum to anything. C·T parameters, normal of
    standard deviation 0.02 at first, as GPT-2's matrices: at 1/√T, which would keep the variance of the values, far
    tokens begin as noise that training must first quieten, and at 128 tokens that cost a small gpt 0.04 nats.

    O(T·log T·C) time: y = irfft(rfft(h) · rfft(v)), both first extended by zeros to 2·T, else the end of the text would
    wrap around to its beginning. T·C numbers of state, the values of the past: a free filter has no shorter summary.

    Rounding. A transform mixes all positions, so every output carries an error of about ε·‖h‖·‖v‖, set by the largest
    values anywhere in its row, not by the output itself; ε is the resolution of float32, or of float64 for float64.
    Outputs before a changed input therefore move in their last bits. That is no leak: a leak does not shrink with ε.
    The laws allow for a move of this size, relative to the input and the dtype, and for no more.

    Args:
        n_embd: channels C.
        block_size: most tokens T of one call, and the length of the filter.
    Source:
        Fu et al., Simple hardware-efficient long convolutions for sequence modeling, 2023: a filter learned directly,
        not by a network as in Hyena (Poli et al., 2023). Without their smoothing of it.
    """

    about = About(
        formula="y_t = Σ_j h_j · v_{t-j}, h learned for each channel",
        cost="O(T·log T·C)",
        state="T·C",
        data_dependent=False,
        source="Fu et al., Simple hardware-efficient long convolutions, 2023, without smoothing",
    )

    def __init__(self, n_embd: int, block_size: int) -> None:
        super().__init__(n_embd, block_size)
        self.filter = nn.Parameter(torch.empty(n_embd, block_size))  # of this token, the one before, …
        nn.init.normal_(self.filter, std=0.02)

    def weights(self, x: Tensor) -> Tensor:
        now = torch.arange(x.shape[1], device=x.device)
        distance = (now[:, None] - now).clamp(min=0)  # (T, T)
        return self.filter.to(accumulator(x.dtype))[:, distance].tril()[None]

    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        time, accumulate = v.shape[1], accumulator(v.dtype)
        taps = torch.fft.rfft(self.filter[:, :time].T.to(accumulate), n=2 * time, dim=0)  # (T + 1, C)
        values = torch.fft.rfft(v.to(accumulate), n=2 * time, dim=1)  # (B, T + 1, C)
        y: Tensor = torch.fft.irfft(taps * values, n=2 * time, dim=1)[:, :time]
        return y.to(v.dtype)

    def loop(self, x: Tensor, v: Tensor) -> Tensor:
        y = []
        for t in range(v.shape[1]):
            y_t = torch.zeros_like(v[:, t])  # (B, C)
            for j in range(t + 1):
                y_t = y_t + self.filter[:, j] * v[:, t - j]
            y.append(y_t)
        return torch.stack(y, dim=1)

    def mix_step(self, x: Tensor, v: Tensor, state: State) -> tuple[Tensor, State]:
        seen = torch.cat([state[0], v[:, None]], dim=1)  # (B, t + 1, C)
        self._fits(seen.shape[1])
        taps = self.filter.to(accumulator(v.dtype))[:, : seen.shape[1]].flip(1)  # (C, t + 1)
        return (taps.T * seen).sum(1).to(v.dtype), (seen,)

    def mix_flops(self, time: int) -> Flops:
        transform = round(5 * time * math.log2(2 * time))  # 5/2·n·log2(n) of n = 2·T real numbers
        product = 6 * (time + 1)  # of complex numbers, half of the spectrum
        return Flops(3 * transform + product, 3 * transform + 2 * product) * self.n_embd
