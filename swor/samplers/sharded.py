"""A categorical variable whose outcomes are split over the ranks of a process group.

Every rank holds the logits of its own outcomes, as in a vocabulary-parallel softmax or in a retrieval
over many items, and never receives the logits of the others. Each rank sends its best $k + 1$ perturbed
outcomes and its total mass to the others, in one message of $3 (k + 2)$ numbers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from swor._checks import (
    DRAW_WHOLE,
    TOLERANCE,
    check_k,
    check_possible,
    check_tensor,
    may_validate,
)
from swor.math._logspace import working_dtype
from swor.samplers._distinct import to_sample
from swor.samplers._race import top_k_outcomes
from swor.samplers._tables import DistinctValues
from swor.types import Sample


def gumbel_top_k_sharded(
    logits: Tensor,
    k: int,
    *,
    group: dist.ProcessGroup | None = None,
    allow_fewer: bool = False,
    generator: torch.Generator | None = None,
) -> Sample:
    r"""Draw k distinct outcomes of a variable whose logits are split over the ranks of a group.

    $$\log p_i = \phi_i - \log \sum_r \sum_{j \in D_r} e^{\phi_j}$$

    The sample consists of the $k$ largest $\log p_i + \text{Gumbel}_i$ over the outcomes $D_r$ of all
    ranks $r$. It has the same distribution as the sample of :func:`swor.gumbel_top_k` from the
    normalised, concatenated logits of all ranks. All ranks of the group must call this function, and all
    of them obtain the same sample.

    If every rank computes the same loss from the sample and calls ``backward``, each rank obtains the
    gradient of this loss with respect to its own logits, including the gradient through the normaliser,
    without further communication. If the shards of the logits were computed from a tensor that is
    replicated on all ranks, the gradient of that tensor on each rank is only a part of the whole: sum it
    over the ranks, as tensor-parallel layers do.

    Args:
        logits: the unnormalised log-probabilities of the outcomes of this rank, (*batch, n), with the
            same batch on all ranks and any n; −inf masks an outcome. It may also be a DTensor that is
            sharded on its last axis over a one-dimensional mesh, which then defines the group.
        k: the number of distinct outcomes, the same on all ranks.
        group: the process group; None for the default group.
        allow_fewer: whether an element of the batch may have fewer than k outcomes, as in
            :func:`swor.gumbel_top_k`.
        generator: the source of randomness. Ranks may have equal or different generators, since each
            rank derives its own noise.

    Returns:
        A sample whose ``value``, (*batch, k), has indices into the concatenated outcomes of all ranks.

    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> gumbel_top_k_sharded(torch.tensor([5.0, -torch.inf]), 1)
    Sample(value=tensor([0]), log_p=tensor([0.]), log_rest=tensor(-inf), kappa=tensor(-inf), ...)
    >>> dist.destroy_process_group()
    """
    logits, group = _local(logits, group)
    _check(logits, k)
    rank = dist.get_rank(group)
    full = logits.to(working_dtype(logits.dtype))
    full = full if full.shape[-1] else F.pad(full, (0, 1), value=-torch.inf)
    with torch.no_grad():
        top = full.amax(-1, keepdim=True)
        top = top.masked_fill(top == -torch.inf, 0.0)
    relative = full - top  # so that a shift of the logits does not cost precision
    log_mass = _log_sum_exp(relative).double() + top.squeeze(-1).double()
    with torch.no_grad():
        noise = shard_generator(generator, rank, logits.device)
        message = _message(relative, top, log_mass, logits.shape[-1], k, noise)
        heard = _gather(message, group)
        found = _best(heard, k)
        if not allow_fewer:
            check_possible(found.logit, cure=DRAW_WHOLE)
    masses = torch.stack(
        [log_mass if r == rank else m for r, m in enumerate(heard[..., -1, 0])], -1
    )
    own = full.gather(-1, torch.where(found.rank == rank, found.place, 0)).double()
    log_p = torch.where(found.rank == rank, own, found.logit) - masses.logsumexp(-1, keepdim=True)
    log_p = log_p.masked_fill(found.logit == -torch.inf, -torch.inf)  # places that are left over
    values = DistinctValues(found.value, log_p.detach(), found.log_rest, found.kappa)
    return to_sample(values.padded(k) if allow_fewer else values, log_p.to(logits.dtype))


def shard_generator(
    generator: torch.Generator | None, rank: int, device: torch.device | str = "cpu"
) -> torch.Generator:
    """Return a generator for one rank, even if the generators of all ranks are in the same state.

    In tensor-parallel training, all ranks usually have the same seed. Without separate generators, the
    shards would receive the same noise, and the sample would not have the right distribution.
    """
    source = "cpu" if generator is None else generator.device
    seed = int(torch.randint(2**48, (), generator=generator, device=source))
    return torch.Generator(device).manual_seed(seed + rank)


def _log_sum_exp(relative: Tensor) -> Tensor:
    """The log-sum-exp of numbers up to 0; if all are masked, −inf with gradient 0 instead of NaN."""
    total = relative.exp().sum(-1)
    nothing = total == 0.0
    return total.masked_fill(nothing, 1.0).log().masked_fill(nothing, -torch.inf)


def _message(
    relative: Tensor,
    top: Tensor,
    log_mass: Tensor,
    size: int,
    k: int,
    generator: torch.Generator,
) -> Tensor:
    """The message of a rank to the others, (*batch, k + 2, 3), in float64, which holds an index exactly.

    The first k + 1 rows have the perturbed logit, the logit and the index of the best k + 1 outcomes, or
    −inf if there are fewer. The last row has the mass of the rank, its mass outside these outcomes, and its
    number of outcomes.
    """
    most = min(k + 1, relative.shape[-1])
    local = top_k_outcomes(relative, most, generator)
    shift = top.double()
    rows = [local.g + shift, relative.gather(-1, local.indices) + shift]
    missing = (0, k + 1 - local.indices.shape[-1])
    rows = [F.pad(row, missing, value=-torch.inf) for row in rows]
    best = torch.stack([*rows, F.pad(local.indices, missing).double()], dim=-1)
    outside = local.log_rest.double() + shift.squeeze(-1)
    last = torch.stack([log_mass, outside, torch.full_like(log_mass, size)], dim=-1)
    return torch.cat([best, last.unsqueeze(-2)], dim=-2)


def _gather(message: Tensor, group: dist.ProcessGroup | None) -> Tensor:
    """The messages of all ranks, (ranks, *batch, k + 2, 3)."""
    heard = [torch.empty_like(message) for _ in range(dist.get_world_size(group))]
    dist.all_gather(heard, message.contiguous(), group=group)
    return torch.stack(heard)


class _Best(NamedTuple):
    """The sample that all ranks agree on, in float64."""

    value: Tensor  # (*batch, k), the index among the outcomes of all ranks
    rank: Tensor  # (*batch, k), the rank that holds the outcome
    place: Tensor  # (*batch, k), the index among the outcomes of that rank
    logit: Tensor  # (*batch, k)
    log_rest: Tensor  # (*batch,)
    kappa: Tensor  # (*batch,)


def _best(heard: Tensor, k: int) -> _Best:
    """The best k among the best k + 1 of each rank, the mass outside them, and the next best."""
    log_mass, outside, size = heard[..., -1, :].movedim(0, -1).unbind(-2)  # each (*batch, ranks)
    _check_masses(log_mass)
    perturbed, logit, index = heard[..., :-1, :].movedim(0, -3).flatten(-3, -2).unbind(-1)
    top, order = perturbed.topk(k + 1, dim=-1)
    winners, kappa = order[..., :k], top[..., k]
    chosen = logit.gather(-1, winners)
    rank, place = winners // (k + 1), index.gather(-1, winners).long()
    before = (size.cumsum(-1) - size).long()  # the number of outcomes of the previous ranks
    others = torch.cat([logit.scatter(-1, winners, -torch.inf), outside], dim=-1)
    log_total = log_mass.logsumexp(-1)
    log_rest = others.logsumexp(-1) - log_total
    value = place + before.gather(-1, rank)
    return _Best(value, rank, place, chosen, log_rest, kappa - log_total)


def _local(
    logits: Tensor, group: dist.ProcessGroup | None
) -> tuple[Tensor, dist.ProcessGroup | None]:
    """The shard of this rank, and the group of the ranks that share the outcomes."""
    if not (dist.is_available() and dist.is_initialized()):
        raise RuntimeError(
            "torch.distributed is not initialised; expected a process group whose ranks share the "
            "outcomes. Call torch.distributed.init_process_group, or use swor.gumbel_top_k."
        )
    mesh = getattr(logits, "device_mesh", None)
    if mesh is None:
        return logits, group
    placements: Any = getattr(logits, "placements", ())
    if group is not None or mesh.ndim != 1 or not placements[0].is_shard(logits.dim() - 1):
        raise ValueError(
            f"logits is a DTensor with placements {placements} on {mesh}, and group is {group}; "
            "expected one that is sharded on its last axis over a one-dimensional mesh, and no group. "
            "Otherwise, give logits.to_local() and the group of the ranks that share the outcomes."
        )
    shard: Any = logits
    return shard.to_local(), mesh.get_group()


def _check(logits: Tensor, k: int) -> None:
    check_k(k)
    check_tensor("logits", logits)
    if logits.dtype not in TOLERANCE or logits.dim() < 1:
        raise TypeError(
            f"logits has dtype {logits.dtype} and shape {tuple(logits.shape)}; expected floating "
            "point, (*batch, n). Put the outcomes of this rank on the last axis."
        )


def _check_masses(log_mass: Tensor) -> None:
    if may_validate(log_mass) and not bool((log_mass < torch.inf).all()):
        wrong = ~(log_mass < torch.inf).reshape(-1, log_mass.shape[-1])
        ranks = wrong.any(0).nonzero().flatten().tolist()
        raise ValueError(
            f"logits contain NaN or +inf on rank(s) {ranks}; expected finite numbers, or −inf to "
            "mask an outcome. Check the computation that produced them."
        )
