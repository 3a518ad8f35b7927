"""The expected best of several draws, exactly, by going through the domain."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributions import Distribution

from swor.checks import check_count
from swor.math.best_of.weights import ascending
from swor.samplers.distributions import support
from swor.types import Cost


def exact_best_of(f: Cost, dist: Distribution, m: int, *, largest: bool = True) -> Tensor:
    r"""The expected best of m draws, by enumerating the domain; differentiable.

    $$J_m = \sum_j f_{(j)} (P_j^m - P_{j-1}^m), \qquad P_j = p_{(1)} + \dots + p_{(j)}$$

    The expected maximum of $m$ independent draws, with all outcomes in ascending order of $f$. It is what
    :func:`swor.best_of` estimates. Where outcomes tie, the gradient of $f$ is
    that of the likelier one.

    Args:
        f: the value of every outcome, from (*batch, |D|, *event) to (*batch, |D|).
        dist: a distribution small enough to be enumerated.
        m: the number of draws, at least 1.
        largest: True for the largest value, False for the smallest.

    Returns:
        (*batch,)

    >>> dist = torch.distributions.Bernoulli(probs=torch.tensor(0.5))
    >>> exact_best_of(lambda x: x, dist, 3)  # one success in three: 1 − 1/8
    tensor(0.8750)
    """
    check_count("m", m)
    domain = support(dist)
    value = f(domain.value)
    order = ascending((value if largest else -value).detach(), domain.log_p.detach())
    below = domain.log_p.exp().gather(-1, order).cumsum(-1)
    before = torch.cat([torch.zeros_like(below[..., :1]), below[..., :-1]], dim=-1)
    return ((below**m - before**m) * value.gather(-1, order)).sum(-1)
