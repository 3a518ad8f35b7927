r"""Set probabilities and leave-one-out ratios as sums over all orderings, for checks.

$$p^{D \setminus C}(S \setminus C) = \sum_{B \in \mathcal{B}(S \setminus C)} p^{D \setminus C}(B)$$
"""

from __future__ import annotations

from itertools import permutations
from math import factorial

import torch
from torch import Tensor

from swor.math._interface import Interior, LeftOut
from swor.math._logspace import LOG_NOTHING, log_remaining

OVERWHELMING = 200.0


def numbers(k: int, dtype: torch.dtype) -> int:
    """Return the number of intermediate results for one set."""
    return 4 * k * factorial(k)


def left_out(inner: Interior, *, second_order: bool = True) -> LeftOut:
    """Compute the same as :func:`swor.math._subsets.left_out`, up to a factor of the first result."""
    k, log_rest = len(inner.log_p), inner.log_rest
    most = inner.log_total.clamp(min=LOG_NOTHING) + OVERWHELMING
    log_p = torch.minimum(inner.log_p, most)  # so that sums of logs keep the digits of the others
    log_c = torch.logaddexp(log_p, log_rest)

    def log_without(*elements: int) -> Tensor:
        kept = [i for i in range(k) if i not in elements]
        return _log_prob_set(log_p[kept], log_rest)

    log_r = torch.stack([log_without(s) for s in range(k)])  # but for the factor 1 / p(S)
    log_one, two = log_r + log_p - log_c, None
    if second_order:
        log_pairs = [torch.stack([log_without(s, t) for t in range(k)]) for s in range(k)]
        two = torch.exp(torch.stack(log_pairs) - log_r.unsqueeze(1) + (log_p - log_c))
    return LeftOut(torch.exp(log_one - log_one.amax(0)), two, log_c + (inner.log_p - log_p))


def log_prob_set(inner: Interior) -> Tensor:
    """Return log p(S), (batch,), for a normalised p."""
    return _log_prob_set(inner.log_p, inner.log_rest)


def _log_prob_set(log_p: Tensor, log_rest: Tensor) -> Tensor:
    """The log-probability of all of the elements (k, batch), relative to their mass and the rest."""
    k, batch = log_p.shape
    orders = torch.tensor(list(permutations(range(k))), dtype=torch.long, device=log_p.device)
    ordered = log_p.mT[:, orders]  # (batch, k!, k)
    rest = log_rest.masked_fill(log_rest == -torch.inf, LOG_NOTHING)  # whose gradient is a number
    log_t = log_remaining(ordered, rest.unsqueeze(-1).expand(batch, len(orders)))
    return (ordered - log_t[..., :-1]).sum(-1).logsumexp(-1)
