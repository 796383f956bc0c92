"""A model whose weights are spread over the processes (FSDP2): how they are, and how they come together again."""

import copy
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

import torch
from lightning.pytorch.core.optimizer import LightningOptimizer
from lightning.pytorch.strategies import ModelParallelStrategy
from lightning.pytorch.strategies.strategy import Strategy
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, set_model_state_dict
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import Optimizer

from trilab.errors import BadInput
from trilab.model import LanguageModel

_WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)


def shard(model: LanguageModel, mesh: DeviceMesh) -> None:
    """Spread the weights over the processes of a mesh: each block's, then those around the blocks.

    A process then holds 1/N of each parameter, and a block's whole ones only while it computes with them.

    Raises:
        BadInput: one parameter has two names (tied weights); both are given.
    """
    first: dict[nn.Parameter, str] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        other = first.setdefault(parameter, name)
        if other != name:
            raise BadInput(
                f"trainer.strategy=fsdp: the parameters {other} and {name} are one (tied weights), which cannot be "
                "spread over processes. Use trainer.strategy=ddp."
            )
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)


def skeleton(model: LanguageModel) -> LanguageModel:
    """The same model with room for no weights, to be filled by `gather`."""
    hollow = {id(p): nn.Parameter(torch.empty_like(p, device="meta"), p.requires_grad) for p in model.parameters()}
    return copy.deepcopy(model, hollow)


def gather(model: LanguageModel, into: LanguageModel) -> bool:
    """Bring a spread model's weights together on the CPU of the first process; all processes must call this.

    Args:
        model: what `shard` has spread.
        into: its `skeleton`.
    Returns:
        Whether this process has them now.
    """
    weights = get_model_state_dict(model, options=_WHOLE)
    if weights:
        into.load_state_dict(weights, assign=True)
    return bool(weights)


class Sharded(ModelParallelStrategy):
    """Lightning's strategy for spread models, with the checkpoints of an unspread one.

    Lightning numbers a spread optimizer's parameters as the model does, but an ordinary one's as its groups do: with
    two groups, weights would go on with one another's moments. Here both are numbered by groups, and all reading and
    writing goes through the checkpoint plugin.
    """

    @property
    def lightning_restore_optimizer(self) -> bool:
        """Lightning's part of it, as for any strategy."""
        return True

    def load_checkpoint(self, checkpoint_path: Any, weights_only: bool | None = None) -> dict[str, Any]:
        """The whole checkpoint, read by every process."""
        return Strategy.load_checkpoint(self, checkpoint_path, weights_only)

    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        """Each process takes its part."""
        assert self.lightning_module is not None
        options = StateDictOptions(full_state_dict=True, strict=strict)
        set_model_state_dict(self.lightning_module, checkpoint["state_dict"], options=options)

    def optimizer_state(self, optimizer: Optimizer | LightningOptimizer) -> dict[str, Any]:
        """What the optimizer's state_dict would be on one process; the first has the tensors, the others empty ones."""
        state = optimizer.state_dict()
        return {**state, "state": {key: self._whole(values) for key, values in state["state"].items()}}

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        """Each process takes its part."""
        for optimizer, state in zip(self.optimizers, checkpoint["optimizer_states"], strict=True):
            saved = chain.from_iterable(group["params"] for group in state["param_groups"])
            parameters = dict(zip(saved, _parameters(optimizer), strict=True))
            shares = {key: _share(values, parameters[key]) for key, values in state["state"].items()}
            optimizer.load_state_dict({**state, "state": shares})

    def _whole(self, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        whole = {}
        for name, value in values.items():
            full = value.full_tensor() if isinstance(value, DTensor) else value
            whole[name] = full.cpu() if self.is_global_zero else full.new_empty(0)
        return whole


def _parameters(optimizer: Optimizer) -> Iterator[Tensor]:
    return chain.from_iterable(group["params"] for group in optimizer.param_groups)


def _share(values: Mapping[str, Tensor], parameter: Tensor) -> dict[str, Tensor]:
    """This process's share of an optimizer's values for a parameter: of those that have its shape."""
    assert isinstance(parameter, DTensor)
    return {
        name: distribute_tensor(
            value.to(parameter.device), parameter.device_mesh, parameter.placements, src_data_rank=None
        )
        if value.shape == parameter.shape
        else value
        for name, value in values.items()
    }
