r"""$V = \frac{1}{r - 1} \sum_{i=1}^r \|g_i - \bar g\|^2$: the total variance of a gradient estimate."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class LogVariance(NamedTuple):
    """The logarithm of a total variance, −inf for none, and the standard error of that logarithm."""

    value: float
    error: float


def log_variances(
    gradient: Callable[[int], Sequence[Tensor]], repetitions: int
) -> list[LogVariance]:
    r"""The log-variance of each of several groups of parameters, in one pass.

    $V = \frac{1}{r - 1} \sum_{i=2}^r t_i$ with $t_i = (1 - \frac1i) \|g_i - \bar g_{i-1}\|^2$, where
    $\bar g_{i-1}$ is the mean of the draws before. Every $t_i$ has the mean V and none is negative, so
    their spread gives the standard error, and V is 0 only if all draws are the same.

    Args:
        gradient: from the number of a draw to the gradient of each group, flattened.
        repetitions: r, at least 3.

    >>> generator = torch.Generator().manual_seed(0)
    >>> draw = lambda i: [torch.randn(50, generator=generator, dtype=torch.float64)]
    >>> (v,) = log_variances(draw, 1000)
    >>> abs(v.value - math.log(50)) < 4 * v.error < 0.05
    True
    """
    means = [g.detach().clone() for g in gradient(0)]
    terms: list[list[float]] = [[] for _ in means]
    for i in range(2, repetitions + 1):
        for g, mean, term in zip(gradient(i - 1), means, terms, strict=True):
            difference = g.detach() - mean
            term.append((1 - 1 / i) * float(difference.double().square().sum()))
            mean += difference / i
    return [_summarise(torch.tensor(term, dtype=torch.float64)) for term in terms]


def _summarise(terms: Tensor) -> LogVariance:
    variance = float(terms.mean())
    if variance == 0.0:
        return LogVariance(-math.inf, 0.0)
    return LogVariance(math.log(variance), float(terms.std()) / math.sqrt(len(terms)) / variance)
