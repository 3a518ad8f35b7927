r"""Estimators that learn or remember, as modules: they checkpoint, move between devices and train.

Every module is called as the other estimators are, ``module(f, dist, k, generator=…)``. The gradient
that reaches the parameters of a module comes with that of the estimate, so one ``backward`` trains
the model and the estimator: give the optimiser the parameters of both.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from swor.baselines import MovingAverage
from swor.estimators.rebar_relax import ControlVariate, rebar, relax
from swor.estimators.relaxations import gumbel_softmax, straight_through
from swor.estimators.score_function import reinforce_moving_average
from swor.samplers.distributions import factorized
from swor.types import Cost

Generator = torch.Generator | None


class Relax(nn.Module):
    """:func:`swor.relax` with a control variate that is trained to minimise the squared gradient."""

    def __init__(self, control: ControlVariate) -> None:
        super().__init__()
        self.control = control

    def forward(
        self, f: Cost, dist: Distribution, k: int, *, generator: Generator = None
    ) -> Tensor:
        """(*batch,): the value estimates E[f], its gradient estimates ∇E[f]."""
        return relax(f, dist, k, control=self.control, generator=generator)


class Rebar(nn.Module):
    """:func:`swor.rebar` with a temperature and a scale that minimise the squared gradient."""

    def __init__(self, temperature: float = 0.5, scale: float = 1.0) -> None:
        super().__init__()
        self.log_temperature = nn.Parameter(torch.tensor(math.log(temperature)))
        self.scale = nn.Parameter(torch.tensor(scale))

    def forward(
        self, f: Cost, dist: Distribution, k: int, *, generator: Generator = None
    ) -> Tensor:
        """(*batch,): the value estimates E[f], its gradient estimates ∇E[f]."""
        temperature = self.log_temperature.exp()
        return rebar(f, dist, k, temperature=temperature, scale=self.scale, generator=generator)


class LearnedTemperature(nn.Module):
    """A relaxation whose temperature is trained with the model, by the gradient of the estimate.

    Args:
        relaxation: :func:`swor.gumbel_softmax` or :func:`swor.straight_through`.
        temperature: where it starts.
    """

    def __init__(self, relaxation: Callable[..., Tensor], temperature: float = 1.0) -> None:
        super().__init__()
        self.relaxation = relaxation
        self.log_temperature = nn.Parameter(torch.tensor(math.log(temperature)))

    def forward(
        self, f: Cost, dist: Distribution, k: int, *, generator: Generator = None
    ) -> Tensor:
        """(*batch,): the value estimates E[f], its gradient estimates ∇E[f]."""
        temperature = self.log_temperature.exp()
        return self.relaxation(f, dist, k, temperature=temperature, generator=generator)


class ReinforceMovingAverage(nn.Module):
    """:func:`swor.reinforce_moving_average` with the average that it remembers."""

    def __init__(self, decay: float = 0.9) -> None:
        super().__init__()
        self.average = MovingAverage(decay)

    def forward(
        self, f: Cost, dist: Distribution, k: int, *, generator: Generator = None
    ) -> Tensor:
        """(*batch,): the value estimates E[f], its gradient estimates ∇E[f]."""
        return reinforce_moving_average(f, dist, k, average=self.average, generator=generator)


def make_relax(dist: Distribution, generator: Generator) -> Relax:
    """RELAX with an untrained control variate of the size of a distribution."""
    variables = factorized(dist)
    return Relax(ControlVariate(variables.length, variables.categories, generator=generator))


def make_rebar(dist: Distribution, generator: Generator) -> Rebar:
    """REBAR at its initial temperature and scale."""
    return Rebar()


def make_gumbel_softmax(dist: Distribution, generator: Generator) -> LearnedTemperature:
    """Gumbel-Softmax at its initial temperature."""
    return LearnedTemperature(gumbel_softmax)


def make_straight_through(dist: Distribution, generator: Generator) -> LearnedTemperature:
    """Straight-through Gumbel-Softmax at its initial temperature."""
    return LearnedTemperature(straight_through)


def make_moving_average(dist: Distribution, generator: Generator) -> ReinforceMovingAverage:
    """REINFORCE with an average that has seen nothing yet."""
    return ReinforceMovingAverage()


def warm_up(
    estimator: object,
    loss: Callable[[int], Tensor],
    steps: int,
    *,
    learning_rate: float = 1e-3,
) -> int:
    """Train what an estimator learns while the model stays as it is.

    Args:
        estimator: what :meth:`swor.Estimator.make` returned; one without state is left alone.
        loss: from the number of a step to a scalar that was estimated with ``estimator``. An
            estimator that remembers, such as a moving average, takes in the costs of each call.
        steps: how many.
        learning_rate: of Adam.

    Returns:
        The number of steps that were taken: 0 for an estimator that has no state.
    """
    if not isinstance(estimator, nn.Module):
        return 0
    parameters = list(estimator.parameters())
    optimizer = torch.optim.Adam(parameters, lr=learning_rate) if parameters else None
    for step in range(steps):
        value = loss(step)
        if optimizer is None:
            continue
        gradients = torch.autograd.grad(value, parameters, retain_graph=True)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        optimizer.step()
        optimizer.zero_grad()
    return steps
