r"""Is the mean of many gradients the true gradient?

$$z = \max_i \frac{|\bar g_i - \nabla_i|}{\text{standard error}_i},$$

with the chance that the largest of so many parameters is this far off by luck taken into account, so
that it reads as the z-score of a single comparison. Beyond 6 there is a bias; gradients that are large
but rare, of which few repeats have seen too few, may come to 4 or 5 without one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributions import Distribution

from swor.diagnostics.enumeration import exact
from swor.diagnostics.variance import GradientMoments
from swor.samplers.distributions import factorized
from swor.types import Cost

SMALL_DOMAIN = 2**14  # evaluations of f that the exact gradient may take
FAR = 37.0  # beyond, the chance itself underflows


class Reference(NamedTuple):
    """What a mean gradient is compared with."""

    gradient: Tensor  # (parameters,)
    error: Tensor  # (parameters,), 0 if it is exact


def exact_reference(f: Cost, dist: Distribution, parameters: Sequence[Tensor]) -> Reference | None:
    """The exact gradient of the batch's mean, if the domain is small enough; otherwise None."""
    if factorized(dist).outcomes * max(1, dist.batch_shape.numel()) > SMALL_DOMAIN:
        return None
    loss = exact(f, dist).mean()
    gradients = torch.autograd.grad(loss, parameters, retain_graph=True, materialize_grads=True)
    gradient = torch.cat([g.flatten() for g in gradients]).double()
    return Reference(gradient, torch.zeros_like(gradient))


def mean_of(unbiased: Mapping[str, GradientMoments], *, without: str) -> Reference | None:
    """The mean of unbiased estimators other than one, each weighted by its precision."""
    others = [moments for name, moments in unbiased.items() if name != without]
    if not others:
        return None
    precision = torch.stack([1.0 / moments.trace for moments in others])
    if bool(precision.isinf().any()):
        precision = precision.isinf().double()  # some are exact
    share = (precision / precision.sum()).unsqueeze(-1)
    gradient = (share * torch.stack([moments.mean for moments in others])).sum(0)
    errors = share * torch.stack([moments.mean_error for moments in others])
    return Reference(gradient, errors.square().sum(0).sqrt())


def z_score(moments: GradientMoments, reference: Reference | None, eps: float) -> float:
    """How many standard errors a mean gradient is off; NaN where there is nothing to compare with.

    Args:
        moments: of the estimator.
        reference: what its mean should be.
        eps: rounding of the gradients; a difference of this order is none.
    """
    if reference is None:
        return math.nan
    rounding = 64 * eps * reference.gradient.abs().max()
    variance = moments.mean_error.square() + reference.error.square() + rounding.square()
    difference = (moments.mean - reference.gradient).abs()
    z = torch.where(difference == 0.0, 0.0, difference / variance.sqrt()).max()
    return _as_if_alone(float(z), len(difference))


def _as_if_alone(z: float, count: int) -> float:
    r"""The z of a single comparison as unlikely as this one is as the largest of ``count``.

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
