"""Training of an estimator that learns, while the model stays as it is."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


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
        if optimizer is None or not value.requires_grad:
            continue
        gradients = torch.autograd.grad(
            value, parameters, retain_graph=True, materialize_grads=True
        )
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        optimizer.step()
        optimizer.zero_grad()
    return steps
