r"""A sample without replacement drawn one by one, for compiled code.

The $i$-th draw has the probabilities $p$ without the outcomes that were drawn before. The outcomes lie in
blocks. A draw takes a block with the probability of its remaining mass, and then one of its remaining
outcomes. The mass of this block is then summed anew, so that nothing cancels. The $k$ draws together touch
about $2 k \sqrt n$ numbers and no branch depends on a value.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from swor.samplers.model import DistinctValues
from swor.samplers.race import uniform_like
from swor.samplers.stream import threshold
from swor.samplers.tree_race import block_masses, block_members


def draw_one_by_one(log_probs: Tensor, k: int, generator: torch.Generator | None) -> DistinctValues:
    """Draw k distinct outcomes of a categorical variable.

    Args:
        log_probs: (*batch, n); −inf if impossible.
        k: the number of outcomes. If fewer are possible, the last ones have the log-probability −inf.
        generator: the source of randomness.
    """
    n = log_probs.shape[-1]
    size = math.isqrt(n)
    log_mass = block_masses(log_probs, size)
    value: list[Tensor] = []
    log_p: list[Tensor] = []
    for _ in range(k):
        block = draw(log_mass, generator)
        member = block_members(block.squeeze(-1), n, size)
        inside = log_probs.gather(-1, member.clamp(max=n - 1))
        taken = member >= n
        for earlier in value:
            taken = taken | (member == earlier)
        inside = inside.masked_fill(taken, -torch.inf)
        place = draw(inside, generator)
        value.append(member.gather(-1, place).clamp(max=n - 1))
        log_p.append(inside.gather(-1, place))
        left = inside.masked_fill(_at(place, inside), -torch.inf).logsumexp(-1, keepdim=True)
        log_mass = torch.where(_at(block, log_mass), left, log_mass)
    values, log_ps, log_rest = torch.cat(value, -1), torch.cat(log_p, -1), log_mass.logsumexp(-1)
    return DistinctValues(values, log_ps, log_rest, threshold(log_ps, log_rest, generator))


def draw(log_mass: Tensor, generator: torch.Generator | None) -> Tensor:
    """Draw an index with probabilities that need not be normalised: from (*batch, n) to (*batch, 1)."""
    most = log_mass.amax(-1, keepdim=True)
    most = most.masked_fill(most == -torch.inf, 0.0)  # where nothing is left
    cumulative = torch.exp(log_mass - most).cumsum(-1)
    total = cumulative[..., -1:]
    index = (cumulative <= uniform_like(total, generator) * total).sum(-1, keepdim=True)
    return index.clamp(max=log_mass.shape[-1] - 1)


def _at(index: Tensor, like: Tensor) -> Tensor:
    """True at an index (*batch, 1) of the last axis of a tensor."""
    return torch.arange(like.shape[-1], device=like.device) == index
