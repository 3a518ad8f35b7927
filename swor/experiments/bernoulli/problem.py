r"""$L(\eta) = E\bigl[\sum_{i=1}^3 (x_i - p_i)^2\bigr]$, $x_i \sim \text{Bernoulli}(\sigma(\eta))$.

A problem of one parameter (Liu et al. 2019). Three independent bits are one variable of eight
outcomes; its log-probabilities are computed from the number of ones, so that outcomes that tie do
so to the last bit, and the likeliest are chosen by index.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributions import Categorical

TARGET = (0.6, 0.51, 0.48)


_BIT = torch.tensor([0.0, 1.0], dtype=torch.float64)
OUTCOMES = torch.cartesian_prod(_BIT, _BIT, _BIT)  # (8, 3)
COSTS = (OUTCOMES - torch.tensor(TARGET, dtype=torch.float64)).square().sum(-1)  # (8,)


def distribution(eta: Tensor) -> Categorical:
    """The eight outcomes, for every element of eta (*batch,)."""
    ones = OUTCOMES.sum(-1)
    eta = eta.unsqueeze(-1)
    return Categorical(logits=ones * F.logsigmoid(eta) + (3.0 - ones) * F.logsigmoid(-eta))


def cost(index: Tensor) -> Tensor:
    """The squared distance from the target, of outcomes by their index.

    >>> cost(torch.tensor(7))  # all bits 1
    tensor(0.6705, dtype=torch.float64)
    """
    return COSTS[index]
