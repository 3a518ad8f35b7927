"""Estimators that learn or remember, as modules that checkpoint, move between devices and train.

Every module is called like the other estimators, ``module(f, dist, k, generator=…)``. The estimate also
carries the gradient of the module's parameters, so one ``backward`` trains the model and the estimator.
Give the optimiser the parameters of both.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from swor.estimators.baselines import MovingAverage
from swor.estimators.rebar_relax import ControlVariate, rebar, relax
from swor.estimators.relaxed import gumbel_softmax, straight_through
from swor.estimators.score_function import reinforce_moving_average
from swor.samplers.distributions import factorized
from swor.types import Cost

Generator = torch.Generator | None


class Relax(nn.Module):
    """RELAX, :func:`swor.relax`, with a control variate that is trained to minimise the squared gradient.

    Args:
        control: the control variate.
    """

    def __init__(self, control: ControlVariate) -> None:
        super().__init__()
        self.control = control

    def forward(
        self, f: Cost, dist: Distribution, k: int, *, generator: Generator = None
    ) -> Tensor:
        """Return an estimate of E[f] whose gradient is an estimate of ∇E[f], (*batch,)."""
        return relax(f, dist, k, control=self.control, generator=generator)


class Rebar(nn.Module):
    """REBAR, :func:`swor.rebar`, with a temperature and a scale that minimise the squared gradient.

    Args:
        temperature: its initial value.
        scale: its initial value.
    """

    def __init__(self, temperature: float = 0.5, scale: float = 1.0) -> None:
        super().__init__()
        self.log_temperature = nn.Parameter(torch.tensor(math.log(temperature)))
        self.scale = nn.Parameter(torch.tensor(scale))

    def forward(
        self, f: Cost, dist: Distribution, k: int, *, generator: Generator = None
    ) -> Tensor:
        """Return an estimate of E[f] whose gradient is an estimate of ∇E[f], (*batch,)."""
        temperature = self.log_temperature.exp()
        return rebar(f, dist, k, temperature=temperature, scale=self.scale, generator=generator)


class LearnedTemperature(nn.Module):
    """A relaxation whose temperature is trained with the model, by the gradient of the estimate.

    Args:
        relaxation: :func:`swor.gumbel_softmax` or :func:`swor.straight_through`.
        temperature: its initial value.
    """

    def __init__(self, relaxation: Callable[..., Tensor], temperature: float = 1.0) -> None:
        super().__init__()
        self.relaxation = relaxation
        self.log_temperature = nn.Parameter(torch.tensor(math.log(temperature)))

    def forward(
        self, f: Cost, dist: Distribution, k: int, *, generator: Generator = None
    ) -> Tensor:
        """Return a biased estimate of E[f] whose gradient is a biased estimate of ∇E[f], (*batch,)."""
        temperature = self.log_temperature.exp()
        return self.relaxation(f, dist, k, temperature=temperature, generator=generator)


class ReinforceMovingAverage(nn.Module):
    """REINFORCE with a moving average, :func:`swor.reinforce_moving_average`, which the module stores.

    Args:
        decay: of the average.
    """

    def __init__(self, decay: float = 0.9) -> None:
        super().__init__()
        self.average = MovingAverage(decay)

    def forward(
        self, f: Cost, dist: Distribution, k: int, *, generator: Generator = None
    ) -> Tensor:
        """Return an estimate of E[f] whose gradient is an estimate of ∇E[f], (*batch,)."""
        return reinforce_moving_average(f, dist, k, average=self.average, generator=generator)


def make_relax(dist: Distribution, generator: Generator) -> Relax:
    """Return RELAX with an untrained control variate that fits the size of a distribution."""
    variables = factorized(dist)
    return Relax(ControlVariate(variables.length, variables.categories, generator=generator))


def make_rebar(dist: Distribution, generator: Generator) -> Rebar:
    """Return REBAR with its initial temperature and scale."""
    return Rebar()


def make_gumbel_softmax(dist: Distribution, generator: Generator) -> LearnedTemperature:
    """Return Gumbel-Softmax with its initial temperature."""
    return LearnedTemperature(gumbel_softmax)


def make_straight_through(dist: Distribution, generator: Generator) -> LearnedTemperature:
    """Return straight-through Gumbel-Softmax with its initial temperature."""
    return LearnedTemperature(straight_through)


def make_moving_average(dist: Distribution, generator: Generator) -> ReinforceMovingAverage:
    """Return REINFORCE with a moving average of no costs yet."""
    return ReinforceMovingAverage()


def warm_up(
    estimator: object,
    loss: Callable[[int], Tensor],
    steps: int,
    *,
    learning_rate: float = 1e-3,
) -> int:
    """Train an estimator while the model stays as it is.

    Args:
        estimator: the result of :meth:`swor.Estimator.make`. One without state is not changed.
        loss: from the number of a step to a scalar loss that ``estimator`` computed. Each call also
            updates an estimator that remembers, such as a moving average.
        steps: the number of steps.
        learning_rate: of Adam.

    Returns:
        The number of steps that were taken, which is 0 for an estimator without state.

    >>> import swor
    >>> dist = torch.distributions.Categorical(logits=torch.zeros(5, 3))
    >>> estimator = swor.ESTIMATORS["relax"].make(dist)
    >>> warm_up(estimator, lambda step: estimator(lambda x: x / 3, dist, 2).mean(), 10)
    10

    References:
        | Adam: A Method for Stochastic Optimization (Kingma and Ba, 2015)
        | https://arxiv.org/abs/1412.6980
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
