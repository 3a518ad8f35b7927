r"""The mean and the variance of a stream of vectors in one pass, by the method of Welford (1962).

Each $x_i$ is compared with the mean of those before it: with
$d_i = \frac{i-1}{i} (x_i - \bar x_{i-1})^2$,

$$\sum_{i \le n} d_i = \sum_{i \le n} (x_i - \bar x_n)^2, \qquad E[d_i] = \text{Var}[x] \quad (i \ge 2).$$

So the variance is the mean of the $d_i$, and the spread of the $d_i$ gives its standard error. Where only the
total variance of groups of coordinates is of interest, such as the parameters of a network, the
$d_i$ of a group are added up first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor


class Stream(NamedTuple):
    """The running sums of the vectors so far; their size does not depend on the number of vectors."""

    seen: int
    mean: Tensor  # (m,)
    squares: Tensor  # (m,) or (groups,), the sum of d
    fourths: Tensor  # (m,) or (groups,), the sum of d²
    total_fourths: Tensor  # (), the sum of (Σ_m d)²
    groups: tuple[int, ...] = ()

    @property
    def variance(self) -> Tensor:
        """The unbiased variance, (m,); with groups the total variance of each, (groups,)."""
        return self.squares / (self.seen - 1)

    @property
    def mean_error(self) -> Tensor:
        """The standard error of the mean, (m,); not defined with groups."""
        return torch.sqrt(self.variance / self.seen)

    @property
    def variance_error(self) -> Tensor:
        """The standard error of the variance, (m,) or (groups,)."""
        return _error(self.squares, self.fourths, self.seen - 1)

    @property
    def total(self) -> Tensor:
        """The sum of all variances, ()."""
        return self.variance.sum()

    @property
    def total_error(self) -> Tensor:
        """The standard error of the sum of all variances, ()."""
        return _error(self.squares.sum(), self.total_fourths, self.seen - 1)


def _error(squares: Tensor, fourths: Tensor, n: int) -> Tensor:
    spread = fourths / n - (squares / n).square()
    return torch.sqrt(spread.clamp(min=0.0) / n)  # a spread of 0 may be -1e-17 by rounding


def start(m: int, device: torch.device | None = None, *, groups: tuple[int, ...] = ()) -> Stream:
    """Return the sums of an empty stream of vectors of m numbers.

    Args:
        m: the number of coordinates.
        device: of the vectors.
        groups: sizes of consecutive groups of coordinates, which add up to m; only the total
            variance of each group is kept. By default that of every coordinate.
    """
    mean = torch.zeros(m, dtype=torch.float64, device=device)
    zero = mean.new_zeros(len(groups) or m)
    return Stream(0, mean, zero, zero, zero.sum(), groups)


def update(stream: Stream, x: Tensor) -> Stream:
    """Add vectors to a stream.

    Args:
        stream: the vectors so far.
        x: more vectors, (chunk, m).

    >>> stream = start(1)
    >>> for chunk in torch.tensor([1.0, 2.0, 4.0, 5.0]).split(3):
    ...     stream = update(stream, chunk.unsqueeze(-1))
    >>> stream.mean, stream.variance
    (tensor([3.], dtype=torch.float64), tensor([3.3333], dtype=torch.float64))

    References:
        | Note on a Method for Calculating Corrected Sums of Squares and Products (Welford, 1962)
        | https://doi.org/10.1080/00401706.1962.10490022
    """
    n = stream.seen + torch.arange(1, len(x) + 1, device=x.device).unsqueeze(-1)
    centred = x.to(stream.mean) - stream.mean
    difference = centred
    if len(x) > 1:  # also compare with those before in the chunk; the first has none
        difference = centred - (centred.cumsum(0) - centred) / (n - 1).clamp(min=1)
    d = difference.square()
    if stream.groups:
        d = torch.stack([part.sum(-1) for part in d.split(stream.groups, dim=-1)], dim=-1)
    d = d * (n - 1) / n
    return Stream(
        stream.seen + len(x),
        stream.mean + centred.sum(0) / (stream.seen + len(x)),
        stream.squares + d.sum(0),
        stream.fourths + d.square().sum(0),
        stream.total_fourths + d.sum(-1).square().sum(),
        stream.groups,
    )


@dataclass(frozen=True)
class GradientMoments:
    """Moments of an estimate and of its gradient, averaged over the batch, with standard errors.

    Attributes:
        mean: the mean of the gradient, (parameters,): all parameters, flattened and concatenated.
        mean_error: its standard error, (parameters,).
        variance: the variance of the gradient, (parameters,).
        variance_error: its standard error, (parameters,).
        trace: the sum of the variances, ().
        trace_error: its standard error, ().
        value: the mean of the estimate of E[f], ().
        value_error: its standard error, ().
        value_variance: the variance of the estimate of E[f], ().
        repeats: the number of estimates.
        method: "batch" or "loop", whichever was used.
        warm_up: the number of steps for which the estimator was trained before; 0 if it does not learn.
    """

    mean: Tensor
    mean_error: Tensor
    variance: Tensor
    variance_error: Tensor
    trace: Tensor
    trace_error: Tensor
    value: Tensor
    value_error: Tensor
    value_variance: Tensor
    repeats: int
    method: str
    warm_up: int = 0


def gradient_moments_of(
    values: Stream, gradients: Stream, method: str, warm_up: int
) -> GradientMoments:
    """Return the moments of estimates and of their gradients, given their streams."""
    return GradientMoments(
        gradients.mean,
        gradients.mean_error,
        gradients.variance,
        gradients.variance_error,
        gradients.total,
        gradients.total_error,
        values.mean.squeeze(),
        values.mean_error.squeeze(),
        values.total,
        gradients.seen,
        method,
        warm_up,
    )
