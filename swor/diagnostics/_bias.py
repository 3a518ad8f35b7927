r"""A test of whether the mean of many gradients is the true gradient.

$$\lVert E[g] - \nabla \rVert^2 \approx \frac1{B (B - 1)} \sum_{b \ne c} d_b^\top d_c, \qquad
d_b = \bar g_b - \nabla$$

The gradients are averaged in $B$ blocks. The sum leaves out the products of a block with itself, and with
them the noise of the mean, so it is an unbiased estimate of the squared bias of the whole vector. Where
$\nabla$ is itself a mean of the gradients of unbiased estimators, there is one for each block, so that its
noise is left out as well.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from swor.diagnostics._streaming import GradientMoments

BLOCKS = 20
FOUND = 5.0  # standard errors; without a bias, fewer than one in 10 000 measurements are above
LEAST = 1e-200  # of a variance
MISSED = 4.0  # standard errors; draws that miss nothing are above in fewer than one of 10 000 measurements


class SquaredBias(NamedTuple):
    """An unbiased estimate of the squared length of the bias of a gradient; NaN if it was not tested.

    Attributes:
        estimate: of the squared length, which may be negative if it is nearly 0.
        error: its standard error.
    """

    estimate: float
    error: float

    def exceeds(self, rounding: float) -> bool:
        """Return whether there is a bias, beyond the noise and beyond the rounding of the gradients."""
        return self.estimate > max(FOUND * self.error, rounding)


UNTESTED = SquaredBias(math.nan, math.nan)


class Blocks:
    """The means of consecutive blocks of gradients, (blocks, parameters).

    Args:
        repeats: the number of gradients to come.
        parameters: the number of elements of each.
        device: of the gradients.
        blocks: the number of blocks, or fewer if there are fewer gradients.
    """

    def __init__(
        self, repeats: int, parameters: int, device: torch.device, blocks: int = BLOCKS
    ) -> None:
        self.repeats, self.seen = repeats, 0
        blocks = min(blocks, repeats)
        self.sums = torch.zeros(blocks, parameters, dtype=torch.float64, device=device)
        self.counts = self.sums.new_zeros(blocks, 1)

    def add(self, gradients: Tensor) -> None:
        """Add gradients, (n, parameters)."""
        number = self.seen + torch.arange(len(gradients), device=gradients.device)
        block = number * len(self.sums) // self.repeats
        self.sums.index_add_(0, block, gradients.double())
        self.counts += block.bincount(minlength=len(self.counts)).unsqueeze(-1)
        self.seen += len(gradients)

    def means(self) -> Tensor:
        """Return the mean of each block."""
        return self.sums / self.counts


class Reference:
    """The gradient that mean gradients are compared with.

    Args:
        exact: the exact gradient, (parameters,), or None for the mean of the gradients that are added, each
            weighted by its precision.

    Attributes:
        doubted: whether the draws of an unbiased estimator missed a part of the exact gradient. Those of
            others may have missed it as well, so that no bias is found in them.
    """

    def __init__(self, exact: Tensor | None) -> None:
        self.exact, self.doubted = exact, False
        self.sums, self.precision = torch.zeros(()), 0.0

    def add(self, means: Tensor, variance: float) -> None:
        """Add the block means of an unbiased estimator, (blocks, parameters), with its variance."""
        variance = max(variance, LEAST)  # it is 0 where every gradient is, as for a cost of 0
        self.sums = self.sums.to(means) + means / variance
        self.precision += 1.0 / variance

    def missed(self, moments: GradientMoments, rounding: float) -> bool:
        r"""Return whether the draws of an unbiased estimator missed a part of the exact gradient.

        $$\lVert \bar g - \nabla \rVert^2 > 4^2 \, \text{tr} \, \text{Cov}[g] / n$$

        A proof is not overruled, so what explains such a mean is a rare outcome that was not drawn.
        """
        if self.exact is None:
            return False
        noise = MISSED**2 * float(moments.trace) / moments.repeats
        found = float((moments.mean - self.exact).square().sum()) > max(noise, rounding)
        self.doubted |= found
        return found

    def squared_bias(self, means: Tensor) -> SquaredBias:
        """Return the squared bias of gradients, given their block means, (blocks, parameters)."""
        if self.exact is not None:
            return squared_norm(means - self.exact)
        return squared_norm(means - self.sums / self.precision) if self.precision else UNTESTED


def squared_norm(means: Tensor) -> SquaredBias:
    r"""Return an unbiased estimate of $\lVert E[d] \rVert^2$ from independent vectors with the same mean.

    Its standard error is that of the jackknife over blocks. Without a bias, it is too large by up to a half.

    Args:
        means: the mean of $d$ in each block, (blocks, parameters).

    >>> squared_norm(torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]]))
    SquaredBias(estimate=1.0, error=0.0)
    """
    b = len(means)
    if b < 3:
        return UNTESTED
    products = (means @ means.mT).fill_diagonal_(0.0).sum(-1)
    total = products.sum()
    without = (total - 2.0 * products) / ((b - 1) * (b - 2))
    spread = (without - without.mean()).square().sum() * (b - 1) / b
    return SquaredBias(float(total / (b * (b - 1))), float(spread.sqrt()))
