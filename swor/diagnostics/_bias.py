r"""A test of whether the mean of many gradients is the true gradient.

$$z = \max_i \frac{|\bar g_i - \nabla_i|}{\text{standard error}_i}$$

The result is corrected for the number of parameters, so that it can be read as the z-score of a single
comparison. A value above 6 means that the estimator is biased. Heavy-tailed gradients, of which few
repeats contain too few large values, may reach 4 or 5 without a bias.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributions import Distribution

from swor.diagnostics.enumeration import exact
from swor.diagnostics.moments import GradientMoments
from swor.samplers.distributions import factorized
from swor.types import Cost

SMALL_DOMAIN = 2**14  # largest number of evaluations of f for the exact gradient
FAR = 37.0  # for a larger z, the probability underflows


class Reference(NamedTuple):
    """The gradient that a mean gradient is compared with."""

    gradient: Tensor  # (parameters,)
    error: Tensor  # its standard error, (parameters,), 0 if it is exact


def exact_reference(f: Cost, dist: Distribution, parameters: Sequence[Tensor]) -> Reference | None:
    """Return the exact gradient of the mean over the batch if the domain is small enough, otherwise None."""
    if factorized(dist).outcomes * max(1, dist.batch_shape.numel()) > SMALL_DOMAIN:
        return None
    loss = exact(f, dist).mean()
    gradients = torch.autograd.grad(loss, parameters, retain_graph=True, materialize_grads=True)
    gradient = torch.cat([g.flatten() for g in gradients]).double()
    return Reference(gradient, torch.zeros_like(gradient))


def mean_of(unbiased: Mapping[str, GradientMoments], *, without: str) -> Reference | None:
    """Return the mean gradient of all unbiased estimators except one, each weighted by its precision."""
    others = [moments for name, moments in unbiased.items() if name != without]
    if not others:
        return None
    precision = torch.stack([1.0 / moments.trace for moments in others])
    if bool(precision.isinf().any()):
        precision = precision.isinf().double()  # some estimators are exact
    share = (precision / precision.sum()).unsqueeze(-1)
    gradient = (share * torch.stack([moments.mean for moments in others])).sum(0)
    errors = share * torch.stack([moments.mean_error for moments in others])
    return Reference(gradient, errors.square().sum(0).sqrt())


def z_score(moments: GradientMoments, reference: Reference | None, eps: float) -> float:
    """Return the distance of a mean gradient from its reference in standard errors; NaN without a reference.

    Args:
        moments: of the estimator.
        reference: what its mean should be.
        eps: the rounding error of the gradients; a difference of this order is ignored.
    """
    if reference is None:
        return math.nan
    rounding = 64 * eps * reference.gradient.abs().max()
    variance = moments.mean_error.square() + reference.error.square() + rounding.square()
    difference = (moments.mean - reference.gradient).abs()
    z = torch.where(difference == 0.0, 0.0, difference / variance.sqrt()).max()
    return _as_if_alone(float(z), len(difference))


def _as_if_alone(z: float, count: int) -> float:
    """Return the z of a single comparison that is as improbable as a maximum z of ``count`` comparisons.

    >>> round(_as_if_alone(4.0, 1), 6), round(_as_if_alone(4.0, 1000), 2)
    (4.0, 1.87)
    """
    if count == 1 or z > FAR:
        return z
    chance = math.erfc(z / math.sqrt(2.0))
    if chance == 1.0:
        return 0.0
    any_chance = -math.expm1(count * math.log1p(-chance))
    return abs(float(torch.special.ndtri(torch.tensor(0.5 * any_chance, dtype=torch.float64))))
