"""`matmul`: the prefix mean as one product with a lower-triangular matrix."""

import torch
from torch import Tensor

from trilab.agg.base import About, Aggregation, accumulator, lower_triangle


class MatmulMean(Aggregation):
    """Average of everything seen so far, by a matrix: y = A @ v with A[t, s] = 1 / (t + 1) for s ≤ t, else 0.

    The lower triangle of ones, each row divided by its sum. All positions of all batch rows are one product. No
    parameters. O(T²·C) time, on the fastest unit a machine has.

    Args:
        n_embd: channels C.
        block_size: most tokens T of one call.
    Source:
        Karpathy, Let's build GPT, 47:11-54:42 (version 2).
    """

    about = About(
        formula="A = tril / row sums",
        cost="O(T²·C)",
        state="T·C",
        rows_sum_to_one=True,
        data_dependent=False,
        source="Karpathy, Let's build GPT, 47:11-54:42 (version 2)",
    )

    tril: Tensor

    def __init__(self, n_embd: int, block_size: int) -> None:
        super().__init__(n_embd, block_size)
        self.register_buffer("tril", lower_triangle(block_size), persistent=False)

    def weights(self, x: Tensor) -> Tensor:
        time = x.shape[1]
        tril = self.tril[:time, :time].to(accumulator(x.dtype))
        return (tril / tril.sum(1, keepdim=True))[None, None]

    def loop(self, x: Tensor, v: Tensor) -> Tensor:
        y = []
        for t in range(v.shape[1]):
            y_t = torch.zeros_like(v[:, t])  # (B, C)
            for s in range(t + 1):
                y_t = y_t + v[:, s] / (t + 1)
            y.append(y_t)
        return torch.stack(y, dim=1)
