r"""Whether a measured variance rests on enough draws to be trusted.

Where a policy is confident, or a rare outcome has a large cost, most estimates are alike, and the variance is
that of a few others. If too few of these were drawn, the measured variance and its standard error are both
too small, by any factor. So the rare draws are counted, and where the domain was enumerated, the
number to expect is computed as well, because draws cannot tell what they missed.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.distributions import Distribution

from swor.diagnostics._gradients import Enumerated
from swor.diagnostics._streaming import GradientMoments
from swor.estimators.estimator import Estimator, EstimatorLike
from swor.samplers.distributions import factorized
from swor.types import Sample, Scheme

FEWEST_HITS = 30  # estimates that carry a variance
RARE = 1e-6  # the probability of a rare outcome
FEWEST_DRAWS = 100  # expected draws of something other than the most probable outcome
LONGEST_LOG_TIME = 750.0  # by then every outcome of a positive probability has arrived
HALVINGS = 64


def enough(
    moments: GradientMoments,
    estimator: EstimatorLike,
    dist: Distribution,
    k: int,
    rounding: float,
    domain: Enumerated | None,
) -> bool:
    """Return whether a measured variance, and a measured bias, can be trusted.

    A variance that is due to rounding alone needs no hits. The domain is None if it is not known.
    """
    if moments.repeats * draws_outside_mode(estimator, dist, k) < FEWEST_DRAWS:
        return False
    if domain is not None and moments.repeats * expected_hits(estimator, domain, k) < FEWEST_HITS:
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


def expected_hits(estimator: EstimatorLike, domain: Enumerated, k: int) -> float:
    r"""Return the effective number of draws per estimate that carry the variance, from the true costs.

    $$\frac{\bigl(\sum_x \pi_x d_x\bigr)^2}{\sum_x \pi_x d_x^2}, \qquad
    d_x = \Bigl(\frac{p_x (f_x - E[f])}{\pi_x}\Bigr)^2$$

    $\pi_x$ is the expected number of draws of the outcome $x$, and the weight of an unbiased estimator is
    about $p_x / \pi_x$, so $d_x$ is what a draw adds to the squared deviation of the estimate. If one outcome
    carries all of it, the number is $\pi_x$. It is infinite if all costs are equal.
    """
    p, cost = domain.log_p.double().exp(), domain.cost.double()
    share = p * (cost - (p * cost).sum(-1, keepdim=True))
    pi = _expected_draws(estimator, domain.log_p.double(), k)
    weighted = torch.where(pi > 0.0, share / pi, 0.0)
    carried, squares = (share * weighted).sum(), (share * weighted**3).sum()
    return float(carried**2 / squares) if squares > 0.0 else math.inf


def _expected_draws(estimator: EstimatorLike, log_p: Tensor, k: int) -> Tensor:
    """Return the expected number of draws of each outcome in an estimate, (*batch, |D|)."""
    if k == 1 or not (isinstance(estimator, Estimator) and _weighs_by_probability(estimator)):
        return k * log_p.exp()
    if estimator.scheme == Scheme.TOP_K_AND_SAMPLE:
        summed = log_p.argsort(-1, descending=True).argsort(-1) < k - 1
        return torch.where(summed, 1.0, log_p.masked_fill(summed, -torch.inf).softmax(-1))
    return _inclusion(log_p, k)


def _inclusion(log_p: Tensor, k: int) -> Tensor:
    r"""Return approximate inclusion probabilities of k distinct samples, (*batch, n).

    $$\pi_x = 1 - e^{-p_x t}, \qquad \sum_x \pi_x = k$$

    Each outcome arrives after an exponential time of rate $p_x$, and the sample consists of the first k. As
    an approximation, the time $t$ of the last of them is fixed; it is found by bisection.
    """
    low = torch.full_like(log_p[..., :1], math.log(k))  # the sum is at most t
    high = torch.full_like(low, LONGEST_LOG_TIME)
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        few = _arrived(log_p, middle).sum(-1, keepdim=True) < k
        low, high = torch.where(few, middle, low), torch.where(few, high, middle)
    return _arrived(log_p, high)


def _arrived(log_p: Tensor, log_t: Tensor) -> Tensor:
    """Return the probability that an outcome has arrived at a time."""
    return -torch.expm1(-torch.exp(log_p + log_t))


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
