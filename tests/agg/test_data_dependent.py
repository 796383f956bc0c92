"""Strategies whose weights are made from the tokens: their formulas, knobs and limits, beyond what the laws ask."""

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from trilab.agg import delta
from trilab.agg.alibi import AlibiAttention
from trilab.agg.attention import SelfAttention
from trilab.agg.base import Aggregation, Flops
from trilab.agg.delta import DeltaRule
from trilab.agg.gated import GatedLinearAttention
from trilab.agg.gru import GRU
from trilab.agg.linear_attention import LinearAttention
from trilab.agg.min_gru import MinGRU
from trilab.agg.retention import Retention
from trilab.errors import BadInput
from trilab.laws import Conditions, causality_perturbation, causality_prefix, finite_range, loop, stream, table
from trilab.ops import chunks

Make = Callable[[int, int], Aggregation]

CHUNKED: list[Make] = [
    partial(strategy, n_head=2) for strategy in (LinearAttention, Retention, GatedLinearAttention, DeltaRule)
]
ROTARY_AND_WINDOW: list[Make] = [
    partial(SelfAttention, n_head=2, dropout=0.1, window=window, rotary=rotary)
    for window, rotary in [(None, True), (1, False), (2, True), (3, False)]
]
EXTREME = Conditions(parameter_scales=(1.0, 1e5), input_scales=(1e4,), training=(True,))
PLAIN = Conditions(parameter_scales=(1.0,), input_scales=(1.0,), training=(False,))


def name_of(make: Make) -> str:
    assert isinstance(make, partial)
    knobs = [f"{key}={value}" for key, value in make.keywords.items() if key in ("window", "rotary")]
    return " ".join([make.func.__name__, *knobs])


def obeys(aggregation: Aggregation) -> None:
    verdicts = [law(aggregation, EXTREME) for law in (causality_prefix, causality_perturbation)]
    verdicts += [law(aggregation, PLAIN) for law in (table, loop, stream)]
    verdicts.append(finite_range(aggregation))
    assert all(verdict.passed for verdict in verdicts), "\n".join(str(verdict) for verdict in verdicts)


def in_float64(aggregation: Aggregation) -> Aggregation:
    return aggregation.double().eval()


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def identical(time: int, n_embd: int = 4) -> Tensor:
    """The same token again and again: weights then depend on positions alone."""
    return drawn(1, 1, n_embd).expand(1, time, n_embd)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


# The laws where the YAML's own setting does not reach


@pytest.mark.parametrize("make", ROTARY_AND_WINDOW, ids=name_of)
def test_attention_obeys_the_laws_with_every_window_and_rotary_positions(make: Make) -> None:
    obeys(make(4, 7))


@pytest.mark.parametrize("make", CHUNKED, ids=name_of)
def test_chunked_strategies_obey_the_laws_across_chunks(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (chunks, delta):
        monkeypatch.setattr(module, "CHUNK", 3)
    obeys(make(4, 7))


@pytest.mark.parametrize("make", CHUNKED, ids=name_of)
def test_chunks_of_the_real_size_give_the_table_and_its_gradients(make: Make) -> None:
    aggregation = in_float64(make(4, 150))
    x, v = drawn(2, 150, 4).requires_grad_(), drawn(2, 150, 4).requires_grad_()
    fast, slow = aggregation.mix(x, v), Aggregation.mix(aggregation, x, v)
    torch.testing.assert_close(fast, slow, rtol=1e-9, atol=1e-9)
    inputs = [x, v, *aggregation.parameters()]
    ours, theirs = (torch.autograd.grad(y.sin().sum(), inputs) for y in (fast, slow))
    torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-8)


def counted(aggregation: Aggregation, time: int) -> Flops:
    x = drawn(1, time, aggregation.n_embd).requires_grad_()
    # the counter does not know the fused kernels of attention, and the plain one does what they do, once
    with sdpa_kernel(SDPBackend.MATH):
        with FlopCounterMode(display=False) as forward:
            y = aggregation(x)
        with FlopCounterMode(display=False) as backward:
            y.sum().backward()
    return Flops(forward.get_total_flops(), backward.get_total_flops())


@pytest.mark.parametrize("make", [*CHUNKED[:2], *ROTARY_AND_WINDOW], ids=name_of)
def test_the_stated_flops_of_windows_and_chunks_are_the_counted_ones(make: Make) -> None:
    aggregation = make(4, 150).double()
    for time in (2, 65, 150):
        assert aggregation.flops(time) == counted(aggregation, time)


def test_the_counter_misses_the_sums_of_log_decays_and_the_triangular_solves_only() -> None:
    gated, rule = GatedLinearAttention(4, 150, n_head=2).double(), DeltaRule(4, 150, n_head=2).double()
    squares = 64**2 + 64**2 + 22**2  # of the chunks' lengths
    assert gated.flops(150) == counted(gated, 150) + Flops(2 * squares, 2 * squares)
    assert rule.flops(150) == counted(rule, 150) + Flops(2 * 2 * squares, 2 * 2 * squares)  # heads of size 2


# attention


@pytest.mark.parametrize("window", [1, 2, 3, 8])
def test_a_window_sees_this_token_and_the_ones_just_before_it(window: int) -> None:
    whole, part = SelfAttention(4, 8), SelfAttention(4, 8, window=window)
    part.load_state_dict(whole.state_dict())
    x = torch.randn(2, 8, 4)
    band = torch.ones(8, 8).tril().triu(1 - window)
    expected = whole.weights(x) * band
    torch.testing.assert_close(part.weights(x), expected / expected.sum(-1, keepdim=True))


@pytest.mark.parametrize(
    "make",
    [
        partial(SelfAttention, n_head=2),
        partial(SelfAttention, n_head=2, rotary=True),
        partial(SelfAttention, n_head=2, window=8, rotary=True),
        partial(SelfAttention, n_head=2, window=8, dropout=0.5),
        partial(AlibiAttention, n_head=2),
    ],
)
def test_attention_keeps_no_tensor_of_all_pairs_of_each_row_of_the_batch(make: Make) -> None:
    attention, time = make(4, 600), 600
    sizes = []
    with torch.autograd.graph.saved_tensors_hooks(lambda kept: sizes.append(kept.numel()) or kept, lambda kept: kept):
        attention(torch.randn(8, time, 4, requires_grad=True))
    assert max(sizes) < 8 * 2 * time * time / 4


def test_the_arithmetic_of_a_window_grows_with_the_text_and_not_with_its_square() -> None:
    attention = SelfAttention(4, 1600, window=8)
    assert attention.flops(1600).forward == pytest.approx(2 * attention.flops(800).forward, rel=0.01)


def test_dropout_acts_inside_the_blocks_of_a_window_and_keeps_the_mean() -> None:
    attention, x = SelfAttention(4, 8, dropout=0.5, window=3), torch.randn(1, 8, 4).expand(4000, 8, 4)
    whole, random = attention.eval()(x), attention.train()(x)
    assert not torch.allclose(random[0], random[1])
    torch.testing.assert_close(random.mean(0), whole[0], atol=0.1, rtol=0)


@pytest.mark.parametrize("rotary", [False, True])
def test_a_windowed_stream_goes_on_past_block_size_as_if_it_had_been_longer(rotary: bool) -> None:
    short, long = (in_float64(SelfAttention(4, size, n_head=2, window=3, rotary=rotary)) for size in (4, 30))
    short.load_state_dict(long.state_dict())
    x = drawn(2, 30, 4)
    state, outputs = short.init_state(x[:, 0]), []
    for t in range(30):
        y, state = short.step(x[:, t], state)
        outputs.append(y)
        assert sum(tensor[0].numel() for tensor in state) == short.state_size(t + 1) <= 2 * 2 * 4
    torch.testing.assert_close(torch.stack(outputs, 1), long(x))


@pytest.mark.parametrize("window", [None, 1, 3])
def test_attention_reaches_as_far_as_its_window(window: int | None) -> None:
    assert SelfAttention(4, 8, window=window).reach == window
    x = drawn(1, 8, 4).requires_grad_()
    (gradient,) = torch.autograd.grad(in_float64(SelfAttention(4, 8, window=window))(x)[:, -1].sum(), x)
    assert torch.equal(gradient[0].abs().sum(-1) > 0, torch.arange(8) >= 8 - (window or 8))


def test_rotary_weights_of_identical_tokens_depend_on_the_distance_alone_and_differ_by_it() -> None:
    plain, rotary = (in_float64(SelfAttention(8, 12, n_head=2, rotary=knob)) for knob in (False, True))
    x = 3 * identical(12, 8)
    uniform = torch.ones(12, 12, dtype=torch.float64).tril() / torch.arange(1, 13)[:, None]
    torch.testing.assert_close(plain.weights(x), uniform.expand(1, 2, 12, 12))
    logits = rotary.weights(x).log()
    relative = logits - logits.diagonal(dim1=-2, dim2=-1)[..., None]  # to the weight of the token itself
    for distance in range(1, 12):
        along = relative.diagonal(-distance, -2, -1)
        torch.testing.assert_close(along, along[..., :1].expand_as(along))
        assert along.abs().min() > 1e-6


def test_rotary_turns_each_pair_of_channels_by_its_own_speed() -> None:
    attention = in_float64(SelfAttention(4, 6, rotary=True, scaled=False))
    x = drawn(1, 6, 4)
    turns = torch.polar(torch.ones(6, 2).double(), torch.arange(6.0).double()[:, None] * torch.tensor([1.0, 0.01]))
    q, k = (torch.view_as_complex(part(x).view(6, 2, 2)) * turns for part in (attention.query, attention.key))
    affinities = (q @ k.mH).real.masked_fill(torch.ones(6, 6).triu(1).bool(), -torch.inf)
    torch.testing.assert_close(attention.weights(x)[0, 0], affinities.softmax(-1))


# alibi


def test_alibi_has_the_slopes_of_its_paper() -> None:
    logits = in_float64(AlibiAttention(8, 6, n_head=8)).weights(identical(6, 8)).log()
    for head in range(8):
        fall = logits[0, head].diagonal(-1) - logits[0, head].diagonal()[1:]  # of a token one further back
        torch.testing.assert_close(fall, torch.full_like(fall, -(0.5 ** (head + 1))))


# linear_attention


@pytest.mark.parametrize("sign", [-1, 1])
def test_linear_attention_rows_sum_to_one_however_negative_queries_and_keys_are(sign: int) -> None:
    attention = LinearAttention(4, 8)
    with torch.no_grad():
        for part in (attention.query, attention.key):
            part.weight.fill_(sign * 1e5)
    x = torch.rand(2, 8, 4) * 1e4
    assert ((attention.query(x) < -100) | (sign == 1)).all()
    torch.testing.assert_close(attention.weights(x).sum(-1), torch.ones(2, 1, 8))
    torch.testing.assert_close(attention.mix(x, torch.ones(2, 8, 4)), torch.ones(2, 8, 4))


def test_linear_attention_weighs_by_products_of_elu_plus_one() -> None:
    attention, x = in_float64(LinearAttention(4, 8)), drawn(2, 8, 4)
    q, k = (nn.functional.elu(part(x)) + 1 for part in (attention.query, attention.key))
    expected = (q @ k.mT).tril()
    torch.testing.assert_close(
        attention.weights(x)[:, 0], expected / expected.sum(-1, keepdim=True), rtol=1e-4, atol=1e-4
    )


# retention and gated


def test_retention_fades_at_the_fixed_rate_of_each_head() -> None:
    retention, x = in_float64(Retention(4, 8, n_head=2)), identical(8)
    with torch.no_grad():
        weights, q, k = retention.weights(x), retention.query(x)[0, 0], retention.key(x)[0, 0]
    for head, rate in enumerate([1 - 1 / 32, 1 - 1 / 64]):
        channels = slice(2 * head, 2 * head + 2)
        here = q[channels] @ k[channels] / math.sqrt(2)
        torch.testing.assert_close(weights[0, head, 7].flip(0), here * rate ** torch.arange(8, dtype=torch.float64))


@pytest.mark.parametrize("bias", [-1e5, 1e5])
def test_a_closed_gate_keeps_the_own_token_only_and_an_open_one_everything(bias: float) -> None:
    gated, x = in_float64(GatedLinearAttention(4, 8)), drawn(2, 8, 4)
    with torch.no_grad():
        gated.gate.bias.fill_(bias)
    kept = torch.tril if bias > 0 else lambda table: table * torch.eye(8)
    torch.testing.assert_close(gated.weights(x)[:, 0], kept(gated.query(x) @ gated.key(x).mT / 2))


def test_gates_begin_with_memories_from_a_few_tokens_to_the_whole_block() -> None:
    gated = GatedLinearAttention(8, 256, n_head=4)
    decays = gated.gate.bias.sigmoid()
    torch.testing.assert_close(1 / (1 - decays), torch.tensor([5.0, 17.0, 65.0, 257.0]))


# min_gru


@pytest.mark.parametrize(("bias", "share"), [(1e5, 1.0), (-1e5, 0.0), (0.0, 0.5)])
def test_min_gru_moves_to_the_new_value_as_far_as_its_gate_says(bias: float, share: float) -> None:
    gru, v = in_float64(MinGRU(4, 8)), drawn(2, 8, 4)
    with torch.no_grad():
        gru.gate.weight.zero_()
        gru.gate.bias.fill_(bias)
    y = gru(v)
    torch.testing.assert_close(y[:, 0], share * v[:, 0])
    torch.testing.assert_close(y[:, 1:], (1 - share) * y[:, :-1] + share * v[:, 1:])


def test_min_gru_has_a_table_a_channel_and_what_its_rows_lack_to_one_is_what_is_left_of_zero() -> None:
    gru, x = in_float64(MinGRU(4, 8)), drawn(2, 8, 4)
    weights, z = gru.weights(x), gru.gate(x).sigmoid()
    assert weights.shape == (2, 4, 8, 8)
    torch.testing.assert_close(weights.sum(-1), 1 - (1 - z).cumprod(1).mT)


# delta


def rewriting(n_embd: int) -> Aggregation:
    """Queries ask for what the key of the same token wrote; β is 1."""
    rule = DeltaRule(n_embd, 8)
    with torch.no_grad():
        nn.init.eye_(rule.query.weight)
        nn.init.eye_(rule.key.weight)
        rule.rate.bias.fill_(1e5)
    return in_float64(rule)


def test_the_delta_rule_replaces_what_a_key_gave_and_leaves_other_keys_alone() -> None:
    rule, v = rewriting(4), drawn(1, 8, 4)
    torch.testing.assert_close(rule.mix(identical(8), v), v)  # a sum of all would be v.cumsum(1)
    keys = torch.eye(4, dtype=torch.float64)[[0, 1, 2, 0, 1, 3, 2, 0]][None]
    torch.testing.assert_close(rule.mix(keys, v), v)
    _, (memory,) = rule.mix_step(keys[:, 0], v[:, 0], rule.init_state(keys[:, 0]))
    _, (memory,) = rule.mix_step(keys[:, 1], v[:, 1], (memory,))
    torch.testing.assert_close(memory[0, 0, :2], v[0, :2])


@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_the_delta_rule_asks_by_direction_not_by_length(scale: float) -> None:
    rule, x, v = in_float64(DeltaRule(4, 8)), drawn(2, 8, 4), drawn(2, 8, 4)
    with torch.no_grad():
        rule.rate.weight.zero_()
    torch.testing.assert_close(rule.mix(scale * x, v), rule.mix(x, v))


def test_the_delta_rule_has_finite_gradients_at_keys_of_zero() -> None:
    x = torch.zeros(1, 8, 4, requires_grad=True)
    DeltaRule(4, 8)(x).sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()


# gru


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_gru_is_the_one_of_torch_over_the_values(dtype: torch.dtype) -> None:
    aggregation = GRU(4, 8).to(dtype)
    x = torch.randn(2, 8, 4, dtype=dtype)
    assert torch.equal(aggregation(x), aggregation.gru(x)[0])
    assert not aggregation.has_weights


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_gru_in_half_precision_rounds_its_outputs_only(dtype: torch.dtype) -> None:
    half = GRU(4, 64).to(dtype)
    wide = GRU(4, 64)
    wide.load_state_dict(half.state_dict())
    x = torch.randn(2, 64, 4).to(dtype)
    assert torch.equal(half(x), wide(x.float()).to(dtype))


# knobs


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (partial(SelfAttention, window=0), r"agg.window=0 must be at least 1 \(tokens seen, .*\), or null for all"),
        (partial(SelfAttention, n_head=4, rotary=True), "model.n_embd / agg.n_head = 4 / 4 = 1, must be even"),
        (partial(AlibiAttention, dropout=1.0), r"agg.dropout=1.0 must lie in \[0, 1\)"),
        *(
            (partial(strategy, n_head=3), "model.n_embd=4 is not divisible by agg.n_head=3")
            for strategy in (AlibiAttention, LinearAttention, Retention, GatedLinearAttention, DeltaRule)
        ),
    ],
)
def test_a_knob_that_cannot_work_is_refused_with_its_value(make: Make, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        make(4, 8)
