"""The exact variance of every estimator, its Monte Carlo check, and the optimisation."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributions import Categorical

from reproduction.bernoulli.problem import CURVES, Curve, cost, distribution
from reproduction.bernoulli.settings import BernoulliSettings
from swor.diagnostics.enumeration import exact, exact_moments
from swor.diagnostics.moments import gradient_moments
from swor.estimators.registry import ESTIMATORS

K = range(1, 9)
GRADIENTS = ("exact", "unordered_set", "rloo")


class Variance(NamedTuple):
    """A point of Figure 1: the exact variance of an estimator."""

    eta: float
    estimator: str
    k: int
    evaluations: int
    variance: float
    log_variance: float
    method: str


class Check(NamedTuple):
    """The same point, estimated by Monte Carlo."""

    eta: float
    estimator: str
    k: int
    repeats: int
    variance: float
    standard_error: float
    exact_variance: float
    z: float


class Point(NamedTuple):
    """A step of the optimisation: means over the runs, and two percentiles of the loss."""

    estimator: str
    step: int
    eta_mean: float
    loss_mean: float
    loss_10: float
    loss_90: float


def exact_variances(etas: Iterable[float]) -> list[Variance]:
    """Return all points of the figure."""
    return [exact_variance(eta, curve, k) for eta in etas for curve in CURVES for k in K]


def exact_variance(eta: float, curve: Curve, k: int) -> Variance:
    """Return Var[dL/dη] by enumeration, or by quadrature if the estimate depends on the threshold.

    >>> round(exact_variance(0.0, CURVES[0], 1).variance, 4)
    0.4384
    """
    estimate = curve.estimate
    parameter = torch.tensor(eta, dtype=torch.float64, requires_grad=True)
    moments = exact_moments(
        estimate.rule,
        estimate.scheme,
        cost,
        distribution(parameter),
        k,
        [parameter],
        baseline=estimate.baseline,
        ordered=curve.ordered,
        kappa=curve.kappa,
    )
    variance = float(moments.total_variance)
    log_variance = math.log(variance) if variance > 0.0 else -math.inf
    method = "quadrature" if curve.kappa and k < K[-1] else "enumeration"
    if variance == math.inf:
        method = "analysis"
    evaluations = estimate.evaluations(k)
    return Variance(eta, curve.name, k, evaluations, variance, log_variance, method)


def monte_carlo(point: Variance, repeats: int, generator: torch.Generator) -> Check:
    """Estimate the variance from sampled gradients.

    The standard error is too small where the fourth moment comes from events rarer than
    1 / repeats, or is infinite as for importance weights.
    """
    eta = torch.tensor(point.eta, dtype=torch.float64, requires_grad=True)
    moments = gradient_moments(
        point.estimator,
        cost,
        distribution(eta),
        [eta],
        k=point.k,
        repeats=repeats,
        generator=generator,
    )
    variance, error = float(moments.trace), float(moments.trace_error)
    difference = variance - point.variance
    settled = 0.0 if abs(difference) < 1e-20 else math.inf
    z = difference / error if error > 1e-20 else settled
    return Check(point.eta, point.estimator, point.k, repeats, variance, error, point.variance, z)


def trajectories(settings: BernoulliSettings) -> list[Point]:
    """Return every step of gradient descent on η, with estimated and with exact gradients."""
    return [point for name in GRADIENTS for point in _points(name, trajectory(name, settings))]


def trajectory(name: str, settings: BernoulliSettings) -> Tensor:
    """Return η in every step of all runs, (steps + 1, runs)."""
    generator = torch.Generator().manual_seed(settings.seed)
    eta = torch.full((settings.runs,), settings.start, dtype=torch.float64)
    path = [eta]
    for _ in range(settings.steps):
        eta = eta.clone().requires_grad_()
        loss = _loss(name, distribution(eta), settings.k, generator)
        (gradient,) = torch.autograd.grad(loss.sum(), eta)
        eta = eta.detach() - settings.learning_rate * gradient
        path.append(eta)
    return torch.stack(path)


def _loss(name: str, dist: Categorical, k: int, generator: torch.Generator) -> Tensor:
    if name == "exact":
        return exact(cost, dist)
    return ESTIMATORS[name](cost, dist, k, generator=generator)


def _points(name: str, eta: Tensor) -> list[Point]:
    loss = exact(cost, distribution(eta))
    quantiles = loss.quantile(torch.tensor([0.1, 0.9], dtype=loss.dtype), dim=-1)
    columns = torch.stack([eta.mean(-1), loss.mean(-1), *quantiles], dim=-1).tolist()
    return [Point(name, step, *column) for step, column in enumerate(columns)]
