"""What the ranks of the tests on several processes do; each writes what it got to a file."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import swor
from reproduction.harness.processes import average
from reproduction.harness.task import seeded
from swor.samplers.sharded import gumbel_top_k_sharded

SIZES = {2: (5, 200), 4: (3, 0, 130, 1)}  # uneven, an empty one, and one smaller than k + 1
SHAPES = {"plain": (), "batch": (2, 3), "empty": (0,)}
LARGE, SEED = 1500, 3


def all_logits(name: str, total: int) -> torch.Tensor:
    """The logits of all ranks; far from 0, with masked outcomes."""
    noise = torch.Generator().manual_seed(len(name))
    logits = torch.randn(*SHAPES[name], total, dtype=torch.float64, generator=noise)
    return torch.where(torch.arange(total) % 4 == 1, -torch.inf, 2.0 * logits + 700.0)


def cost(value: torch.Tensor) -> torch.Tensor:
    return (0.7 * value.double()).sin()


def samples(rank: int, sizes: tuple[int, ...]) -> dict[str, dict[str, torch.Tensor]]:
    """A sample of every shape, and the gradient of a loss by the shard of this rank."""
    found = {}
    for name in SHAPES:
        shard = all_logits(name, sum(sizes)).split(sizes, dim=-1)[rank].clone().requires_grad_()
        generator = torch.Generator().manual_seed(SEED)  # the same on all ranks
        drawn = gumbel_top_k_sharded(shard, 4, generator=generator)
        swor.unordered_set(drawn).loss(cost(drawn.value), baseline=0.0).sum().backward()
        fields = {n: getattr(drawn, n).detach() for n in ("value", "log_p", "log_rest", "kappa")}
        found[name] = fields | {"gradient": shard.grad}
    return found


def errors(rank: int, sizes: tuple[int, ...]) -> dict[str, str]:
    """The messages of calls that cannot be answered; all ranks raise, so none waits for another."""
    shard = all_logits("plain", sum(sizes)).split(sizes)[rank]
    possible = int((all_logits("plain", sum(sizes)) > -torch.inf).sum())
    broken = torch.full_like(shard, torch.nan) if rank == 0 else shard
    masked = torch.full_like(shard, -torch.inf)
    calls = {
        "support": (shard, possible + 1),
        "outcomes": (shard, 1000),
        "nan": (broken, 2),
        "masked": (masked, 1),
        "k": (shard, 0),
    }
    found = {}
    for name, (logits, k) in calls.items():
        try:
            gumbel_top_k_sharded(logits, k)
        except ValueError as error:
            found[name] = str(error)
    return found


def large(rank: int, ranks: int) -> dict[str, torch.Tensor]:
    """Shards so large that each races in blocks, in half precision."""
    noise = torch.Generator().manual_seed(0)
    logits = torch.randn(ranks * LARGE, generator=noise).half()
    drawn = gumbel_top_k_sharded(logits.split(LARGE)[rank], 5)
    return {"value": drawn.value, "log_p": drawn.log_p, "log_rest": drawn.log_rest}


def of_a_mesh(rank: int, ranks: int) -> dict[str, torch.Tensor]:
    """Logits that are a DTensor, and the gradient by the whole of it."""
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor, init_device_mesh

    mesh = init_device_mesh("cpu", (ranks,))
    whole = torch.randn(2, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    logits = distribute_tensor(whole, mesh, [Shard(1)]).requires_grad_()
    drawn = gumbel_top_k_sharded(logits, 2, generator=torch.Generator().manual_seed(SEED))
    (cost(drawn.value) * drawn.log_p).sum().backward()
    try:
        gumbel_top_k_sharded(distribute_tensor(whole, mesh, [Replicate()]), 2)
        refused = False
    except ValueError as error:
        refused = "sharded on its last axis" in str(error)
    return {
        "whole": whole,
        "value": drawn.value,
        "log_p": drawn.log_p.detach(),
        "gradient": logits.grad.full_tensor(),
        "refused": torch.tensor(refused),
    }


def baselines(rank: int, ranks: int) -> dict[str, torch.Tensor]:
    """Baselines of uneven shares of a batch, over all of them and over that of this rank alone."""
    share = shares(ranks)[rank]
    average, alone = swor.MovingAverage(decay=0.5), swor.MovingAverage(decay=0.5)
    for step in range(2):
        average(share + step, group=dist.group.WORLD)
        alone(share + step)
    return {
        "together": swor.batch_mean(share, group=dist.group.WORLD),
        "alone": swor.batch_mean(share),
        "average": average.average,
        "average alone": alone.average,
    }


def shares(ranks: int) -> list[torch.Tensor]:
    """The costs of the instances of every rank, (instances, 3)."""
    sizes = range(1, ranks + 1)
    costs = torch.rand(sum(sizes), 3, generator=torch.Generator().manual_seed(0))
    return list(costs.split(list(sizes)))


class Policy(torch.nn.Module):
    """Logits of records; the distinct samples of each carry the gradient to all parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 5, dtype=torch.float64)
        with torch.no_grad():
            self.layer.weight.copy_(torch.arange(15.0).view(5, 3).sin())
            self.layer.bias.zero_()

    def forward(self, records: torch.Tensor) -> torch.Tensor:
        return self.layer(records).log_softmax(-1)


def policy_loss(log_probs: torch.Tensor, rank: int) -> torch.Tensor:
    """A loss of distinct samples with the noise of a rank."""
    drawn = swor.gumbel_top_k(log_probs, 3, generator=seeded(0, "noise", 0, rank))
    return swor.unordered_set(drawn).loss(cost(drawn.value)).mean()


def records(ranks: int) -> torch.Tensor:
    """The batch of all ranks, two records each."""
    return torch.arange(6.0 * ranks, dtype=torch.float64).view(ranks, 2, 3).cos()


def data_parallel(rank: int, ranks: int) -> dict[str, torch.Tensor]:
    """The gradient that DistributedDataParallel leaves, with its default settings."""
    model = torch.nn.parallel.DistributedDataParallel(Policy())
    for _ in range(2):  # a second step is refused if a parameter was left out of the first
        model.zero_grad()
        policy_loss(model(records(ranks)[rank]), rank).backward()
    return {name: p.grad for name, p in model.module.named_parameters()}


class Ranks:
    """The part of an Accelerator that :func:`average` uses."""

    def __init__(self, ranks: int) -> None:
        self.num_processes = ranks

    def reduce(self, tensor: torch.Tensor, reduction: str) -> torch.Tensor:
        assert reduction == "mean"
        dist.all_reduce(tensor)
        return tensor / self.num_processes


def unused(rank: int, ranks: int) -> dict[str, object]:
    """Gradients of parameters that all ranks, the last, or none of them use."""
    parameters = [torch.nn.Parameter(torch.ones(2)) for _ in range(3)]
    everywhere, last, _ = parameters
    loss = (rank + 1) * everywhere.sum() + (last.sum() if rank == ranks - 1 else 0.0)
    loss.backward()
    means = average(Ranks(ranks), [loss], parameters)
    return {"means": means, "gradients": [p.grad for p in parameters]}


def work(rank: int, ranks: int, folder: Path) -> None:
    torch.set_num_threads(1)
    store = f"file://{folder / 'store'}"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=ranks)
    found = {
        "samples": samples(rank, SIZES[ranks]),
        "errors": errors(rank, SIZES[ranks]),
        "large": large(rank, ranks),
        "mesh": of_a_mesh(rank, ranks),
        "baselines": baselines(rank, ranks),
        "data parallel": data_parallel(rank, ranks),
        "unused": unused(rank, ranks),
    }
    torch.save(found, folder / f"rank-{rank}.pt")
    dist.destroy_process_group()


def run(ranks: int, folder: Path) -> list[dict]:
    """What each rank found."""
    mp.spawn(work, (ranks, folder), nprocs=ranks)
    return [torch.load(folder / f"rank-{rank}.pt", weights_only=True) for rank in range(ranks)]
