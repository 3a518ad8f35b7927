"""A problem of five outcomes, and exact moments of rules on it."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributions import Categorical

from swor.diagnostics.enumeration import ExactMoments, exact_moments

PROBABILITIES = (0.4, 0.25, 0.2, 0.1, 0.05)


COSTS = torch.tensor([1.0, -0.5, 2.0, 0.3, 4.0], dtype=torch.float64)


def cost(index: Tensor) -> Tensor:
    return COSTS[index]


def logits(probabilities: tuple[float, ...] = PROBABILITIES) -> Tensor:
    return torch.tensor(probabilities, dtype=torch.float64).log().requires_grad_()


def moments(rule, scheme, k, **options) -> ExactMoments:
    parameter = logits()
    return exact_moments(
        rule, scheme, cost, Categorical(logits=parameter), k, [parameter], **options
    )


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)
