"""Gumbel-Softmax, straight-through and ReinMax: gradients through a relaxed outcome. All biased."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributions import Distribution

from swor.checks import may_validate
from swor.estimators.variables import evaluate_relaxed, relaxable
from swor.samplers.race import gumbel_like
from swor.types import Cost, score


def gumbel_softmax(
    f: Cost,
    dist: Distribution,
    k: int,
    *,
    temperature: float | Tensor = 1.0,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""$\frac1k \sum_s f(y_s)$, $y = \text{softmax}((\log p + \text{Gumbel}) / \tau)$.

    The Gumbel-Softmax or Concrete estimator (Jang et al. 2017, Maddison et al. 2017), for an f that
    is differentiable and defined inside the simplex. Value and gradient are those of the relaxed
    problem: biased, less so for a low temperature, at the price of variance.

    Args:
        f: the cost, from values (*batch, k, *event) to (*batch, k); values are relaxed.
        dist: OneHotCategorical, Bernoulli, or Independent of these.
        k: the number of samples.
        temperature: τ > 0, a number or a tensor with one element; one with gradient is learned.
        generator: the source of randomness.

    Returns:
        (*batch,)

    >>> dist = torch.distributions.OneHotCategorical(logits=torch.zeros(5, 3))
    >>> gumbel_softmax(lambda y: y[..., 0], dist, 4).shape
    torch.Size([5])
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
    r"""$\frac1k \sum_s f(x_s)$ with $x = \text{onehot}(\arg\max y)$ and $\nabla x := \nabla y$.

    The straight-through Gumbel-Softmax estimator (Jang et al. 2017): f only ever sees outcomes, so
    the value is unbiased; the gradient is that of the relaxed $y$ of :func:`gumbel_softmax`, biased.

    Args:
        f: the cost, from values (*batch, k, *event) to (*batch, k), differentiable.
        dist: OneHotCategorical, Bernoulli, or Independent of these.
        k: the number of samples.
        temperature: τ > 0, a number or a tensor with one element; one with gradient is learned.
        generator: the source of randomness.

    Returns:
        (*batch,)

    >>> dist = torch.distributions.Bernoulli(logits=torch.zeros(()))
    >>> float(straight_through(lambda x: x, dist, 1)) in (0.0, 1.0)
    True
    """
    variables = relaxable("straight_through", dist, k)
    z = perturbed(variables.log_probs, k, generator)
    y = tempered_softmax(z, checked_temperature(temperature))
    x = variables.one_hot(z.argmax(-1)) + (y - y.detach())  # exactly 0: the outcome stays discrete
    return evaluate_relaxed(variables, f, x).mean(-1)


def reinmax(
    f: Cost,
    dist: Distribution,
    k: int,
    *,
    temperature: float | Tensor = 1.0,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""$\frac1k \sum_s f(x_s)$, $x \sim p$, $\nabla x := 2 \nabla \pi_1 - \frac12 \nabla p$.

    ReinMax (Liu et al. 2023): $\nabla \pi_1$ is the gradient of a softmax at the point
    $\pi_1 = \frac12 (x + p_\tau)$. The value is unbiased. The gradient is second-order accurate: exact
    in the mean for one variable, τ = 1 and a quadratic f; biased elsewhere.

    Args:
        f: the cost, from values (*batch, k, *event) to (*batch, k), differentiable.
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
    """
    variables = relaxable("reinmax", dist, k)
    log_probs = variables.log_probs.unsqueeze(-3)
    x = variables.one_hot(variables.independent(k, generator))
    p = tempered_softmax(log_probs.detach(), checked_temperature(temperature))
    middle = 0.5 * (x + p.detach())
    pi = torch.softmax(middle.log() + score(log_probs), -1)
    y = 2.0 * pi - 0.5 * torch.softmax(log_probs, -1)
    return evaluate_relaxed(variables, f, x + (y - y.detach())).mean(-1)


def perturbed(log_probs: Tensor, k: int, generator: torch.Generator | None) -> Tensor:
    r"""$z = \log p + \text{Gumbel}$, k independent ones, (*batch, k, n, c); carries the gradient."""
    log_probs = log_probs.unsqueeze(-3).expand(*log_probs.shape[:-2], k, *log_probs.shape[-2:])
    return log_probs + gumbel_like(log_probs, generator)


def tempered_softmax(z: Tensor, temperature: float | Tensor) -> Tensor:
    r"""$\text{softmax}(z / \tau)$ over the last axis; 0 where z is −inf, without gradient."""
    impossible = z == -torch.inf
    scaled = torch.where(impossible, 0.0, z) / temperature
    return torch.softmax(torch.where(impossible, -torch.inf, scaled), -1)


def checked_temperature(temperature: float | Tensor) -> float | Tensor:
    """A temperature is one positive number."""
    if isinstance(temperature, Tensor):
        if temperature.numel() != 1:
            raise ValueError(
                f"temperature has shape {tuple(temperature.shape)}; expected one number. "
                "Relax with one temperature for the whole batch."
            )
        temperature = temperature.reshape(())
        if not may_validate(temperature):
            return temperature
    number = float(temperature.detach() if isinstance(temperature, Tensor) else temperature)
    if not number > 0.0:
        raise ValueError(
            f"temperature is {number}; expected a positive number. To learn one, keep its "
            "logarithm as the parameter and give its exponential."
        )
    return temperature
