"""The variables of a distribution, for estimators that choose where f is evaluated."""

from __future__ import annotations

from torch import Tensor
from torch.distributions import Distribution

from swor.checks import check_k, check_same, check_shape
from swor.samplers.distributions import factorized
from swor.samplers.factorized import Factorized
from swor.types import Cost, score


def variables_of(dist: Distribution, k: int) -> Factorized:
    """Return the variables of a distribution in working precision, with gradient, after checking k."""
    check_k(k)
    return factorized(dist).in_working_precision()


def evaluate(variables: Factorized, f: Cost, index: Tensor) -> Tensor:
    """Return the cost (*batch, k) of outcomes given as indices, (*batch, k, n)."""
    return _checked(variables, f(variables.encode(index)), index.shape[-2])


def evaluate_relaxed(variables: Factorized, f: Cost, y: Tensor) -> Tensor:
    """Return the cost (*batch, k) of points of the simplex, (*batch, k, n, c)."""
    return _checked(variables, f(variables.encode_relaxed(y)), y.shape[-3])


def _checked(variables: Factorized, cost: Tensor, k: int) -> Tensor:
    check_shape("the cost", cost, (*variables.batch, k), "one number for every value given to f")
    check_same("the cost", cost, "the log-probabilities", variables.log_probs)
    return cost


def surrogate(variables: Factorized, cost: Tensor, gradient: Tensor) -> Tensor:
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
