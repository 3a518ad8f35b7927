r"""Set probabilities and leave-one-out ratios as sums over all $k!$ orderings, for checks.

$$p(S) = \sum_{B \in \mathcal{B}(S)} p(B), \qquad
P(b_1 = s \mid S) = \frac{1}{p(S)} \sum_{B: b_1 = s} p(B).$$
"""

from __future__ import annotations

from itertools import permutations

import torch
from torch import Tensor

from swor.math.logspace import log_remaining


def log_prob_orderings(log_p: Tensor, log_rest: Tensor) -> tuple[Tensor, Tensor]:
    """All orderings, (k!, k), and the log-probability of each, (*batch, k!)."""
    k = log_p.shape[-1]
    orders = torch.tensor(list(permutations(range(k))), device=log_p.device).reshape(-1, k)
    ordered = log_p[..., orders]
    log_t = log_remaining(ordered, log_rest.unsqueeze(-1).expand(ordered.shape[:-1]))
    return orders, (ordered - log_t[..., :-1]).sum(-1)


def log_draws(
    log_p: Tensor, log_rest: Tensor, *, second_order: bool = True
) -> tuple[Tensor, Tensor]:
    """Compute the same as :func:`swor.math.subsets.log_draws`."""
    k = log_p.shape[-1]
    orders, log_b = log_prob_orderings(log_p, log_rest)
    first = [log_b[..., orders[:, 0] == s].logsumexp(-1) for s in range(k)]
    log_first = torch.stack(first, dim=-1)
    if not second_order:
        return log_first, log_first.unsqueeze(-1)
    if k == 1:
        return log_first, torch.zeros_like(log_p).unsqueeze(-1)
    pairs = [
        log_b[..., (orders[:, 0] == s) & (orders[:, 1] == t)].logsumexp(-1)
        for s in range(k)
        for t in range(k)
    ]
    others = torch.eye(k, dtype=torch.bool, device=log_p.device)
    log_left = log_p.unsqueeze(-2).masked_fill(others, -torch.inf).logsumexp(-1)
    log_left = torch.logaddexp(log_left, log_rest.unsqueeze(-1))  # log(1 - p_s)
    log_second = torch.stack(pairs, dim=-1).unflatten(-1, (k, k)) - log_first.unsqueeze(-1)
    return log_first, log_second + log_left.unsqueeze(-1)


def log_prob_set(log_p: Tensor, log_rest: Tensor) -> Tensor:
    """Return log p(S), for a normalised p."""
    return log_prob_orderings(log_p, log_rest)[1].logsumexp(-1)
