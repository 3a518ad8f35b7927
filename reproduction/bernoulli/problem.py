r"""$L(\eta) = E\bigl[\sum_{i=1}^3 (x_i - p_i)^2\bigr]$, $x_i \sim \text{Bernoulli}(\sigma(\eta))$.

A problem of one parameter (Liu et al. 2019), and the estimators that Figure 1 compares on it. Three
independent bits are one variable of eight outcomes. Their log-probabilities are computed from the
number of ones, so that ties are exact, and the likeliest outcomes are then chosen by index.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributions import Categorical

from swor.estimators.registry import ESTIMATORS
from swor.estimators.score_function import ScoreFunctionEstimator

TARGET = (0.6, 0.51, 0.48)

_BIT = torch.tensor([0.0, 1.0], dtype=torch.float64)
OUTCOMES = torch.cartesian_prod(_BIT, _BIT, _BIT)  # (8, 3)
COSTS = (OUTCOMES - torch.tensor(TARGET, dtype=torch.float64)).square().sum(-1)  # (8,)


def distribution(eta: Tensor) -> Categorical:
    """Return the distribution of the eight outcomes for every element of eta (*batch,)."""
    ones = OUTCOMES.sum(-1)
    eta = eta.unsqueeze(-1)
    return Categorical(logits=ones * F.logsigmoid(eta) + (3.0 - ones) * F.logsigmoid(-eta))


def cost(index: Tensor) -> Tensor:
    """Return the squared distance of outcomes, given by their index, from the target.

    >>> cost(torch.tensor(7))  # all bits 1
    tensor(0.6705, dtype=torch.float64)
    """
    return COSTS[index]


class Curve(NamedTuple):
    """An estimator of Figure 1: its name, and what its exact variance depends on."""

    name: str
    ordered: bool = False  # the order of the sample
    kappa: bool = False  # the threshold

    @property
    def estimate(self) -> ScoreFunctionEstimator:
        """The rule, its scheme and its baseline."""
        estimate = ESTIMATORS[self.name].function
        assert isinstance(estimate, ScoreFunctionEstimator)
        return estimate


CURVES = (
    Curve("reinforce_no_baseline"),
    Curve("reinforce_sampled_baseline"),
    Curve("rloo"),
    Curve("deterministic_sum_and_sample"),
    Curve("deterministic_sum_and_sample_sampled_baseline"),
    Curve("sum_and_sample", ordered=True),
    Curve("sum_and_sample_sampled_baseline", ordered=True),
    Curve("importance_weighted", kappa=True),
    Curve("unordered_set_no_baseline"),
    Curve("unordered_set"),
)
