"""The exact variance of the gradient for every curve and k, and the Monte Carlo check of it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import torch

from swor.diagnostics.enumeration import exact_moments
from swor.diagnostics.variance import gradient_moments
from swor.experiments.bernoulli.curves import CURVES, Curve
from swor.experiments.bernoulli.problem import cost, distribution

K = range(1, 9)


class Variance(NamedTuple):
    """A point of the figure."""

    eta: float
    estimator: str
    k: int
    evaluations: int
    variance: float
    log_variance: float
    method: str


class Check(NamedTuple):
    """The same point by Monte Carlo."""

    eta: float
    estimator: str
    k: int
    repeats: int
    variance: float
    standard_error: float
    exact_variance: float
    z: float


def exact_variances(etas: Iterable[float]) -> list[Variance]:
    """All points of the figure."""
    return [exact_variance(eta, curve, k) for eta in etas for curve in CURVES for k in K]


def exact_variance(eta: float, curve: Curve, k: int) -> Variance:
    """Var[dL/dη] by enumeration; by quadrature over the threshold where the estimate depends on it.

    >>> from swor.experiments.bernoulli.curves import CURVES
    >>> round(exact_variance(0.0, CURVES[0], 1).variance, 4)
    0.4384
    """
    parameter = torch.tensor(eta, dtype=torch.float64, requires_grad=True)
    moments = exact_moments(
        curve.estimate.rule,
        curve.estimate.scheme,
        cost,
        distribution(parameter),
        k,
        [parameter],
        baseline=curve.estimate.baseline,
        ordered=curve.ordered,
        kappa=curve.kappa,
    )
    variance = float(moments.total_variance)
    log_variance = math.log(variance) if variance > 0.0 else -math.inf
    method = "quadrature" if curve.kappa and k < K[-1] else "enumeration"
    if variance == math.inf:
        method = "analysis"
    return Variance(
        eta, curve.name, k, curve.estimate.evaluations(k), variance, log_variance, method
    )


def monte_carlo(point: Variance, repeats: int, generator: torch.Generator) -> Check:
    """The variance of sampled gradients.

    Where the fourth moment comes from events rarer than 1 / repeats, or is infinite as for importance
    weights, the standard error is too small.
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
