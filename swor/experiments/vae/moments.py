r"""$V = \frac{1}{r - 1} \sum_{i=1}^r \|g_i - \bar g\|^2$: the total variance of a gradient estimate."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

PILOT = 20


class LogVariance(NamedTuple):
    """The logarithm of a total variance, and the standard error of that logarithm."""

    value: float
    error: float


def log_variances(
    gradient: Callable[[int], Sequence[Tensor]], repetitions: int
) -> list[LogVariance]:
    r"""The log-variance of each of several groups of parameters, from one pass.

    Distances are taken to the mean m of a few pilot draws, so that nothing but sums has to be kept:
    $\sum_i \|g_i - \bar g\|^2 = \sum_i \|g_i - m\|^2 - r \|\bar g - m\|^2$. The standard error is that
    of the mean of $\|g_i - m\|^2$.

    Args:
        gradient: from the number of a draw to the gradient of each group, flattened; draws
            −1, −2, … are the pilot's.
        repetitions: r, at least 2.

    >>> generator = torch.Generator().manual_seed(0)
    >>> draw = lambda i: [torch.randn(50, generator=generator, dtype=torch.float64)]
    >>> (v,) = log_variances(draw, 1000)
    >>> abs(v.value - math.log(50)) < 4 * v.error < 0.05
    True
    """
    pilot = [_mean(group) for group in zip(*_draws(gradient, range(-PILOT, 0)), strict=True)]
    shift = [torch.zeros_like(m) for m in pilot]
    squares: list[list[float]] = [[] for _ in pilot]
    for drawn in _draws(gradient, range(repetitions)):
        for g, m, total, square in zip(drawn, pilot, shift, squares, strict=True):
            difference = g - m
            total += difference
            square.append(float(difference.double().square().sum()))
    return [_summarise(total, square) for total, square in zip(shift, squares, strict=True)]


def _draws(gradient: Callable[[int], Sequence[Tensor]], numbers: range) -> Iterator[list[Tensor]]:
    for number in numbers:
        yield [g.detach() for g in gradient(number)]


def _mean(group: tuple[Tensor, ...]) -> Tensor:
    return torch.stack(group).mean(0)


def _summarise(total: Tensor, squares: list[float]) -> LogVariance:
    r = len(squares)
    distances = torch.tensor(squares, dtype=torch.float64)
    away = float((total / r).double().square().sum())
    variance = (float(distances.sum()) - r * away) / (r - 1)
    error = float(distances.std()) / math.sqrt(r)
    return LogVariance(math.log(variance), error / variance)
