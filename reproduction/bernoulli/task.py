"""The exact variance of every estimator, its Monte Carlo check, and the optimisation."""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import pandas as pd
import torch
from torch import Tensor

from reproduction.bernoulli.problem import CURVES, Curve, cost, distribution
from swor.diagnostics.enumeration import exact, exact_moments
from swor.diagnostics.moments import gradient_moments
from swor.estimators.registry import ESTIMATORS

ETAS, K = (0.0, -4.0), range(1, 9)  # of the panels of Figure 1, and of their points
GRADIENTS = ("exact", "unordered_set", "rloo")
START, LEARNING_RATE, SAMPLES = -4.0, 1.0, 3  # of the optimisation


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


def exact_variances() -> list[Variance]:
    """Return all points of the figure."""
    return [exact_variance(eta, curve, k) for eta in ETAS for curve in CURVES for k in K]


def exact_variance(eta: float, curve: Curve, k: int) -> Variance:
    """Return Var[dL/dη] by enumeration, or by quadrature if the estimate depends on the threshold.

    >>> round(exact_variance(0.0, CURVES[0], 1).variance, 4)
    0.4384
    """
    estimate = curve.estimate
    parameter = torch.tensor(eta, dtype=torch.float64, requires_grad=True)
    measure = partial(exact_moments, estimate.rule, estimate.scheme, baseline=estimate.baseline)
    problem = (cost, distribution(parameter), k, [parameter])
    moments = measure(*problem, ordered=curve.ordered, kappa=curve.kappa)
    variance = float(moments.total_variance)
    log_variance = math.log(variance) if variance > 0.0 else -math.inf
    method = "quadrature" if curve.kappa and k < K[-1] else "enumeration"
    method = "analysis" if variance == math.inf else method
    evaluations = estimate.evaluations(k)
    return Variance(eta, curve.name, k, evaluations, variance, log_variance, method)


def monte_carlo(point: Variance, repeats: int, generator: torch.Generator) -> Check:
    """Estimate the variance from sampled gradients.

    The standard error is too small where the fourth moment comes from events rarer than
    1 / repeats, or is infinite as for importance weights.
    """
    eta = torch.tensor(point.eta, dtype=torch.float64, requires_grad=True)
    problem = (point.estimator, cost, distribution(eta), [eta])
    moments = gradient_moments(*problem, k=point.k, repeats=repeats, generator=generator)
    variance, error = float(moments.trace), float(moments.trace_error)
    difference = variance - point.variance
    settled = 0.0 if abs(difference) < 1e-20 else math.inf
    z = difference / error if error > 1e-20 else settled
    return Check(point.eta, point.estimator, point.k, repeats, variance, error, point.variance, z)


def trajectories(runs: int, steps: int, seed: int) -> pd.DataFrame:
    """Return every step of gradient descent on η, with estimated and with exact gradients.

    A row has the means over the runs, and two percentiles of the loss.
    """
    parts = []
    for name in GRADIENTS:
        eta = trajectory(name, runs, steps, seed)
        loss = exact(cost, distribution(eta))
        low, high = loss.quantile(torch.tensor([0.1, 0.9], dtype=loss.dtype), dim=-1)
        means = {"eta_mean": eta.mean(-1), "loss_mean": loss.mean(-1)}
        columns = {n: x.numpy() for n, x in (means | {"loss_10": low, "loss_90": high}).items()}
        parts.append(pd.DataFrame({"estimator": name, "step": range(steps + 1)} | columns))
    return pd.concat(parts, ignore_index=True)


def trajectory(name: str, runs: int, steps: int, seed: int) -> Tensor:
    """Return η in every step of all runs, (steps + 1, runs)."""
    generator = torch.Generator().manual_seed(seed)
    path = [torch.full((runs,), START, dtype=torch.float64)]
    for _ in range(steps):
        eta = path[-1].clone().requires_grad_()
        if name == "exact":
            loss = exact(cost, distribution(eta))
        else:
            loss = ESTIMATORS[name](cost, distribution(eta), SAMPLES, generator=generator)
        (gradient,) = torch.autograd.grad(loss.sum(), eta)
        path.append(path[-1] - LEARNING_RATE * gradient)
    return torch.stack(path)
