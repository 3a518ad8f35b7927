r"""The variance of the estimated best of several draws, from the sample itself.

The estimate is $E[f(x_1, \dots, x_m) \mid S]$, and the next $m$ draws are independent of the first $m$.
So, for $k \ge 2m$,

$$\hat V = E[f(x_1, \dots, x_m) \mid S]^2 - E[f(x_1, \dots, x_m) \, f(x_{m+1}, \dots, x_{2m}) \mid S]$$

has the mean $E[\hat J^2] - J^2$, which is the variance. Sort by $f$. The best of the first $m$ draws is $f_k$
minus all gaps $f_{j+1} - f_j$ for which no draw is above $j$. For $j \le l$, no draw of the first block is
above $j$ and none of the second above $l$ with probability

$$\propto (m!)^2 \, [x^m y^m] \, P_j(x + y) \, b_{j+1}(y) \cdots b_l(y)
= (m!)^2 \sum_n \binom{n}{m} [x^n] P_j(x) \cdot [y^{2m - n}] \, b_{j+1}(y) \cdots b_l(y),$$

so series in one variable are enough (:mod:`swor.math._best_of.integral`).
"""

from __future__ import annotations

from math import comb

import torch
from torch import Tensor

from swor.math._best_of import Draws
from swor.math._best_of.integral import Factors, constant, factors_of, more, parts


def variance(draws: Draws, f: Tensor, m: int) -> Tensor:
    """The estimate of the variance, (*batch,), for ascending f and at least 2m outcomes."""
    if f.shape[-1] == 1:  # there is room for 2m draws, so this outcome is the only one
        return torch.zeros_like(f[..., 0])
    found = [_variance(*part, m) for part in parts(draws, f, 2 * m)]
    return torch.cat(found).reshape(f.shape[:-1])


def _variance(draws: Draws, f: Tensor, m: int) -> Tensor:
    factors = factors_of(draws, 2 * m, left_out=2 * m)
    gaps = f.diff(dim=-1).mT.unsqueeze(-1)
    prefixes = _prefixes(factors, gaps, m)
    below = (gaps * torch.stack([series[0] for series in prefixes])).sum(0)
    mean = (below * factors.weight(m)).sum(-1)
    joint = (_both(factors, gaps, prefixes, m) * factors.weight(2 * m)).sum(-1)
    return (mean.square() - joint).masked_fill(draws.covered, 0.0)


def _prefixes(factors: Factors, gaps: Tensor, m: int) -> list[Tensor]:
    """The coefficients of the powers m to 2m of P_j, each (m + 1, batch, nodes)."""
    prefix = constant(torch.ones_like(factors.log_f), 2 * m)
    prefixes = []
    for j in range(len(gaps)):
        prefix = prefix + factors.first[j] * more(factors.again[j], prefix)
        prefixes.append(prefix[m:])
    return prefixes


def _both(factors: Factors, gaps: Tensor, prefixes: list[Tensor], m: int) -> Tensor:
    """The sum over all pairs of gaps, (batch, nodes), in units of (2m)! of the power 2m."""
    ways = [comb(n, m) / comb(2 * m, m) for n in range(m, 2 * m + 1)]
    share = torch.tensor(ways, dtype=gaps.dtype, device=gaps.device).view(-1, 1, 1)
    total = torch.zeros_like(factors.log_f)
    suffix = torch.zeros_like(prefixes[0])
    for j in reversed(range(len(gaps))):
        gap = constant(gaps[j].expand_as(total), m)
        pairs = (gap + 2.0 * suffix).flip(0)
        total = total + gaps[j] * (share * prefixes[j] * pairs).sum(0)
        upper = gap + suffix
        suffix = upper + factors.first[j] * more(factors.again[j], upper)
    return total
