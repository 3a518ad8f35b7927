r"""The terms of Murthy's variance, computed as covariances, so that nothing cancels.

Murthy's estimate of the variance has a term for each pair of the sample,

$$v_{ij} = p_i p_j \bigl(R_{ij} - R_i R_j\bigr)
= p_i p_j \, \frac{Q_{ij} Q - Q_i Q_j}{Q^2}, \qquad Q_C = p^{D \setminus C}(S \setminus C).$$

In the integral over the race's time, let $\mu$ be the measure whose density has all factors $U$ but
those of $i$ and $j$ (see :mod:`swor.math._integral`). Then $Q_{ij} = \int d\mu$, $Q_i = \int U_j d\mu$,
$Q_j = \int U_i d\mu$ and $Q = \int U_i U_j d\mu$, and so

$$v_{ij} = \frac{p_i p_j Q_{ij}}{Q} \cdot \frac{\operatorname{Cov}_\mu[U_i, U_j]}{E_\mu[U_i U_j]}.$$

Both factors $U$ increase with time, so their covariance is positive. The difference of ratios, in
contrast, cancels where the sample has nearly all the mass. Terms below $10^{-16}$ of the first factor,
which come from times that the quadrature leaves out, may round to 0.

References:
    | Ordered and Unordered Estimators in Sampling without Replacement (Murthy, 1957)
"""

from __future__ import annotations

import torch
from torch import Tensor

from swor.math._integral import integrand, log_excess
from swor.math._interface import interior
from swor.math._logspace import wide_dtype
from swor.math.ratios import complete, first_and_second_draw, log_outside


@torch.no_grad()
def variance_of_pairs(log_p: Tensor, log_rest: Tensor | None) -> Tensor:
    r"""$v_{ij} = p_i p_j (R_{ij} - R_i R_j)$ of each pair, in double precision, never negative.

    Args:
        log_p: (*batch, k)
        log_rest: (*batch,), or None for log(1 − Σp).

    Returns:
        (*batch, k, k), symmetric; the diagonal is 0.

    >>> variance_of_pairs(torch.tensor([0.5, 0.25]).log(), torch.tensor(0.25).log())
    tensor([[0.0000, 0.0600],
            [0.0600, 0.0000]], dtype=torch.float64)
    """
    wide = wide_dtype(log_p.device)
    if log_rest is None:
        complete(log_p, None)  # the sum is checked in the precision that was given
        log_rest = log_outside(log_p.detach().to(wide).logsumexp(-1))
    log_p, log_rest = log_p.detach().to(wide), log_rest.detach().to(wide)
    first, second = first_and_second_draw(log_p, log_rest)
    inner = interior(*complete(log_p, log_rest)[:2])
    joint = first.unsqueeze(-1) * second
    pairs = joint * _relative_covariances(inner.log_p.movedim(0, -1), inner.log_rest)
    exact = (inner.covered | inner.impossible).movedim(0, -1)
    pairs = pairs.masked_fill(exact.unsqueeze(-1) | exact.unsqueeze(-2), 0.0)
    return pairs * (1.0 - torch.eye(log_p.shape[-1], dtype=pairs.dtype, device=pairs.device))


def murthy(log_p: Tensor, log_rest: Tensor | None, f: Tensor) -> Tensor:
    r"""$\sum_{i<j} v_{ij} (f_i - f_j)^2$, (*batch,), of the wider dtype of log_p and f, (*batch, k)."""
    pairs = variance_of_pairs(log_p, log_rest)
    wide = f.to(pairs.dtype)
    difference = wide.unsqueeze(-1) - wide.unsqueeze(-2)
    found = 0.5 * (pairs * difference.square()).sum((-1, -2))
    return found.to(torch.promote_types(f.dtype, log_p.dtype))


def _relative_covariances(log_p: Tensor, log_rest: Tensor) -> Tensor:
    r"""$\operatorname{Cov}_\mu[U_i, U_j] / E_\mu[U_i U_j]$ of each pair, (*batch, k, k)."""
    f = integrand(log_p, log_rest, left_out=2)
    rise = torch.exp(f.log_u)  # U over its value at the peak, which cancels in the quotient
    centred = _without_constant(log_p - log_rest.unsqueeze(-1), f.x, rise)
    rows = []
    for i in range(log_p.shape[-1]):  # a row at a time: all pairs at once would need k² · nodes
        measure = torch.softmax(f.log_f.unsqueeze(-2) - f.log_u - f.log_u[..., i : i + 1, :], -1)
        mine = (centred[..., i : i + 1, :] - _mean(measure, centred[..., i : i + 1, :])) * measure
        covariance = (mine * (centred - _mean(measure, centred))).sum(-1)
        rows.append(covariance / (measure * rise[..., i : i + 1, :] * rise).sum(-1))
    return torch.stack(rows, dim=-2).clamp(min=0.0)  # a covariance of 0 may round to −1e-33


def _mean(measure: Tensor, x: Tensor) -> Tensor:
    return (measure * x).sum(-1, keepdim=True)


def _without_constant(a: Tensor, x: Tensor, rise: Tensor) -> Tensor:
    r"""$U$ over its value at the peak, minus a constant where $U$ is so close to 1 that it is $1 - e^{-v}$.

    Here a = log p − log rest, (*batch, k), and x are the nodes, (*batch, nodes).
    """
    y = a.unsqueeze(-1) + x.unsqueeze(-2)
    at_peak = torch.exp(y.clamp(max=0.0) + log_excess(y)) / rise
    survival = -torch.exp(-torch.exp(y)) / at_peak
    return torch.where(at_peak.amax(-1, keepdim=True) > 0.5, survival, rise)
