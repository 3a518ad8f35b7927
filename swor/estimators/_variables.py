"""The variables of a distribution and their relaxations, for estimators that choose where f is evaluated."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributions import Distribution

from swor._checks import check_finite, check_k, check_same, check_shape, check_tensor, may_validate
from swor.samplers._race import gumbel_like
from swor.samplers.distributions import factorized
from swor.samplers.products import Factorized
from swor.types import Cost, score


def variables_of(dist: Distribution, k: int) -> Factorized:
    """Return the variables of a distribution in working precision, with gradient, after checking k."""
    check_k(k)
    return factorized(dist).in_working_precision()


def evaluate(
    variables: Factorized, f: Cost, index: Tensor, *, impossible: Tensor | None = None
) -> Tensor:
    """Return the cost (*batch, k) of outcomes given as indices, (*batch, k, n), and 0 for impossible ones."""
    return checked_cost(variables, f(variables.encode(index)), index.shape[-2], impossible)


def evaluate_relaxed(variables: Factorized, f: Cost, y: Tensor) -> Tensor:
    """Return the cost (*batch, k) of points of the simplex, (*batch, k, n, c)."""
    return checked_cost(variables, f(variables.encode_relaxed(y)), y.shape[-3])


def checked_cost(
    variables: Factorized, cost: Tensor, k: int, impossible: Tensor | None = None
) -> Tensor:
    """Return what f returned, (*batch, k), with 0 for impossible outcomes, or raise an error."""
    check_tensor("cost", cost, variables.log_probs.dtype)
    check_shape("cost", cost, (*variables.batch, k), "one number for every value given to f")
    check_same("cost", cost, "the log-probabilities", variables.log_probs)
    if impossible is not None:
        cost = cost.masked_fill(impossible, 0.0)
    check_finite("cost", cost)
    return cost


def loss_with_gradient(variables: Factorized, cost: Tensor, gradient: Tensor) -> Tensor:
    r"""Return a loss with a given value and a given gradient, (*batch,).

    $$\frac1k \sum_s f_s + (\theta - \bot(\theta)) \cdot \bot(g), \qquad \theta = \log p$$

    Args:
        variables: of the distribution.
        cost: (*batch, k); its mean is the value and carries the pathwise term.
        gradient: with respect to the log-probabilities, (*batch, k, n, c); it is averaged over k.
    """
    by_log_probs = score(variables.log_probs) * gradient.detach().mean(-3)
    return cost.mean(-1) + by_log_probs.sum((-1, -2)).to(cost.dtype)


def is_relaxable(dist: Distribution) -> bool:
    """Return whether outcomes can be relaxed, that is, whether they are one-hot or binary and not indices."""
    return factorized(dist).encoding != "index"


def relaxable(name: str, dist: Distribution, k: int) -> Factorized:
    """Return the variables of a distribution whose outcomes can be relaxed; raise an error for others."""
    if not is_relaxable(dist):
        raise TypeError(
            f"{name} was given {dist!r}, whose outcomes are indices; expected outcomes that can be "
            "relaxed. Use OneHotCategorical with the same logits, or Bernoulli."
        )
    return variables_of(dist, k)


def is_binary(dist: Distribution) -> bool:
    """Return whether every variable has two categories."""
    return factorized(dist).categories == 2


def binary(name: str, dist: Distribution, k: int) -> Factorized:
    """Return the variables of a distribution of binary variables; raise an error for others."""
    if not is_binary(dist):
        raise TypeError(
            f"{name} was given {dist!r}; expected variables of two categories, such as Bernoulli. "
            "For more categories use arsm."
        )
    return variables_of(dist, k)


def perturbed(log_probs: Tensor, k: int, generator: torch.Generator | None) -> Tensor:
    r"""Return k independent draws of $z = \log p + \text{Gumbel}$, with gradient, (*batch, k, n, c)."""
    log_probs = log_probs.unsqueeze(-3).expand(*log_probs.shape[:-2], k, *log_probs.shape[-2:])
    return log_probs + gumbel_like(log_probs, generator)


def tempered_softmax(z: Tensor, temperature: float | Tensor) -> Tensor:
    r"""Return $\text{softmax}(z / \tau)$ over the last axis: 0 without gradient where z is −inf."""
    impossible = z == -torch.inf
    scaled = torch.where(impossible, 0.0, z) / temperature
    return torch.softmax(torch.where(impossible, -torch.inf, scaled), -1)


def checked_temperature(temperature: float | Tensor) -> float | Tensor:
    """Return a temperature after checking that it is one positive number."""
    if isinstance(temperature, Tensor):
        if temperature.numel() != 1:
            raise ValueError(
                f"temperature has shape {tuple(temperature.shape)}; expected a single number. "
                "Use one temperature for the whole batch."
            )
        temperature = temperature.reshape(())
        if not may_validate(temperature):
            return temperature
    number = float(temperature.detach() if isinstance(temperature, Tensor) else temperature)
    if not number > 0.0:
        raise ValueError(
            f"temperature is {number}; expected a positive number. To learn a temperature, "
            "make its logarithm the parameter and pass the exponential."
        )
    return temperature
