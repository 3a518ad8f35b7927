"""The optimisation: plain gradient descent on η with estimated and with exact gradients."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributions import Categorical

from swor.diagnostics.enumeration import exact
from swor.estimators.registry import ESTIMATORS
from swor.experiments.bernoulli.problem import cost, distribution
from swor.experiments.bernoulli.settings import Settings

GRADIENTS = ("exact", "unordered_set", "reinforce")


class Point(NamedTuple):
    """A step: means over the runs, and the loss of the 10th and the 90th run of 100."""

    estimator: str
    step: int
    eta_mean: float
    loss_mean: float
    loss_10: float
    loss_90: float


def trajectories(settings: Settings) -> list[Point]:
    """Every step of every optimisation, the start included."""
    return [point for name in GRADIENTS for point in _points(name, trajectory(name, settings))]


def trajectory(name: str, settings: Settings) -> Tensor:
    """The way of η in all runs, (steps + 1, runs)."""
    generator = torch.Generator().manual_seed(settings.seed)
    eta = torch.full((settings.runs,), settings.start, dtype=torch.float64)
    path = [eta]
    for _ in range(settings.steps):
        eta = eta - settings.learning_rate * _gradient(name, eta, settings.k, generator)
        path.append(eta)
    return torch.stack(path)


def _gradient(name: str, eta: Tensor, k: int, generator: torch.Generator) -> Tensor:
    eta = eta.clone().requires_grad_()
    loss = _loss(name, distribution(eta), k, generator)
    return torch.autograd.grad(loss.sum(), eta)[0]


def _loss(name: str, dist: Categorical, k: int, generator: torch.Generator) -> Tensor:
    if name == "exact":
        return exact(cost, dist)
    return ESTIMATORS[name](cost, dist, k, generator=generator)


def _points(name: str, eta: Tensor) -> list[Point]:
    loss = exact(cost, distribution(eta))
    quantiles = loss.quantile(torch.tensor([0.1, 0.9], dtype=loss.dtype), dim=-1)
    columns = torch.stack([eta.mean(-1), loss.mean(-1), *quantiles], dim=-1).tolist()
    return [Point(name, step, *column) for step, column in enumerate(columns)]
