"""What a model is wrapped in: adapters, compilers, and wrappers that spread it over ranks.

If a model is spread over ranks, all of them have to take part in every call of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# Of torch.compile; of data parallelism and of DeepSpeed; of the first FSDP.
INSIDE = ("_orig_mod", "module", "_fsdp_wrapped_module")


def underlying(model: nn.Module) -> PreTrainedModel:
    """Return the model inside all wrappers, which has the settings and whose ``forward`` names its arguments.

    Read settings from it, but call the wrapped model: a direct call would bypass adapters and hooks.
    """
    inside: Any = model
    while True:
        if hasattr(inside, "get_base_model"):
            check_adapter(inside)
            inside = inside.get_base_model()
        elif wrappers := [name for name in INSIDE if name in getattr(inside, "_modules", {})]:
            inside = inside.get_submodule(wrappers[0])
        else:
            base: PreTrainedModel = inside
            return base


def check_adapter(model: Any) -> None:
    """Check that an adapter acts alike on a whole sequence and on one that is extended token by token."""
    config = model.active_peft_config
    if config.is_prompt_learning:
        raise TypeError(
            f"the adapter {model.active_adapter!r} is of type {config.peft_type.value}, which puts "
            "virtual tokens before the input of every call; expected an adapter of the weights, such "
            "as LoRA, with which completions can be extended by a cache."
        )
    if getattr(config, "alora_invocation_tokens", None):
        raise TypeError(
            f"the adapter {model.active_adapter!r} has alora_invocation_tokens, which it looks for in "
            "the input of every call; expected an adapter that is always on, such as plain LoRA, "
            "with which completions can be extended by a cache."
        )


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Disable dropout, which would change the distribution in every step."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


class Ranks:
    """Ranks that must call a model equally often, whenever their completions end."""

    def __init__(self, groups: list[dist.ProcessGroup | None], device: torch.device) -> None:
        self.groups = groups  # several if the weights are spread over a mesh, one per axis
        self.device = device

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
