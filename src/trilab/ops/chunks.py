"""Linear attention with decay, chunk by chunk: y_t = Σ_{s ≤ t} (a_{s+1} ⋯ a_t) (q_t · k_s) v_s."""

import torch
from torch import Tensor

CHUNK = 64  # tokens compared pair by pair; what lies further back is one matrix a head


def linear_attention(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor) -> Tensor:
    """y_t = Σ_{s ≤ t} exp(log a_{s+1} + … + log a_t) (q_t · k_s) v_s for all t at once.

    Inside a chunk every pair is compared, as in the table; what comes before it is one (D, E) matrix, carried from
    chunk to chunk. O(T·(CHUNK·(D + E) + D·E)) time a head. Nothing is divided by: decays may be as small as they like.

    Args:
        q, k: (B, H, T, D), float32 or wider.
        v: (B, H, T, E).
        log_decay: (B|1, H|1, T), log a_t ≤ 0; zeros for none.
    Returns:
        (B, H, T, E).
    Source:
        Yang, Wang, Shen, Panda, Kim, Gated linear attention transformers with hardware-efficient training, 2024.
    """
    S: Tensor | None = None  # (B, H, D, E), the past as the last token before this chunk saw it
    y: list[Tensor] = []
    for queries, keys, values, log in zip(*(torch.split(part, CHUNK, 2) for part in (q, k, v, log_decay)), strict=True):
        decay = segment_sums(log).exp()  # (B|1, H|1, L, L)
        since_start = decay[..., :1] * log[..., :1, None].exp()  # (B|1, H|1, L, 1), the first token's factor too
        here = (queries @ keys.mT * decay) @ values
        y.append(here if S is None else here + since_start * (queries @ S))
        if len(y) * CHUNK < q.shape[2]:
            left = (keys * decay[..., -1, :, None]).mT @ values  # what the chunk's last token still sees of it
            S = left if S is None else since_start[..., -1:, :] * S + left
    return torch.cat(y, 2)


def linear_attention_loop(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor) -> Tensor:
    """The slow truth of `linear_attention`, one token after another."""
    past, y = q.new_zeros(*q.shape[:2], q.shape[3], v.shape[3]), []
    for t in range(q.shape[2]):
        now = slice(t, t + 1)
        out, past = linear_attention_step(q[:, :, now], k[:, :, now], v[:, :, now], log_decay[:, :, now], past)
        y.append(out)
    return torch.cat(y, 2)


def linear_attention_step(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
    """One more token: S_t = a_t S_{t-1} + k_t v_tᵀ, y_t = q_t S_t.

    Args:
        q, k, v, log_decay: as for `linear_attention`, with T = 1.
        past: (B, H, D, E), S_{t-1}; it is not changed.
    Returns:
        y_t (B, H, 1, E) and S_t.
    """
    past = log_decay.exp()[..., None] * past + k.mT @ v
    return q @ past, past


def linear_attention_flops(time: int, keys: int, values: int) -> int:
    """Of the products of `linear_attention` forward, one head: D keys and E values of T tokens; backward is twice that.

    A multiplication and an addition are two.
    """
    lengths = chunk_lengths(time)
    inside = sum(length * length * (keys + values) for length in lengths)
    across = sum(lengths[1:]) + sum(lengths[:-1])  # tokens that look back, tokens that are carried on
    return 2 * (inside + across * keys * values)


def chunk_lengths(time: int) -> list[int]:
    """Tokens of each chunk; the last one may be shorter."""
    return [min(CHUNK, time - start) for start in range(0, time, CHUNK)]


def segment_sums(x: Tensor) -> Tensor:
    """x_{s+1} + … + x_t for every pair s ≤ t (row t, column s), -inf above the diagonal.

    Each is summed by itself: a difference of two running sums would lose a small sum beside large ones. The -inf comes
    before any exp, so that a sum over the future can neither overflow nor bring inf · 0 into the gradient.

    Args:
        x: (…, T).
    Returns:
        (…, T, T).
    Source:
        Dao, Gu, Transformers are SSMs, 2024: `segsum`.
    """
    time = x.shape[-1]
    tril = torch.ones(time, time, dtype=torch.bool, device=x.device).tril()
    terms = x[..., None].masked_fill(~tril.tril(-1), 0)  # (…, T, T): x_r in row r of every column s < r
    return terms.cumsum(-2).masked_fill(~tril, -torch.inf)
