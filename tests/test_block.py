"""A block: what is around the aggregation, and that each part of it can be left out."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from trilab.agg.base import Aggregation
from trilab.block import MLP, Block


class Doubled(Aggregation):
    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        return 2 * v


def block(**settings: Any) -> Block:
    off = {"norm": False, "residual": False, "mlp": False, "mlp_width": 4, "dropout": 0.0}
    return Block(Doubled(4, 1000), **{**off, **settings})


@pytest.fixture
def x() -> Tensor:
    return torch.randn(2, 8, 4, generator=torch.Generator().manual_seed(0))


def test_a_block_with_everything_off_is_its_aggregation(x: Tensor) -> None:
    bare = block()
    assert torch.equal(bare(x), 2 * x)
    assert not list(bare.parameters())


def test_a_residual_adds_the_input(x: Tensor) -> None:
    assert torch.equal(block(residual=True)(x), x + 2 * x)


def test_the_norm_stands_before_the_aggregation_and_not_in_the_residual(x: Tensor) -> None:
    normed = nn.functional.layer_norm(x, (4,))
    assert torch.allclose(block(norm=True)(x), 2 * normed)
    assert torch.allclose(block(norm=True, residual=True)(x), x + 2 * normed)


def test_the_mlp_follows_the_aggregation_with_its_own_norm_and_residual(x: Tensor) -> None:
    whole = block(norm=True, residual=True, mlp=True)
    assert whole.mlp is not None
    middle = x + 2 * nn.functional.layer_norm(x, (4,))
    assert torch.allclose(whole(x), middle + whole.mlp(nn.functional.layer_norm(middle, (4,))))
    plain = block(mlp=True)
    assert plain.mlp is not None
    assert torch.equal(plain(x), plain.mlp(2 * x))


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({}, set()),
        ({"norm": True}, {"norm_agg"}),
        ({"mlp": True}, {"mlp.expand", "mlp.contract"}),
        ({"mlp": True, "mlp_width": 0}, {"mlp.expand"}),
        ({"mlp": True, "norm": True}, {"norm_agg", "norm_mlp", "mlp.expand", "mlp.contract"}),
    ],
)
def test_a_part_that_is_off_has_no_parameters(settings: dict[str, Any], names: set[str]) -> None:
    assert {name.rpartition(".")[0] for name, _ in block(**settings).named_parameters()} == names


@pytest.mark.parametrize("mlp", [False, True])
def test_dropout_zeroes_its_share_of_each_part_s_outputs_in_training_only(mlp: bool) -> None:
    torch.manual_seed(0)
    dropping = block(dropout=0.25, mlp=mlp)
    if dropping.mlp is not None:  # an MLP that gives ones, whatever comes in
        dropping.mlp = nn.Sequential(nn.Linear(4, 4))
        nn.init.zeros_(dropping.mlp[0].weight)
        nn.init.ones_(dropping.mlp[0].bias)
    ones = torch.ones(16, 1000, 4)
    dropped = dropping(ones)
    assert abs((dropped == 0).float().mean().item() - 0.25) < 0.01
    assert torch.allclose(dropped[dropped != 0], torch.tensor(1.0 if mlp else 2.0) / 0.75)
    dropping.eval()
    assert torch.equal(dropping(ones), ones if mlp else 2 * ones)


def test_dropout_leaves_the_residual_alone() -> None:
    torch.manual_seed(0)
    out = block(dropout=0.5, residual=True)(torch.ones(4, 100, 4))
    assert set(out.unique().tolist()) == {1.0, 5.0}  # 1, or 1 + 2 / 0.5


def test_the_mlp_is_linear_relu_linear_and_of_the_width_asked_for(x: Tensor) -> None:
    mlp = MLP(4, 3)
    assert mlp.expand.weight.shape == (12, 4)
    assert torch.equal(mlp(x), mlp.contract(mlp.expand(x).clamp(min=0)))


def test_an_mlp_of_width_0_is_one_linear_and_relu(x: Tensor) -> None:
    mlp = MLP(4, 0)
    assert [p.shape for p in mlp.parameters()] == [(4, 4), (4,)]
    assert torch.equal(mlp(x), mlp.expand(x).clamp(min=0))


@pytest.mark.filterwarnings("ignore:.torch.jit.script_method:DeprecationWarning")  # torch's own
def test_compiled_the_mlp_keeps_no_mask_beside_what_relu_gives(x: Tensor) -> None:
    mlp = MLP(x.shape[-1], 4)
    y = torch.compile(mlp, backend="aot_eager_decomp_partition")(x.requires_grad_())
    assert {kept.dtype for kept in y.grad_fn.saved_tensors} == {torch.float32}
