"""Softmax attention without a table of all pairs: Σ_s softmax_s(scale · q_t · k_s + bias) v_s."""

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from trilab.ops.causal_attention import causal_attention, serves

LEAST_ROWS = 32  # queries of a block under a narrower window: smaller blocks are no faster


def attention(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None, *, scale: float, dropout: float = 0.0
) -> Tensor:
    """Every query over the keys that it can see, by fused kernels: values and gradients in O(T) memory.

    They are torch's, but for causal attention on a CPU where one of ours is faster (`causal_attention`). Where a
    gradient is wanted on a CPU it is computed in float32, and under autocast in the dtype of q, all the same: torch's
    fused gradient is slow in half precision. With dropout there is no fused kernel on CPUs: the pairs, (B, H, R, S),
    are then kept for the gradient.

    Args:
        q: (B, H, R, D), the last R of S positions if there is no bias and R > 1; then R = S.
        k, v: (B, H, S, D).
        bias: (R, S) or (1, H, R, S), added to the affinities, -inf where a query must not look; or booleans, true where
            it may. None: a single query sees all, more of them (R = S) what is not later.
        scale: of the products of queries and keys.
        dropout: share of weights set to zero, the rest scaled up.
    Returns:
        (B, H, R, D).
    """
    if _better_in_float32(q, k, v):
        bias = bias.float() if bias is not None and bias.is_floating_point() else bias
        return attention(q.float(), k.float(), v.float(), bias, scale=scale, dropout=dropout).to(q.dtype)
    causal = bias is None and q.shape[2] > 1
    if causal and not dropout and serves(q, k, v, q.shape[2]):
        return causal_attention(q, k, v, q.shape[2], scale=scale)
    if not (q.device.type == "cpu" and torch.is_autocast_enabled("cpu")):
        return scaled_dot_product_attention(q, k, v, bias, dropout, causal, scale=scale)
    with torch.autocast("cpu", enabled=False):
        return scaled_dot_product_attention(q, k, v, bias, dropout, causal, scale=scale)


def window_attention(q: Tensor, k: Tensor, v: Tensor, size: int, *, scale: float, dropout: float = 0.0) -> Tensor:
    """Every query over its own key and the size - 1 before it, O(T·(size + LEAST_ROWS)) time and, with dropout, memory.

    By `causal_attention` where that serves, O(T·size) then. Else in blocks of queries, each over the keys of the block
    and the size - 1 before it: no block but the first reaches back past the beginning.

    Args:
        q, k, v: (B, H, T, D).
        size: keys seen, at least 1.
        scale, dropout: as for `attention`.
    Returns:
        (B, H, T, D).
    Source:
        Beltagy, Peters, Cohan, Longformer, 2020, section 3.1, without its global tokens.
    """
    time = q.shape[2]
    if time <= size:
        return attention(q, k, v, scale=scale, dropout=dropout)
    if _better_in_float32(q, k, v):
        return window_attention(q.float(), k.float(), v.float(), size, scale=scale, dropout=dropout).to(q.dtype)
    if not dropout and serves(q, k, v, size):
        return causal_attention(q, k, v, size, scale=scale)
    rows, rest = _blocks(time, size)
    start = q[:, :, :rows]
    band = q.new_ones(start.shape[2], start.shape[2], dtype=torch.bool).tril().triu(1 - size)
    y = attention(start, k[:, :, :rows], v[:, :, :rows], band, scale=scale, dropout=dropout)
    if not rest:
        return y
    filling = rows + rest * rows - time  # of the last block
    queries = torch.unflatten(pad(q[:, :, rows:], (0, 0, 0, filling)), 2, (rest, rows)).flatten(0, 1)
    keys, values = (
        pad(part[:, :, rows + 1 - size :], (0, 0, 0, filling)).flatten(0, 1).unfold(1, rows + size - 1, rows).mT
        for part in (k, v)
    )  # (B·H, rest, rows + size - 1, D), blocks that overlap
    band = q.new_ones(rows, rows + size - 1, dtype=torch.bool).triu().tril(size - 1)
    later = attention(queries, keys, values, band, scale=scale, dropout=dropout)  # (B·H, rest, rows, D)
    later = later.reshape(*q.shape[:2], rest * rows, -1)[:, :, : time - rows]
    return torch.cat([y, later], 2)


def window_attention_pairs(time: int, size: int) -> int:
    """Pairs of queries and keys that `window_attention` multiplies, in blocks; the kernel fewer."""
    if time <= size:
        return time * time
    rows, rest = _blocks(time, size)
    return min(rows, time) ** 2 + rest * rows * (rows + size - 1)


def _better_in_float32(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether a gradient is wanted that torch's kernels take several times as long for in half precision."""
    trained = torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad)
    return trained and q.is_cpu and q.dtype in (torch.bfloat16, torch.float16)


def _blocks(time: int, size: int) -> tuple[int, int]:
    """Queries of a block, and how many blocks follow the first."""
    rows = max(size, LEAST_ROWS)
    return rows, max(0, -(-time // rows) - 1)
