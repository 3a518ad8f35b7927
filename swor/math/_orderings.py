r"""Set probabilities and leave-one-out ratios as sums over all $k!$ orderings, for checks.

$$p(S) = \sum_{B \in \mathcal{B}(S)} p(B), \qquad
P(b_1 = s \mid S) = \frac{1}{p(S)} \sum_{B: b_1 = s} p(B).$$
"""

from __future__ import annotations

from itertools import permutations
from math import factorial

import torch
from torch import Tensor

from swor.math._interface import Interior, LeftOut
from swor.math._logspace import LOG_NOTHING, log_remaining

OVERWHELMING = 200.0


def log_prob_orderings(log_p: Tensor, log_rest: Tensor) -> tuple[Tensor, Tensor]:
    """All orderings, (k!, k), and the log-probability of each, (*batch, k!)."""
    k = log_p.shape[-1]
    orders = torch.tensor(list(permutations(range(k))), device=log_p.device).reshape(-1, k)
    ordered = log_p[..., orders]
    rest = log_rest.masked_fill(log_rest == -torch.inf, LOG_NOTHING)  # whose gradient is a number
    log_t = log_remaining(ordered, rest.unsqueeze(-1).expand(ordered.shape[:-1]))
    return orders, (ordered - log_t[..., :-1]).sum(-1)


def numbers(k: int, dtype: torch.dtype) -> int:
    """Return the number of intermediate results for one set."""
    return 4 * k * factorial(k)


def left_out(inner: Interior, *, second_order: bool = True) -> LeftOut:
    """Compute the same as :func:`swor.math._subsets.left_out`, up to a factor of the first result."""
    log_rest = inner.log_rest
    most = inner.log_total.clamp(min=LOG_NOTHING) + OVERWHELMING
    log_p = torch.minimum(inner.log_p, most)  # so that sums of logs keep the digits of the others
    log_c = torch.logaddexp(log_p, log_rest)
    orders, log_b = log_prob_orderings(log_p.movedim(0, -1), log_rest)
    first = [log_b[..., orders[:, 0] == s].logsumexp(-1) for s in range(len(log_p))]
    log_one, two = torch.stack(first) - log_c, None
    if second_order:
        log_pairs = _log_pairs(orders, log_b) + _log_remaining_without(log_p, log_rest)
        log_two = log_pairs - torch.stack(first).unsqueeze(1) - log_c
        same = torch.eye(len(log_p), dtype=torch.bool, device=log_p.device).unsqueeze(-1)
        two = torch.exp(torch.where(same, log_p - log_c, log_two))
    one = torch.exp(log_one - log_one.amax(0))
    return LeftOut(one, two, log_c + (inner.log_p - log_p))


def _log_pairs(orders: Tensor, log_b: Tensor) -> Tensor:
    """The log-probability that s and then s' are drawn first, and the others in any order, (k, k, batch)."""
    k = orders.shape[-1]
    first, second = orders[:, 0], orders[:, min(1, k - 1)]
    found = [
        log_b[..., (first == s) & (second == t)].logsumexp(-1) for s in range(k) for t in range(k)
    ]
    return torch.stack(found).view(k, k, *log_b.shape[:-1])


def _log_remaining_without(log_p: Tensor, log_rest: Tensor) -> Tensor:
    """log(1 − p_s), without the normalisation, (k, 1, batch)."""
    others = ~torch.eye(len(log_p), dtype=torch.bool, device=log_p.device)
    left = [torch.cat([log_p[row], log_rest.unsqueeze(0)]).logsumexp(0) for row in others]
    return torch.stack(left).unsqueeze(1)


def log_prob_set(inner: Interior) -> Tensor:
    """Return log p(S), (*batch,), for a normalised p."""
    return log_prob_orderings(inner.log_p.movedim(0, -1), inner.log_rest)[1].logsumexp(-1)
