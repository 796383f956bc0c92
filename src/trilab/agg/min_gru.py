"""`min_gru`: each channel moves towards its newest value, as far as the newest token says."""

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from trilab.agg.base import About, Aggregation, Flops, State, accumulator, product_flops
from trilab.ops.chunks import segment_sums
from trilab.ops.scan import scan


class MinGRU(Aggregation):
    """Moving average whose rate the tokens set: h_t = (1 - z_t) h_{t-1} + z_t v_t, z_t = σ(W x_t + b), h_{-1} = 0.

    A GRU whose gate no longer looks at h, so that it is a weighted sum, A[t, s] = z_s (1 - z_{s+1}) ⋯ (1 - z_t), with a
    table a channel. Rows sum to 1 - (1 - z_0) ⋯ (1 - z_t): less than 1, since h starts at zero. C² + C parameters.
    O(T·C²) time, of which the scan is T·C; C numbers of state.

    Args:
        n_embd: channels C.
        block_size: most tokens T of one call.
    Source:
        Feng, Tung, Ahmed, Bengio, Hajimirsadeghi, Were RNNs all we needed?, 2024. Their candidate is the value map
        (`project`); they scan in logarithms of positive states, here the states are as they are.
    """

    about = About(
        formula="h_t = (1 - z_t) h_{t-1} + z_t v_t, z_t = σ(W x_t + b)",
        cost="O(T·C²)",
        state="C",
        source="Feng, Tung, Ahmed, Bengio, Hajimirsadeghi, Were RNNs all we needed?, 2024",
    )

    def __init__(self, n_embd: int, block_size: int) -> None:
        super().__init__(n_embd, block_size)
        self.gate = nn.Linear(n_embd, n_embd)

    def weights(self, x: Tensor) -> Tensor:
        rate = self._rate(x).mT  # (B, C, T)
        return rate.sigmoid()[..., None, :] * segment_sums(logsigmoid(-rate)).exp()

    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        rate = self._rate(x)  # (B, T, C)
        # 1 - z as σ(-…): a z near 1 leaves no digits in the difference
        return scan((-rate).sigmoid(), v, rate.sigmoid()).to(v.dtype)

    def loop(self, x: Tensor, v: Tensor) -> Tensor:
        z = self._rate(x).sigmoid()  # (B, T, C)
        h, states = torch.zeros_like(z[:, 0]), []
        for t in range(x.shape[1]):
            h = (1 - z[:, t]) * h + z[:, t] * v[:, t]  # (B, C)
            states.append(h)
        return torch.stack(states, 1).to(v.dtype)

    def init_state(self, like: Tensor) -> State:
        return (like.new_zeros(like.shape, dtype=accumulator(like.dtype)),)

    def mix_step(self, x: Tensor, v: Tensor, state: State) -> tuple[Tensor, State]:
        rate, (h,) = self._rate(x), state  # (B, C)
        h = (-rate).sigmoid() * h + rate.sigmoid() * v
        return h.to(v.dtype), (h,)

    def state_size(self, time: int) -> int:
        return self.n_embd

    def mix_flops(self, time: int) -> Flops:
        recurrence = 2 * time * self.n_embd  # backward: the same from the last token to the first, and that of z
        return product_flops(time, self.n_embd, self.n_embd) + Flops(recurrence, 2 * recurrence)

    def _rate(self, x: Tensor) -> Tensor:
        """W x + b, what z is the sigmoid of, float32 or wider."""
        rate: Tensor = self.gate(x)
        return rate.to(accumulator(rate.dtype))
