r"""Set probabilities and leave-one-out ratios by quadrature.

Give every outcome an independent exponential clock of rate $p_i$. A sample from the domain
$D \setminus C$ is $S \setminus C$ if all clocks of $S \setminus C$ ring before the first one outside $S$.
With $t = e^x / \text{rest}$ and $y_i = x + \log p_i - \log \text{rest}$, this has the probability

$$p^{D \setminus C}(S \setminus C) = \int e^{x - e^x} \prod_{i \in S \setminus C} U(y_i) \, dx,
\qquad U(y) = 1 - e^{-e^y}.$$

The integrand is analytic in a strip around the real line and decays at both ends, so the trapezoid
rule converges geometrically. The logarithm of the integrand is concave, so it lies below each of its
tangents. A few tangents bound the interval on which the integrand is not negligible; there is no search
(:func:`bracket`). All $R(S, s)$ and $R^{D \setminus s}(S, s')$ share the nodes, and all
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

from swor.math._interface import Interior, LeftOut, product
from swor.math._logspace import LOG_NOTHING, expm1

TANGENTS = 32
SLIGHT = 1e-6  # the least slope of a tangent that bounds anything


def nodes_for(dtype: torch.dtype) -> int:
    """The number of nodes for which the quadrature error is below the rounding of ``dtype``."""
    return 200 if dtype == torch.float64 else 48


def log_excess(y: Tensor) -> Tensor:
    r"""$\log U(y) - \min(y, 0)$, between $\log(1 - 1/e)$ and 0: the bounded part of $\log U$."""
    v = -torch.exp(y.clamp(min=-80.0, max=80.0))  # beyond, U(y) = e^y or 1 to the last bit
    return torch.log(expm1(v) / v.clamp(min=-1.0))


def slope(y: Tensor) -> Tensor:
    r"""$\frac{d}{dy} \log U(y) = v / (e^v - 1)$ with $v = e^y$: from 1 down to 0."""
    v = torch.exp(y.clamp(min=-80.0, max=4.0))  # for larger y, v / (e^v - 1) < 1e-21
    return v / expm1(v)


class Integrand(NamedTuple):
    """The logarithms of the integrand and of its factors at the nodes, relative to the peak."""

    log_f: Tensor  # (*batch, nodes), the product of all factors
    log_u: Tensor  # (*batch, k, nodes), each factor
    log_p_over_u: Tensor  # (*batch, k), each p divided by its factor at the peak
    peak: Tensor  # (*batch, 1)
    d: Tensor  # (*batch, nodes), the distances of the nodes from the peak
    y: Tensor  # (*batch, k), of each factor at the peak
    excess: Tensor  # (*batch, k), likewise

    @property
    def x(self) -> Tensor:
        """The nodes, (*batch, nodes)."""
        return self.peak + self.d

    @property
    def width(self) -> Tensor:
        """The distance between nodes, (*batch,)."""
        return (self.d[..., -1] - self.d[..., 0]) / (self.d.shape[-1] - 1)

    @property
    def log_f_peak(self) -> Tensor:
        """The integrand at the peak, (*batch,)."""
        log_u = self.y.clamp(max=0.0) + self.excess
        return log_u.sum(-1) + (self.peak - torch.exp(self.peak)).squeeze(-1)


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
    x, left, right = bracket(a.detach(), left_out)
    y = a + x
    nodes = nodes_for(log_p.dtype) if nodes is None else nodes
    grid = torch.linspace(0.0, 1.0, nodes, dtype=a.dtype, device=a.device)
    d = torch.lerp(left - x, right - x, grid)
    excess = log_excess(y)
    log_u = _rise(y.unsqueeze(-1), d.unsqueeze(-2)) - excess.unsqueeze(-1)
    log_f = log_u.sum(-2) + d - torch.exp(x) * expm1(d)
    log_p_over_u = torch.maximum(log_p, log_rest - x) - excess
    return Integrand(log_f, log_u, log_p_over_u, x, d, y, excess)


def _rise(y: Tensor, d: Tensor) -> Tensor:
    r"""$\log U(y + d) - \min(y, 0)$, arranged so that large terms cancel exactly."""
    straight = torch.minimum(d + y.clamp(min=0.0), -y.clamp(max=0.0))
    return straight + log_excess(y + d)


def bracket(a: Tensor, left_out: int) -> tuple[Tensor, Tensor, Tensor]:
    r"""The peak of the integrand, and points on both sides outside of which it is negligible.

    The logarithm of the integrand is concave and has the slope

    $$D(x) = 1 - e^x + \sum_i \text{slope}(a_i + x), \qquad
    1 - e^x < D(x) < k + 1 - e^x.$$

    By the tangent at a point $z$ with $D(z) > 0$, the integrand is below $\varepsilon$ times its maximum
    everywhere to the left of $z - \log(1 / \varepsilon) / D(z)$; likewise to the right, if $D(z) < 0$. All
    $z$ are valid, and the tightest of a few is taken. There always is one on the left, because
    $D(-4) > 0.98$, and one on the right, because $D(\log(k + 1) + 2) < -6 (k + 1)$. Without some of the
    factors the slope is smaller, but not smaller than without the steepest ones, those of the smallest $p$.
    The root of the piecewise linear $D$ is close to the peak; it only defines the scale.

    Args:
        a: log p − log rest, (*batch, k).
        left_out: the largest number of factors that will be divided out.

    Returns:
        Each (*batch, 1).
    """
    drop = -math.log(torch.finfo(a.dtype).eps) + 2.0
    first, last = -4.0 - drop, math.log(a.shape[-1] + 1) + 2.0
    z = torch.linspace(first, last, TANGENTS, dtype=a.dtype, device=a.device)
    slopes = slope(a.sort(-1).values.unsqueeze(-1) + z)
    steep = slopes.sum(-2) + (1.0 - torch.exp(z))
    flat = steep - slopes[..., :left_out, :].sum(-2)
    left = torch.sub(z, flat.clamp(min=SLIGHT).reciprocal(), alpha=drop).amax(-1, keepdim=True)
    right = torch.sub(z, steep.clamp(max=-SLIGHT).reciprocal(), alpha=drop).amin(-1, keepdim=True)
    before, after = steep[..., :-1], steep[..., 1:]
    passed = (before / (before - after)).clamp(0.0, 1.0).sum(-1, keepdim=True)
    return first + (last - first) / (TANGENTS - 1) * passed, left, right


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
        two = product(v / one, v.mT).movedim((-2, -1), (0, 1))
        same = torch.eye(len(inner.log_p), dtype=torch.bool, device=two.device).unsqueeze(-1)
        two = torch.where(same, torch.exp(inner.log_p - log_scale), two)
    return LeftOut(one.squeeze(-1).movedim(-1, 0), two, log_scale)


def log_prob_set(inner: Interior) -> Tensor:
    """Return log p(S), (*batch,), for a normalised p."""
    f = integrand(inner.log_p.movedim(0, -1), inner.log_rest, left_out=0)
    return f.log_f.logsumexp(-1) + torch.log(f.width) + f.log_f_peak
