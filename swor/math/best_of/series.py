r"""Power series that count the draws of the outcomes of a sample, at the nodes of a quadrature.

Inside the integral over the race's time $t$ (:mod:`swor.math.integral`), with $v_u = 1 - e^{-q_u t}$, the sum
over subsets factorises: for every $A \subseteq S$

$$\sum_{U \subseteq A} Z(U, n) \prod_{i \in S \setminus U} v_i
= n! \, [x^n] \prod_{u \in A} b_u(x) \prod_{i \in S} v_i, \qquad
b_u(x) = 1 + \frac{e^{p_u x} - 1}{v_u}.$$

All coefficients are positive. The variable $x$ is scaled at each node by $m / \sum_u (p_u / v_u)$, so that
the coefficients of products of the $b_u$ are at most $e^m$, and that of $x^m$ is not small.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from swor.checks import may_inspect
from swor.math.best_of.draws import Draws
from swor.math.integral import integrand, nodes_for

LARGEST_PART = 2**22  # numbers in the series that are kept for a part of the batch


class Nodes(NamedTuple):
    """The factors of all outcomes at all nodes, for the scaled variable."""

    first: Tensor  # (k, batch, nodes), p / v: what the first draw of an outcome counts
    again: Tensor  # (k, batch, nodes), p: what each further draw of it counts
    log_f: Tensor  # (batch, nodes), the weights of the quadrature for p(S), which sum to 1
    log_x: Tensor  # (batch, nodes), the scale of the variable

    def weight(self, n: int) -> Tensor:
        """What the coefficient of the n-th power counts at each node, (batch, nodes)."""
        return torch.exp(self.log_f - n * self.log_x + math.lgamma(n + 1))


def nodes_of(draws: Draws, m: int, *, left_out: int) -> Nodes:
    """The factors for m draws.

    Args:
        draws: the sample, with one batch axis.
        m: the number of draws by which the variable is scaled.
        left_out: how many outcomes will be taken out of the race at the most.
    """
    k = draws.log_q.shape[-1]
    left_out = min(left_out, k)
    count = node_count(draws.log_q.dtype, k, max(k - left_out - _impossible(draws), 0))
    f = integrand(draws.log_q, draws.log_rest, left_out=left_out, nodes=count)
    log_p, covered = draws.log_p.unsqueeze(-1), draws.covered.unsqueeze(-1)
    log_first = (log_p - draws.log_q.unsqueeze(-1)) + (f.log_p_over_u.unsqueeze(-1) - f.log_u)
    log_first = torch.where(covered.unsqueeze(-1), log_p, log_first)
    log_total = log_first.logsumexp(-2)
    log_x = math.log(m) - log_total.masked_fill(log_total == -torch.inf, 0.0)  # nothing to draw
    return Nodes(
        first=torch.exp(log_first + log_x.unsqueeze(-2)).movedim(-2, 0),
        again=torch.exp(log_p + log_x.unsqueeze(-2)).movedim(-2, 0),
        log_f=torch.where(covered, 0.0, f.log_f).log_softmax(-1),
        log_x=log_x,
    )


def _impossible(draws: Draws) -> int:
    """The most outcomes of an element that are no part of the race, where that may be looked at."""
    if not may_inspect(draws.log_p) or not draws.log_p.numel():
        return 0
    return int((draws.log_p == -torch.inf).sum(-1).max())


def node_count(dtype: torch.dtype, k: int, left: int) -> int:
    r"""Nodes that bring the quadrature error below 1e-13 (float64) or below rounding (float32).

    With $r$ factors left the integrand falls off on the left like $e^{(r + 1) x}$, and with all $k$ of
    them its peak has a width of $1 / \sqrt{k + 1}$. They share the grid, so it is wide and fine.

    Args:
        dtype: float64 or float32.
        k: the number of factors.
        left: the least number of factors that is left.
    """
    drop = -math.log(torch.finfo(dtype).eps) + 2.0
    density = 2.4 if dtype == torch.float64 else 1.6
    width = drop / (left + 1) + 4.0
    return max(nodes_for(dtype), math.ceil(density * width * math.sqrt(k + 1)))


def more(again: Tensor, series: Tensor) -> Tensor:
    r"""$\frac{e^{\beta x} - 1}{\beta}$ times a series: what the draws of one more outcome add to it.

    Args:
        again: $\beta$, (*shape).
        series: the coefficients of $1, x, x^2, \dots$, (terms, *shape).
    """
    product = torch.zeros_like(series)
    factor = torch.ones_like(again)
    for n in range(1, len(series)):
        factor = factor * again / n if n > 1 else factor
        product[n:] += factor * series[:-n]
    return product


def constant(value: Tensor, degree: int) -> Tensor:
    """The series of a constant, (degree + 1, *shape)."""
    return torch.cat([value.unsqueeze(0), value.new_zeros(degree, *value.shape)])


def parts(draws: Draws, f: Tensor, m: int) -> list[tuple[Draws, Tensor]]:
    """The batch as one axis, in parts for which k series of degree m take a limited memory."""
    k = f.shape[-1]
    size = max(1, LARGEST_PART // (k * (m + 1) * nodes_for(f.dtype)))
    flat = [x.reshape(-1, k) if x.dim() == f.dim() else x.reshape(-1) for x in (*draws, f)]
    split = zip(*(x.split(size) for x in flat), strict=True)
    return [(Draws(*part[:-1]), part[-1]) for part in split]
