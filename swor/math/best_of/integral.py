r"""The best of several draws by power series at the nodes of a quadrature.

Sort the sample by $f$, and let $b_u$ be the series of :mod:`swor.math.best_of.series`. The maximum is $f_j$
if no draw is above $j$ and at least one is $j$, so with the prefix products $P_j = b_1 \cdots b_j$ its weight
is $m! [x^m] P_{j-1} (b_j - 1)$. If one draw is known to be $s$, its factor is $e^{p_s x} / v_s$ in place of
$b_s$. With the suffix sums

$$R_s = \sum_{j \ge s} f_j \, b_s \cdots b_{j-1} (b_j - 1) = f_s (b_s - 1) + b_s R_{s+1},$$

the two expectations of $c_s$ (:mod:`swor.math.best_of.weights`) are $p_s / v_s$ times

$$E[1\{x_{n+1} = s\} f(x_1, \dots, x_{n+1}) \mid S] \to n! [x^n] \, e^{p_s x} P_{s-1} (f_s + R_{s+1}),$$

$$E[1\{x_{n+1} = s\} f(x_1, \dots, x_n) \mid S] \to n! [x^n] \, \Bigl( \sum_{j<s} f_j P_{j-1} (b_j - 1)
+ P_{s-1} \bigl( f_s (e^{p_s x} - 1) + e^{p_s x} R_{s+1} \bigr) \Bigr).$$

Series are extended by one factor at a time, and none is divided by another. Cost $O(m^2 k)$ per node.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from swor.math.best_of.draws import Draws
from swor.math.best_of.series import Nodes, constant, more, nodes_of, parts


def sums(draws: Draws, f: Tensor, m: int, *, gradient: bool) -> tuple[Tensor, Tensor]:
    """As :func:`swor.math.best_of.subsets.sums`."""
    found = [_sums(*part, m, gradient) for part in parts(draws, f, m)]
    weight, coefficient = (torch.cat(x).reshape(f.shape) for x in zip(*found, strict=True))
    return weight, coefficient


def _sums(draws: Draws, f: Tensor, m: int, gradient: bool) -> tuple[Tensor, Tensor]:
    nodes, f = nodes_of(draws, m, left_out=m + 1), f.mT.unsqueeze(-1)
    baseline = _Baseline(draws.enough.unsqueeze(-1), m * torch.exp(-nodes.log_x), m)
    prefix = _prefixes(nodes, f, baseline, gradient=gradient)
    weight = _integrate(prefix.weight, nodes.weight(m))
    if not gradient:
        return weight, weight
    return weight, _integrate(_coefficients(nodes, f, baseline, prefix), nodes.weight(m))


class _Baseline(NamedTuple):
    """The power of x for the baseline: m, or m − 1 where the sample has no room for another draw."""

    enough: Tensor  # (batch, 1)
    scale: Tensor  # (batch, nodes), what the power m counts in units of the power m − 1
    m: int

    def of(self, series: Tensor) -> Tensor:
        """The coefficient of a series, (batch, nodes)."""
        return torch.where(self.enough, self.scale * series[self.m], series[self.m - 1])

    def of_product(self, series: Tensor, other: Tensor) -> Tensor:
        """The coefficient of the product of two series, (batch, nodes)."""
        full = (series * other.flip(0)).sum(0)
        fewer = (series[:-1] * other[:-1].flip(0)).sum(0)
        return torch.where(self.enough, self.scale * full, fewer)


class _Prefixes(NamedTuple):
    """What the draws up to each outcome tell, each a list over the outcomes."""

    weight: list[Tensor]  # (batch, nodes), of the best draw being s
    including: list[Tensor]  # (m + 1, batch, nodes), e^{p_s x} P_{s-1}
    lost: list[
        Tensor
    ]  # (batch, nodes), the part of the baseline in which s is the best, or one below


def _prefixes(nodes: Nodes, f: Tensor, baseline: _Baseline, *, gradient: bool) -> _Prefixes:
    m, prefix = baseline.m, constant(torch.ones_like(nodes.log_f), baseline.m)
    lower = torch.zeros_like(nodes.log_f)
    found = _Prefixes([], [], [])
    for value, first, again in zip(f, nodes.first, nodes.again, strict=True):
        added = more(again, prefix)
        found.weight.append(first * added[m])
        if gradient:
            found.including.append(prefix + again * added)
            drawn = baseline.of(added)
            found.lost.append(lower + value * again * drawn)
            lower = lower + value * first * drawn
        prefix = prefix + first * added
    return found


def _coefficients(nodes: Nodes, f: Tensor, baseline: _Baseline, prefix: _Prefixes) -> list[Tensor]:
    m = baseline.m
    suffix = torch.zeros_like(prefix.including[0])
    coefficients = []
    for s in reversed(range(len(f))):
        including = prefix.including[s]
        known = suffix + constant(f[s].expand_as(nodes.log_f), m)
        gain = (including[:m] * known[:m].flip(0)).sum(0)
        loss = prefix.lost[s] + baseline.of_product(including, suffix)
        coefficients.append(nodes.first[s] * (gain - loss))
        suffix = suffix + nodes.first[s] * more(nodes.again[s], known)
    return coefficients[::-1]


def _integrate(values: list[Tensor], weight: Tensor) -> Tensor:
    """From values (batch, nodes) of each of the k outcomes to (batch, k)."""
    return (torch.stack(values, dim=-2) * weight.unsqueeze(-2)).sum(-1)
