r"""The squared norm of a mean vector, without the noise of the mean, from the means of blocks of draws."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from reproduction.tsp.settings import BLOCKS


class Blocks:
    """Draws of a vector, (m,), that are also added up in blocks of consecutive draws."""

    def __init__(self, draw: Callable[[int], Tensor], draws: int, m: int) -> None:
        self.draw, self.draws = draw, draws
        self.sums = torch.zeros(BLOCKS, m, dtype=torch.float64)
        self.counts = torch.zeros(BLOCKS, 1, dtype=torch.float64)

    def __call__(self, number: int) -> Tensor:
        """Return a draw."""
        vector, block = self.draw(number), number * BLOCKS // self.draws
        self.sums[block] += vector.cpu()
        self.counts[block] += 1
        return vector

    def means(self) -> Tensor:
        """Return the mean of each block, (blocks, m)."""
        return self.sums / self.counts


def squared_norm(means: Tensor) -> tuple[float, float]:
    r"""An unbiased estimate of $\lVert E[d] \rVert^2$ from independent vectors with the same mean.

    $$\frac1{B (B - 1)} \sum_{b \ne c} d_b^\top d_c$$

    A squared mean vector, $\lVert \bar d \rVert^2$, is too large by the variance of $\bar d$. This sum leaves
    out the squares of single vectors, and with them that variance. Where $d$ is the difference of two
    independent means, the noise of both is left out. An estimate of nearly 0 may be negative.

    Args:
        means: (blocks, m)

    Returns:
        The estimate, and its standard error by the jackknife over blocks, which is too large, by up to
        a half, where the mean vector is small compared with the noise.

    >>> squared_norm(torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]]))
    (1.0, 0.0)
    """
    b = len(means)
    products = (means @ means.mT).fill_diagonal_(0.0).sum(-1)
    total = products.sum()
    without = (total - 2.0 * products) / ((b - 1) * (b - 2))
    spread = (without - without.mean()).square().sum() * (b - 1) / b
    return float(total / (b * (b - 1))), float(spread.sqrt())
