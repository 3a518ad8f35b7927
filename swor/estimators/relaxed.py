"""Gumbel-Softmax, straight-through and ReinMax: biased gradients through a continuous relaxation."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from swor.estimators._variables import (
    checked_temperature,
    evaluate_relaxed,
    perturbed,
    relaxable,
    tempered_softmax,
)
from swor.types import Cost, score


def gumbel_softmax(
    f: Cost,
    dist: Distribution,
    k: int,
    *,
    temperature: float | Tensor = 1.0,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""The Gumbel-Softmax or Concrete estimator: the mean cost of relaxed samples.

    $$\frac1k \sum_s f(y_s), \qquad y = \text{softmax}((\log p + \text{Gumbel}) / \tau)$$

    The value and the gradient are those of the relaxed problem, so both are biased. A lower temperature
    reduces the bias and increases the variance. Use it if f is differentiable and defined inside the
    simplex.

    Args:
        f: the cost, from relaxed values (*batch, k, *event) to (*batch, k).
        dist: OneHotCategorical, Bernoulli, or Independent of these.
        k: the number of samples.
        temperature: τ > 0, a number or a tensor with one element. It is trained if it requires gradient.
        generator: the source of randomness.

    Returns:
        (*batch,)

    >>> dist = torch.distributions.OneHotCategorical(logits=torch.zeros(5, 3))
    >>> gumbel_softmax(lambda y: y[..., 0], dist, 4).shape
    torch.Size([5])

    References:
        | Categorical Reparameterization with Gumbel-Softmax (Jang et al., 2017)
        | https://arxiv.org/abs/1611.01144

        | The Concrete Distribution: A Continuous Relaxation of Discrete Random Variables
        | (Maddison et al., 2017)
        | https://arxiv.org/abs/1611.00712
    """
    variables = relaxable("gumbel_softmax", dist, k)
    z = perturbed(variables.log_probs, k, generator)
    y = tempered_softmax(z, checked_temperature(temperature))
    return evaluate_relaxed(variables, f, y).mean(-1)


def straight_through(
    f: Cost,
    dist: Distribution,
    k: int,
    *,
    temperature: float | Tensor = 1.0,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Straight-through Gumbel-Softmax: discrete samples with the gradient of relaxed ones.

    $$\frac1k \sum_s f(x_s), \qquad x = \text{onehot}(\arg\max y), \quad \nabla x := \nabla y$$

    f is evaluated at discrete outcomes only, so the value is unbiased. The gradient is that of the relaxed
    sample $y$ of :func:`gumbel_softmax`, and is biased. Use it if f is differentiable but should not see
    relaxed values.

    Args:
        f: the differentiable cost, from values (*batch, k, *event) to (*batch, k).
        dist: OneHotCategorical, Bernoulli, or Independent of these.
        k: the number of samples.
        temperature: τ > 0, a number or a tensor with one element. It is trained if it requires gradient.
        generator: the source of randomness.

    Returns:
        (*batch,)

    >>> dist = torch.distributions.Bernoulli(logits=torch.zeros(()))
    >>> float(straight_through(lambda x: x, dist, 1)) in (0.0, 1.0)
    True

    References:
        | Categorical Reparameterization with Gumbel-Softmax (Jang et al., 2017)
        | https://arxiv.org/abs/1611.01144

        | Estimating or Propagating Gradients Through Stochastic Neurons for Conditional
        | Computation (Bengio et al., 2013)
        | https://arxiv.org/abs/1308.3432
    """
    variables = relaxable("straight_through", dist, k)
    z = perturbed(variables.log_probs, k, generator)
    y = tempered_softmax(z, checked_temperature(temperature))
    # y - y.detach() is exactly 0, so the outcome stays discrete.
    x = variables.one_hot(z.argmax(-1)) + (y - y.detach())
    return evaluate_relaxed(variables, f, x).mean(-1)


def reinmax(
    f: Cost,
    dist: Distribution,
    k: int,
    *,
    temperature: float | Tensor = 1.0,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""ReinMax: a straight-through gradient that is accurate to second order.

    $$\frac1k \sum_s f(x_s), \qquad x \sim p, \quad \nabla x := 2 \nabla \pi_1 - \frac12 \nabla p$$

    $\nabla \pi_1$ is the gradient of a softmax at the point $\pi_1 = \frac12 (x + p_\tau)$. The value is
    unbiased. The mean of the gradient is exact for a single variable, τ = 1 and a quadratic f, and biased
    otherwise. Use it in place of :func:`straight_through` for a smooth f.

    Args:
        f: the differentiable cost, from values (*batch, k, *event) to (*batch, k).
        dist: OneHotCategorical, Bernoulli, or Independent of these.
        k: the number of samples.
        temperature: τ > 0 of $p_\tau = \text{softmax}(\log p / \tau)$.
        generator: the source of randomness.

    Returns:
        (*batch,)

    >>> logits = torch.zeros(2, requires_grad=True)
    >>> dist = torch.distributions.OneHotCategorical(logits=logits)
    >>> reinmax(lambda x: x[..., 0], dist, 1).backward()
    >>> logits.grad
    tensor([ 0.2500, -0.2500])

    References:
        | Bridging Discrete and Backpropagation: Straight-Through and Beyond (Liu et al., 2023)
        | https://arxiv.org/abs/2304.08612
    """
    variables = relaxable("reinmax", dist, k)
    log_probs = variables.log_probs.unsqueeze(-3)
    x = variables.one_hot(variables.independent(k, generator))
    p = tempered_softmax(log_probs.detach(), checked_temperature(temperature))
    middle = 0.5 * (x + p.detach())
    pi = torch.softmax(middle.log() + score(log_probs), -1)
    y = 2.0 * pi - 0.5 * torch.softmax(log_probs, -1)
    return evaluate_relaxed(variables, f, x + (y - y.detach())).mean(-1)


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
        self, f: Cost, dist: Distribution, k: int, *, generator: torch.Generator | None = None
    ) -> Tensor:
        """Return a biased estimate of E[f] whose gradient is a biased estimate of ∇E[f], (*batch,)."""
        temperature = self.log_temperature.exp()
        return self.relaxation(f, dist, k, temperature=temperature, generator=generator)


def make_relaxation(
    relaxation: Callable[..., Tensor], dist: Distribution, generator: torch.Generator | None
) -> LearnedTemperature:
    """Return a relaxation with its initial temperature."""
    return LearnedTemperature(relaxation)
