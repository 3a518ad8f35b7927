"""Completions of tiny models that are spread over two ranks, whose completions end at different steps."""

from __future__ import annotations

import copy
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from problems import seeded
from tiny_models import SYMBOLS, masks, tiny
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from swor.integrations.transformers import (
    ancestral_completions,
    beam_completions,
    completion_log_probs,
    sample_completions,
)

RANKS, LENGTH, K = 2, 6, 3
DRAWS = [sample_completions, ancestral_completions, beam_completions]


def blocks(name: str, model: nn.Module) -> list[nn.Module]:
    if name == "gpt2":
        return list(model.transformer.h)
    return list(
        model.model.layers if name == "llama" else [*model.encoder.block, *model.decoder.block]
    )


def fsdp(name: str) -> nn.Module:
    """Every block, and then the rest, spread over the ranks."""
    model = copy.deepcopy(tiny(name))
    mesh = init_device_mesh("cpu", (RANKS,))
    for block in blocks(name, model):
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def zero3(name: str) -> nn.Module:
    """Every module gathers its own parameters when it is called, as ZeRO-3 of DeepSpeed does."""

    def gather(module: nn.Module, args: object) -> None:
        for parameter in module.parameters(recurse=False):
            dist.all_reduce(parameter.detach().clone())  # of its size: a wrong order is an error

    model = copy.deepcopy(tiny(name))
    for number, parameter in enumerate(model.parameters()):
        parameter.ds_id = number
    for module in model.modules():
        module.register_forward_pre_hook(gather)
    return model


def data_parallel(name: str) -> nn.Module:
    return DistributedDataParallel(copy.deepcopy(tiny(name)))


KINDS: dict[str, Callable[[str], nn.Module]] = {
    "fully_shard": fsdp,
    "zero3": zero3,
    "data parallel": data_parallel,
}
NAMES = ["gpt2", "llama", "t5"]


def early(rank: int):
    """Completions of the first rank end after a token, or two."""

    def processor(tokens: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        if rank:
            return logits.index_fill(-1, torch.tensor([0]), -10.0)
        return logits.index_fill(-1, torch.arange(1, SYMBOLS), -6.0)

    return processor


def drawn(model: nn.Module, name: str, rank: int, draw: Callable, **given) -> torch.Tensor:
    ids, mask = (x[rank : rank + 1] for x in masks(name))
    random = {} if draw is beam_completions else {"generator": seeded(rank)}
    return draw(
        model,
        ids,
        mask,
        k=K,
        max_new_tokens=LENGTH,
        logits_processor=early(rank),
        **random,
        **given,
    )


def full(gradient: torch.Tensor) -> torch.Tensor:
    return gradient.full_tensor() if isinstance(gradient, DTensor) else gradient


def found(model: nn.Module, name: str, rank: int) -> dict:
    """What is drawn without gradient, and the gradient of what is drawn with it."""
    with torch.no_grad():
        samples = {draw.__name__: drawn(model, name, rank, draw) for draw in DRAWS}
    values = {key: (x.value, x.log_p) for key, x in samples.items()}
    ids, mask = (x[rank : rank + 1] for x in masks(name))
    model.zero_grad()
    sample = drawn(model, name, rank, sample_completions)
    scored = completion_log_probs(model, ids, sample.value, attention_mask=mask)
    (sample.log_p + scored.square()).sum().backward()
    gradient = {n.removeprefix("module."): full(p.grad) for n, p in model.named_parameters()}
    return values | {"with gradient": (sample.value, sample.log_p.detach()), "gradient": gradient}


def work(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    store = f"file://{folder / 'store'}"
    wait = timedelta(seconds=60)
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=RANKS, timeout=wait)
    results = {
        f"{kind} {name}": found(make(name), name, rank)
        for kind, make in KINDS.items()
        for name in NAMES
    }
    torch.save(results, folder / f"rank-{rank}.pt")
    dist.destroy_process_group()


def run(folder: Path) -> list[dict]:
    """What each rank found."""
    mp.spawn(work, (folder,), nprocs=RANKS)
    return [torch.load(folder / f"rank-{rank}.pt", weights_only=True) for rank in range(RANKS)]
