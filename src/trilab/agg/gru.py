"""`gru`: a gated recurrent unit, to show a summary of the past that is no weighted sum."""

import torch
from torch import Tensor, nn

from trilab.agg.base import About, Aggregation, Flops, State, accumulator, product_flops


class GRU(Aggregation):
    """A nonlinear recurrence: h_t = (1 - z) n + z h_{t-1}, n = tanh(W v_t + b + r (U h_{t-1} + c)).

    The gates z and r are sigmoids of maps of v_t and h_{t-1} likewise. Gates and candidate look at the last state, so
    no table of weights could give the same: there is none. The gate is the other way round than in `min_gru`: z keeps
    the past. 6·C² + 6·C parameters. O(T·C²) time, one token after another; C numbers of state.

    Args:
        n_embd: channels C.
        block_size: most tokens T of one call.
    Source:
        Cho et al., Learning phrase representations using RNN encoder-decoder for statistical machine translation, 2014,
        as torch.nn.GRU has it: r multiplies U h + c, not h. The recurrence runs in float32 or wider, whatever the dtype
        of the parameters.
    """

    about = About(
        formula="h_t = (1 - z) n + z h_{t-1}, n = tanh(W v + b + r (U h_{t-1} + c)), z and r = σ(… v, … h)",
        cost="O(T·C²)",
        state="C",
        source="Cho et al., Learning phrase representations using RNN encoder-decoder, 2014",
    )

    def __init__(self, n_embd: int, block_size: int) -> None:
        super().__init__(n_embd, block_size)
        self.gru = nn.GRU(n_embd, n_embd, batch_first=True)

    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        return self._run(v, *self.init_state(v[:, 0]))[0].to(v.dtype)

    def loop(self, x: Tensor, v: Tensor) -> Tensor:
        W, U, b, c = self._parameters_in(v)
        h, states = v.new_zeros(v[:, 0].shape, dtype=W.dtype), []
        for t in range(v.shape[1]):
            v_r, v_z, v_n = (v[:, t].to(W.dtype) @ W.T + b).chunk(3, -1)  # (B, C) each
            h_r, h_z, h_n = (h @ U.T + c).chunk(3, -1)
            r, z = (v_r + h_r).sigmoid(), (v_z + h_z).sigmoid()
            n = (v_n + r * h_n).tanh()
            h = (1 - z) * n + z * h
            states.append(h)
        return torch.stack(states, 1).to(v.dtype)

    def init_state(self, like: Tensor) -> State:
        return (like.new_zeros(like.shape, dtype=accumulator(like.dtype)),)

    def mix_step(self, x: Tensor, v: Tensor, state: State) -> tuple[Tensor, State]:
        y, h = self._run(v[:, None], *state)
        return y[:, 0].to(v.dtype), (h,)

    def state_size(self, time: int) -> int:
        return self.n_embd

    def mix_flops(self, time: int) -> Flops:
        from_values = product_flops(time, self.n_embd, 3 * self.n_embd)
        from_states = product_flops(time, self.n_embd, 3 * self.n_embd)
        no_gradient_of_the_first_state = Flops(0, -product_flops(1, self.n_embd, 3 * self.n_embd).forward)
        return from_values + from_states + no_gradient_of_the_first_state

    def _run(self, v: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        """(B, T, C) and the state before it, (B, C) → all states and the last one."""
        states, last = torch.gru(
            v.to(h.dtype), h[None], self._parameters_in(v), True, 1, 0.0, self.training, False, True
        )
        return states, last[0]

    def _parameters_in(self, v: Tensor) -> list[Tensor]:
        """W (3·C, C), U (3·C, C), b and c (3·C,), each for r, z and n in that order; float32 or wider."""
        return [parameter.to(accumulator(v.dtype)) for parameter in self.gru.all_weights[0]]
