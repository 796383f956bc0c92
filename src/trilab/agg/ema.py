"""`ema`: an exponential moving average, its decay learned by each head."""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from trilab.agg.base import About, Aggregation, Flops, State, accumulator, head_size, lower_triangle
from trilab.ops.scan import scan


class ExponentialMean(Aggregation):
    """Weighted average that forgets at a steady rate: A[t, s] = γ^(t - s) / (γ^0 + … + γ^t), γ learned by each head.

    The denominator is the bias correction: without it the first rows would weigh less than 1. γ = sigmoid(θ), so that
    it stays in (0, 1) wherever θ goes. At first half-lives spread over the heads, log 2 / -log γ = T^((h + ½) / H)
    tokens for h = 0 … H - 1: nobody knows beforehand how far back is worth looking, so every head gets as many octaves
    between one token and block_size as the others.

    H parameters. Rows sum to 1. O(T·C) time: with w_t the denominator, y_t = (1 - 1 / w_t) y_{t-1} + v_t / w_t, a scan
    whose factors are the same for all rows and all channels of a head. C + H numbers of state, numerator and w.

    Args:
        n_embd: channels C.
        block_size: most tokens T of one call.
        n_head: heads H, each with its own γ; must divide n_embd.
    Raises:
        BadInput: n_embd not divisible by n_head.
    Source:
        Ma et al., Mega: moving average equipped gated attention, 2023, for the average as a layer; Kingma and Ba, Adam,
        2015, section 3, for the bias correction. Here one decay a head and no expansion of channels.
    """

    about = About(
        formula="A[t, s] = γ^(t - s) / (γ^0 + … + γ^t), γ learned",
        cost="O(T·C)",
        state="C + H",
        rows_sum_to_one=True,
        data_dependent=False,
        source="Ma et al., Mega, 2023; bias correction of Kingma and Ba, Adam, 2015",
    )

    def __init__(self, n_embd: int, block_size: int, *, n_head: int = 1) -> None:
        super().__init__(n_embd, block_size)
        self.head_size = head_size(n_embd, n_head)
        self.n_head = n_head
        half_lives = (block_size ** ((head + 0.5) / n_head) for head in range(n_head))  # tokens
        self.theta = nn.Parameter(torch.tensor([-math.log(math.expm1(math.log(2) / life)) for life in half_lives]))

    def weights(self, x: Tensor) -> Tensor:
        time = x.shape[1]
        log_decay = logsigmoid(self.theta.to(accumulator(x.dtype)))[:, None, None]  # (H, 1, 1)
        now = torch.arange(time, device=x.device)
        affinities = (now[:, None] - now) * log_decay  # (H, T, T): a softmax of logarithms is the quotient
        future = ~lower_triangle(time, x.device)  # no buffer: nothing else takes T² numbers
        affinities = affinities.masked_fill(future, -torch.inf)
        return affinities.softmax(-1)[None]

    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        new = self.new_shares(v.shape[1])[None, :, :, None]  # (1, T, H, 1)
        heads = v.view(*v.shape[:2], self.n_head, self.head_size)  # (B, T, H, C / H)
        dtype = accumulator(v.dtype)
        return scan((1 - new).to(dtype), heads, new.to(dtype)).view(v.shape).to(v.dtype)

    def loop(self, x: Tensor, v: Tensor) -> Tensor:
        decay = torch.sigmoid(self.theta).repeat_interleave(self.head_size)  # (C,)
        total, weight, y = torch.zeros_like(v[:, 0]), torch.zeros_like(decay), []
        for t in range(v.shape[1]):
            total = decay * total + v[:, t]  # (B, C)
            weight = decay * weight + 1  # (C,)
            y.append(total / weight)
        return torch.stack(y, dim=1)

    def init_state(self, like: Tensor) -> State:
        total = torch.zeros_like(like, dtype=accumulator(like.dtype))
        return total, total.new_zeros(len(like), self.n_head)

    def mix_step(self, x: Tensor, v: Tensor, state: State) -> tuple[Tensor, State]:
        total, weight = state  # (B, C), (B, H)
        decay = self.decay(total.dtype)
        total, weight = self.per_channel(decay) * total + v, decay * weight + 1
        return (total / self.per_channel(weight)).to(v.dtype), (total, weight)

    def new_shares(self, time: int) -> Tensor:
        """What of each average is its last token, (T, H): 1 / (γ^0 + … + γ^t).

        In double, as are the gradients: few numbers, of which float32 would lose digits where γ is near 0 or 1.
        """
        log_decay = logsigmoid(self.theta.double())
        log_decay = log_decay.clamp(max=-torch.finfo(torch.float64).tiny)  # of 0 the quotient would be 0 / 0
        tokens = torch.arange(1, time + 1, dtype=torch.float64, device=log_decay.device)[:, None]
        return torch.expm1(log_decay) / torch.expm1(tokens * log_decay)

    def decay(self, dtype: torch.dtype) -> Tensor:
        """γ of every head, (H,)."""
        return torch.sigmoid(self.theta.to(dtype))

    def per_channel(self, heads: Tensor) -> Tensor:
        """(…, H) → (…, C), each head's number for all its channels."""
        return heads.repeat_interleave(self.head_size, dim=-1)

    def state_size(self, time: int) -> int:
        return self.n_embd + self.n_head

    def mix_flops(self, time: int) -> Flops:
        recurrence = 2 * time * self.n_embd  # a product and a sum for each number of state
        return Flops(recurrence, 2 * recurrence)  # back through time; and the gradient of γ
