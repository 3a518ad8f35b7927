r"""Whether enough draws decide a measured variance for it to be trusted.

Where a policy is confident, most estimates are the same, and the variance is that of a few rare ones. If too
few of these were drawn, the measured variance and its standard error are both too small, by any factor.
"""

from __future__ import annotations

import math

import torch
from torch.distributions import Distribution

from swor.diagnostics._streaming import GradientMoments
from swor.estimators.estimator import Estimator, EstimatorLike
from swor.samplers.distributions import factorized
from swor.types import Sample, Scheme

FEWEST_HITS = 30  # estimates that carry a variance
RARE = 1e-6  # the probability of a rare outcome
FEWEST_DRAWS = 100  # expected draws of something other than the most probable outcome


def enough(
    moments: GradientMoments, estimator: EstimatorLike, dist: Distribution, k: int, rounding: float
) -> bool:
    """Return whether a measured variance, and a measured bias, can be trusted.

    Args:
        moments: what was measured.
        estimator: of which.
        dist: the distribution.
        k: the number of samples.
        rounding: the variance that is due to rounding.
    """
    if moments.repeats * draws_outside_mode(estimator, dist, k) < FEWEST_DRAWS:
        return False
    return float(moments.trace) <= rounding or hits(moments) >= FEWEST_HITS


def hits(moments: GradientMoments) -> float:
    r"""Return the effective number of estimates that carry the variance.

    $$\frac{(\sum_i d_i)^2}{\sum_i d_i^2}$$

    Here $d_i$ is the squared deviation of a gradient from the mean. If $h$ gradients deviate equally and all
    others not at all, it is $h$.
    """
    relative = float(moments.trace_error / moments.trace)
    return 1.0 / (relative**2 + 1.0 / (moments.repeats - 1))


def draws_outside_mode(estimator: EstimatorLike, dist: Distribution, k: int) -> float:
    """Return the expected number of draws per estimate that are not of the most probable outcome.

    It is infinite for estimators of distinct samples, which always have other outcomes, if they never give
    a rare one a large weight.
    """
    if k > 1 and isinstance(estimator, Estimator) and _weighs_by_probability(estimator):
        return math.inf
    log_mode = factorized(dist).log_probs.detach().double().amax(-1).sum(-1)
    return k * float(-torch.expm1(log_mode).sum())


def _weighs_by_probability(estimator: Estimator) -> bool:
    """Return whether a rare outcome has a small weight, even if it is drawn before the most probable one."""
    if estimator.rule is None or estimator.scheme != Scheme.WITHOUT_REPLACEMENT:
        return estimator.scheme == Scheme.TOP_K_AND_SAMPLE
    log_p = torch.tensor([RARE, 1.0 - 2.0 * RARE], dtype=torch.float64).log()
    rest = log_p[0]
    drawn = Sample(log_p, log_p, rest, rest, scheme=Scheme.WITHOUT_REPLACEMENT)
    return float(estimator.rule(drawn).weight[0]) < math.sqrt(RARE)
