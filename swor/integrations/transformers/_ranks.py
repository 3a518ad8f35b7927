"""Models that are spread over ranks: every call of such a model is a call by all ranks."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Ranks:
    """Ranks that must call a model equally often, whenever their completions end.

    Args:
        groups: their process groups; several if the weights are spread over a mesh, one per axis.
        device: where the flags are that they exchange.
    """

    def __init__(self, groups: list[dist.ProcessGroup | None], device: torch.device) -> None:
        self.groups, self.device = groups, device

    def any(self, flag: bool) -> bool:
        """Return whether the flag is true on any of the ranks, all of which must call this together."""
        found = torch.tensor(int(flag), device=self.device)
        for group in self.groups:
            dist.all_reduce(found, op=dist.ReduceOp.MAX, group=group)
        return bool(found)


def ranks_of(model: nn.Module, device: torch.device) -> Ranks | None:
    """Return the ranks that share the weights of a model, or None if it can be called by itself.

    It knows ``fully_shard`` and tensor parallelism, the older FSDP, ZeRO-3 of DeepSpeed, and
    ``DistributedDataParallel``, which sends buffers around in every call.
    """
    if not (dist.is_available() and dist.is_initialized()):
        return None
    groups = list(dict.fromkeys([*_mesh_groups(model), *_wrapper_groups(model)]))
    groups = [group for group in groups if dist.get_world_size(group) > 1]
    return Ranks(groups, device) if groups else None


def _mesh_groups(model: nn.Module) -> Iterator[dist.ProcessGroup]:
    """Yield the groups of the meshes that parameters are spread over."""
    from torch.distributed.tensor import DTensor

    for parameter in model.parameters():
        if isinstance(parameter, DTensor):
            yield from parameter.device_mesh.get_all_groups()


def _wrapper_groups(model: nn.Module) -> Iterator[dist.ProcessGroup | None]:
    """Yield the groups of wrappers with calls of their own; None for the group of all ranks."""
    from torch.distributed.fsdp import FullyShardedDataParallel

    for module in model.modules():
        if isinstance(module, DistributedDataParallel | FullyShardedDataParallel):
            yield module.process_group
    if any(hasattr(parameter, "ds_id") for parameter in model.parameters()):  # ZeRO-3
        yield None
