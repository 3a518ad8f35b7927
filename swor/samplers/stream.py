r"""A sample without replacement from a stream of independent draws, for products of categoricals.

The distinct values of an independent stream $x_1, x_2, \dots \sim p$, in the order of their first
appearance, are an ordered sample without replacement, because the next new value has the distribution
$p$ restricted to the values that have not appeared. If the entropy is high, the first few draws are
enough, and all variables of a product are drawn at once.
"""

from __future__ import annotations

import torch
from torch import Tensor

from swor.math.logspace import log1mexp, log_remaining, without_autocast
from swor.samplers.race import gumbel_like


def first_distinct(stream: Tensor, categories: int, k: int) -> tuple[Tensor, Tensor]:
    """Return the first k distinct values of each stream, and the streams that have fewer.

    Args:
        stream: (batch, draws, n), n variables of ``categories`` categories.
        categories: the number of categories.
        k: the number of values to keep.

    Returns:
        The values (batch, k, n), in the order of their first appearance, and the indices of the streams
        that are too short, (short,), whose values are padded with duplicates.
    """
    draws = stream.shape[-2]
    same = _same(stream, categories)
    earlier = torch.ones(draws, draws, dtype=torch.bool, device=stream.device).tril(-1)
    new = ~(same & earlier).any(-1)
    order = torch.argsort((~new).to(torch.int8), dim=-1, stable=True)[..., :k]
    value = stream.gather(-2, order.unsqueeze(-1).expand(*order.shape, stream.shape[-1]))
    return value, torch.nonzero(new.sum(-1) < k).squeeze(-1)


def _same(stream: Tensor, categories: int) -> Tensor:
    """Return which draws are equal, (batch, draws, draws), by comparing integer codes of the values."""
    digits = 1
    while categories ** (digits + 1) < 2**62:
        digits += 1
    powers: Tensor = categories ** torch.arange(digits, device=stream.device)
    parts = [(x * powers[: x.shape[-1]]).sum(-1) for x in stream.split(digits, dim=-1)]
    code = torch.stack(parts, dim=-1)
    return (code.unsqueeze(-2) == code.unsqueeze(-3)).all(-1)


def log_mass_outside_product(log_probs: Tensor, value: Tensor, log_p: Tensor) -> Tensor:
    r"""Return $\log(1 - \sum_{x \in S} p(x))$ of distinct values of a product of categoricals.

    If the sample covers most of the mass, the difference would cancel. It is then computed as a sum over the
    branches of the tree of prefixes that contain no sample.

    Args:
        log_probs: (batch, n, c).
        value: (batch, k, n), distinct.
        log_p: their log-probabilities, (batch, k).
    """
    log_sum = log_p.logsumexp(-1)
    log_rest = log1mexp(log_sum.clamp(max=0.0))
    most = torch.nonzero(log_sum > -0.5).squeeze(-1)
    if len(most):
        log_rest[most] = _log_mass_of_branches(log_probs[most], value[most])
    return log_rest


def _log_mass_of_branches(log_probs: Tensor, value: Tensor) -> Tensor:
    """Sum, over the prefixes of the sample, the mass of the next symbols that no sample takes."""
    k = value.shape[-2]
    equal = value.unsqueeze(-2) == value.unsqueeze(-3)  # (batch, k, k, n)
    together = torch.cat([torch.ones_like(equal[..., :1]), equal[..., :-1]], dim=-1).cumprod(-1)
    together = together.bool()  # the same prefix before variable t
    taken = torch.nn.functional.one_hot(value, log_probs.shape[-1])  # (batch, k, n, c)
    with without_autocast(log_probs):
        shared = together.to(log_probs.dtype)
        taken = torch.einsum("bstn,btnc->bsnc", shared, taken.to(log_probs.dtype))
    left = log_probs.unsqueeze(-3).masked_fill(taken > 0, -torch.inf).logsumexp(-1)
    chosen = log_probs.gather(-1, value.mT).mT
    prefix = torch.cat([torch.zeros_like(chosen[..., :1]), chosen[..., :-1]], dim=-1).cumsum(-1)
    before = torch.ones(k, k, dtype=torch.bool, device=value.device).tril(-1).unsqueeze(-1)
    counted = (together & before).any(-2)  # an earlier sample has this prefix
    return (prefix + left).masked_fill(counted, -torch.inf).flatten(-2).logsumexp(-1)


def threshold(log_p: Tensor, log_rest: Tensor, generator: torch.Generator | None) -> Tensor:
    r"""Draw $\kappa$ given the order: $-\log \sum_{i \le k+1} E_i / t_i$, $E_i \sim \text{Exp}(1)$.

    In an exponential race, the time between two arrivals is exponential, and its rate is the mass $t_i$ that
    has not arrived yet.

    Args:
        log_p: in the order sampled, (*batch, k).
        log_rest: (*batch,).
        generator: the source of randomness.
    """
    log_t = log_remaining(log_p, log_rest)
    log_gaps = -gumbel_like(log_t, generator) - log_t
    return -log_gaps.logsumexp(-1)
