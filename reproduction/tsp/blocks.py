r"""The squared norm of a mean vector, without the noise of the mean, from the means of blocks of draws."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from reproduction.harness.models import keep_model, load_model
from reproduction.tsp.settings import BLOCKS


class Blocks:
    """Draws of a vector that are also added up in blocks of consecutive draws.

    Args:
        draw: from the number of a draw to a vector, (m,).
        draws: the number of draws, at least that of the blocks.
        m: the length of a vector.
    """

    def __init__(self, draw: Callable[[int], Tensor], draws: int, m: int) -> None:
        self.draw, self.draws = draw, draws
        self.sums = torch.zeros(BLOCKS, m, dtype=torch.float64)
        self.counts = [0] * BLOCKS

    def __call__(self, number: int) -> Tensor:
        """Return a draw."""
        vector, block = self.draw(number), number * BLOCKS // self.draws
        self.sums[block] += vector.cpu()
        self.counts[block] += 1
        return vector

    def means(self) -> Tensor:
        """Return the mean of each block, (blocks, m)."""
        return self.sums / self.sums.new_tensor(self.counts).unsqueeze(-1)


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


class _Means(nn.Module):
    """Block means in the form in which weights are kept, with a checksum."""

    means: Tensor

    def __init__(self, means: Tensor) -> None:
        super().__init__()
        self.register_buffer("means", means)


def keep_blocks(path: Path, means: Tensor) -> None:
    """Write block means, (blocks, m), to a file, whole or not at all."""
    keep_model(path, _Means(means))


def load_blocks(path: Path, m: int) -> Tensor:
    """Read the block means that :func:`keep_blocks` wrote, (blocks, m)."""
    kept = _Means(torch.empty(BLOCKS, m, dtype=torch.float64))
    load_model(path, kept)
    return kept.means
