"""`relative`: one learned affinity for every distance."""

import torch
from torch import Tensor, nn

from trilab.agg.base import About, StaticTableAggregation, head_size


class RelativeWeights(StaticTableAggregation):
    """Weighted average with weights that depend on how long ago: A = softmax(mask(b[t - s])), b learned.

    `table` with all its diagonals tied: what is learned about the token before this one holds at every position. One
    vector b a head, zeros at first: the uniform mean. H·T parameters. O(T²·C) time, T·C numbers of state, the values of
    the past. Rows sum to 1.

    Args:
        n_embd: channels C.
        block_size: most tokens T of one call, and the number of distances.
        n_head: heads H, each with its own b; must divide n_embd.
    Raises:
        BadInput: n_embd not divisible by n_head.
    Source:
        Raffel et al., Exploring the limits of transfer learning (T5), 2020, section 2.1: a learned logit a head and
        distance. There it is added to affinities of queries and keys and distances share buckets; here it is alone.
    """

    about = About(
        formula="A = softmax(mask(b[t - s])), b learned",
        cost="O(T²·C)",
        state="T·C",
        rows_sum_to_one=True,
        data_dependent=False,
        source="Raffel et al., T5, 2020, section 2.1, without queries and keys",
    )

    def __init__(self, n_embd: int, block_size: int, *, n_head: int = 1) -> None:
        super().__init__(n_embd, block_size)
        self.head_size = head_size(n_embd, n_head)
        self.n_head = n_head
        self.affinities = nn.Parameter(torch.zeros(n_head, block_size))  # of distance 0, 1, …

    def rows(self, first: int, time: int, dtype: torch.dtype) -> Tensor:
        now = torch.arange(time, device=self.affinities.device)
        distance = now[first:, None] - now  # (R, T)
        affinities = self.affinities.to(dtype)[:, distance.clamp(min=0)]  # (H, R, T)
        return affinities.masked_fill(distance < 0, -torch.inf).softmax(-1)

    def loop(self, x: Tensor, v: Tensor) -> Tensor:
        y = []
        for t in range(v.shape[1]):
            affinities = self.affinities[:, : t + 1].flip(1)  # (H, t + 1), of distance t … 0
            shares = affinities.softmax(1).repeat_interleave(self.head_size, dim=0)  # (C, t + 1)
            y.append((shares.T * v[:, : t + 1]).sum(1))  # (B, C)
        return torch.stack(y, dim=1)
