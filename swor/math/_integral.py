r"""Set probabilities and leave-one-out ratios by quadrature.

Give every outcome an independent exponential clock of rate $p_i$. A sample from the domain
$D \setminus C$ is $S \setminus C$ if all clocks of $S \setminus C$ ring before the first one outside $S$.
With $t = e^x / \text{rest}$ and $y_i = x + \log p_i - \log \text{rest}$, this has the probability

$$p^{D \setminus C}(S \setminus C) = \int e^{x - e^x} \prod_{i \in S \setminus C} U(y_i) \, dx,
\qquad U(y) = 1 - e^{-e^y}.$$

The integrand is analytic in a strip around the real line and decays at both ends, so the trapezoid
rule converges geometrically. The logarithm of the integrand is concave, and its peak lies between 0
and $\log(k + 1)$. A few Newton steps, which approach each end from outside, find the interval on which
the integrand is not negligible. All $R(S, s)$ and $R^{D \setminus s}(S, s')$ share the nodes, and all
pairs are one matrix product. All quantities are relative to the peak, so float32 suffices for
probabilities of any size. The cost is $O(k \cdot \text{nodes})$ for the ratios of first order and
$O(k^2 \cdot \text{nodes})$, a matrix product, for those of second order.

References:
    | Estimating Gradients for Discrete Random Variables by Sampling without Replacement
    | (Kool et al., 2020), equation (34)
    | https://arxiv.org/abs/2002.06043
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from swor.math._interface import Interior, LeftOut
from swor.math._logspace import LOG_NOTHING, expm1, without_autocast


def nodes_for(dtype: torch.dtype) -> int:
    """The number of nodes for which the quadrature error is below the rounding of ``dtype``."""
    return 176 if dtype == torch.float64 else 48


def log_excess(y: Tensor) -> Tensor:
    r"""$\log U(y) - \min(y, 0)$, between $\log(1 - 1/e)$ and 0: the bounded part of $\log U$."""
    v = torch.exp(y.clamp(min=-80.0, max=80.0))  # beyond, U(y) = e^y or 1 to the last bit
    return torch.log(-expm1(-v) / v.clamp(max=1.0))


def slope(y: Tensor) -> Tensor:
    r"""$\frac{d}{dy} \log U(y) = v / (e^v - 1)$ with $v = e^y$: from 1 down to 0."""
    v = torch.exp(y.clamp(min=-80.0, max=4.0))  # for larger y, v / (e^v - 1) < 1e-21
    return v / expm1(v)


class Integrand(NamedTuple):
    """The logarithms of the integrand and of its factors at the nodes, relative to the peak."""

    x: Tensor  # (*batch, nodes), the nodes
    log_f: Tensor  # (*batch, nodes), the product of all factors
    log_u: Tensor  # (*batch, k, nodes), each factor
    log_p_over_u: Tensor  # (*batch, k), each p divided by its factor at the peak
    log_f_peak: Tensor  # (*batch,), the integrand at the peak
    width: Tensor  # (*batch,), the distance between nodes


def integrand(
    log_p: Tensor, log_rest: Tensor, *, left_out: int, nodes: int | None = None
) -> Integrand:
    """Place the nodes and evaluate the integrand there.

    Args:
        log_p: (*batch, k); need not be normalised.
        log_rest: (*batch,), −inf if nothing is left: then all factors are 1.
        left_out: the largest number of factors that will be divided out.
        nodes: the number of nodes; None for as many as two left-out factors need.
    """
    log_rest = log_rest.clamp(min=LOG_NOTHING).unsqueeze(-1)
    a = log_p - log_rest
    x = _peak(a.detach())
    y, m = a + x, torch.exp(x)
    left, right = _bracket(y.detach(), m, left_out)
    nodes = nodes_for(log_p.dtype) if nodes is None else nodes
    grid = torch.linspace(0.0, 1.0, nodes, dtype=a.dtype, device=a.device)
    d = left + (right - left) * grid
    excess = log_excess(y)
    log_u = _rise(y.unsqueeze(-1), d.unsqueeze(-2)) - excess.unsqueeze(-1)
    log_f = log_u.sum(-2) + d - m * expm1(d)
    log_f_peak = (y.clamp(max=0.0) + excess).sum(-1) + (x - m).squeeze(-1)
    log_p_over_u = torch.maximum(log_p, log_rest - x) - excess
    width = (right - left).squeeze(-1) / (nodes - 1)
    return Integrand(x + d, log_f, log_u, log_p_over_u, log_f_peak, width)


def _rise(y: Tensor, d: Tensor) -> Tensor:
    r"""$\log U(y + d) - \min(y, 0)$, arranged so that large terms cancel exactly."""
    straight = torch.minimum(d + y.clamp(min=0.0), -y.clamp(max=0.0))
    return straight + log_excess(y + d)


def _peak(a: Tensor) -> Tensor:
    r"""The peak, where $e^x = 1 + \sum_i \text{slope}(a_i + x)$; it lies in $[0, \log(k + 1)]$."""
    highest = math.log(a.shape[-1] + 1)
    x = torch.log1p(slope(a + 0.5 * highest).sum(-1, keepdim=True))
    for _ in range(3):
        s = slope(a + x)
        v = torch.exp((a + x).clamp(max=4.0))
        curvature = (s * (1.0 - v - s)).sum(-1, keepdim=True) - torch.exp(x)
        x = (x - (1.0 + s.sum(-1, keepdim=True) - torch.exp(x)) / curvature).clamp(0.0, highest)
    return x


def _bracket(y: Tensor, m: Tensor, left_out: int) -> tuple[Tensor, Tensor]:
    """The points on both sides where the integrand falls below the rounding of its peak."""
    drop = -math.log(torch.finfo(y.dtype).eps) + 2.0
    return _left(y, m, drop, left_out), _right(m, drop)


def _right(m: Tensor, drop: float) -> Tensor:
    r"""The root $d > 0$ of $m (e^d - d - 1) = \text{drop}$, a bound that follows from concavity."""
    c = drop / m
    d = torch.minimum(torch.sqrt(2.0 * c), torch.log1p(c) + 1.0)
    for _ in range(2):
        d = d - (expm1(d) - d - c) / expm1(d)
    return d


def _left(y: Tensor, m: Tensor, drop: float, left_out: int) -> Tensor:
    """Newton steps from the left, which never overshoot the root of a concave function.

    The integrand extends furthest to the left without its steepest factors, those of the smallest p.
    """
    if left_out:
        y = y.topk(max(y.shape[-1] - left_out, 0), dim=-1).values
    at_peak = log_excess(y)
    d = -(drop + m)
    for _ in range(5):
        value = (_rise(y, d) - at_peak).sum(-1, keepdim=True) + d - m * expm1(d)
        steepness = slope(y + d).sum(-1, keepdim=True) + 1.0 - m * torch.exp(d)
        d = torch.maximum(d, d - (value + drop) / steepness)
    return d


def numbers(k: int, dtype: torch.dtype) -> int:
    """Return the number of intermediate results for one set."""
    return k * (k + 4 * nodes_for(dtype))


def left_out(inner: Interior, *, second_order: bool = True) -> LeftOut:
    r"""Return the integrals without one factor, and without two over those without one.

    The scale is $p$ over the factor at the peak of the integrand. See :class:`swor.math._interface.LeftOut`.
    """
    f = integrand(inner.log_p.movedim(0, -1), inner.log_rest, left_out=2)
    half = 0.5 * (f.log_f - f.log_f.amax(-1, keepdim=True)).unsqueeze(-2)
    v = torch.exp(half - f.log_u)
    one = (v * torch.exp(half)).sum(-1, keepdim=True)
    log_scale, two = f.log_p_over_u.movedim(-1, 0), None
    if second_order:
        with without_autocast(v):
            two = ((v / one) @ v.mT).movedim((-2, -1), (0, 1))
        same = torch.eye(len(inner.log_p), dtype=torch.bool, device=two.device).unsqueeze(-1)
        two = torch.where(same, torch.exp(inner.log_p - log_scale), two)
    return LeftOut(one.squeeze(-1).movedim(-1, 0), two, log_scale)


def log_prob_set(inner: Interior) -> Tensor:
    """Return log p(S), (*batch,), for a normalised p."""
    f = integrand(inner.log_p.movedim(0, -1), inner.log_rest, left_out=0)
    return f.log_f.logsumexp(-1) + torch.log(f.width) + f.log_f_peak
