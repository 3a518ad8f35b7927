"""A distribution as independent variables: what estimators that choose where f is evaluated share."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributions import Distribution

from swor.checks import check_k, check_same, check_shape
from swor.math.logspace import working_dtype
from swor.samplers.categorical import independent
from swor.samplers.distributions import Discrete, discrete
from swor.types import Cost, score


class Factors(NamedTuple):
    """n independent variables of c categories each; n = 1 where the distribution is no product."""

    log_probs: Tensor  # (*batch, n, c), with gradient, in working precision
    table: Discrete

    @property
    def batch(self) -> torch.Size:
        """The shape of the batch."""
        return self.log_probs.shape[:-2]

    @property
    def n(self) -> int:
        """The number of variables."""
        return self.log_probs.shape[-2]

    @property
    def c(self) -> int:
        """The number of categories of each variable."""
        return self.log_probs.shape[-1]

    def independent(self, k: int, generator: torch.Generator | None) -> Tensor:
        """K independent outcomes as indices, (*batch, k, n)."""
        return independent(self.log_probs.detach(), k, generator).mT

    def one_hot(self, index: Tensor) -> Tensor:
        """From indices (*batch, k, n) to (*batch, k, n, c)."""
        return torch.nn.functional.one_hot(index, self.c).to(self.log_probs.dtype)

    def evaluate(self, f: Cost, index: Tensor) -> Tensor:
        """The cost (*batch, k) of outcomes that are given as indices, (*batch, k, n)."""
        value = self.table.encode(index if self.table.product else index.squeeze(-1))
        return self._checked(f(value), index.shape[-2])

    def evaluate_relaxed(self, f: Cost, y: Tensor) -> Tensor:
        """The cost (*batch, k) of points in the simplex, (*batch, k, n, c)."""
        value = y.unflatten(-2, self.table.event) if self.table.product else y.squeeze(-2)
        value = value[..., 1] if self.table.encoding == "binary" else value
        return self._checked(f(value.to(self.table.log_probs.dtype)), y.shape[-3])

    def _checked(self, cost: Tensor, k: int) -> Tensor:
        check_shape("the cost", cost, (*self.batch, k), "one number for every value given to f")
        check_same("the cost", cost, "the log-probabilities", self.table.log_probs)
        return cost

    def surrogate(self, cost: Tensor, gradient: Tensor) -> Tensor:
        r"""$\frac1k \sum_s f_s + (\theta - \bot(\theta)) \cdot \bot(g)$ with $\theta = \log p$, (*batch,).

        Args:
            cost: (*batch, k); its mean is the value, and carries the pathwise term.
            gradient: with respect to the log-probabilities, (*batch, k, n, c); averaged over k.
        """
        by_log_probs = score(self.log_probs) * gradient.detach().mean(-3)
        return cost.mean(-1) + by_log_probs.sum((-1, -2)).to(cost.dtype)


def factors(dist: Distribution, k: int) -> Factors:
    """The variables behind a distribution, for k draws."""
    check_k(k)
    table = discrete(dist)
    log_probs = table.log_probs
    if working_dtype(log_probs.dtype) != log_probs.dtype:  # normalised to half precision only
        log_probs = log_probs.to(working_dtype(log_probs.dtype)).log_softmax(-1)
    return Factors(log_probs if table.product else log_probs.unsqueeze(-2), table)


def sizes(dist: Distribution | None) -> tuple[int, int]:
    """The number of variables and the number of categories of each."""
    if dist is None:
        raise ValueError(
            "the number of evaluations depends on the distribution, and none was given; "
            "expected evaluations(k, dist)."
        )
    variables = factors(dist, 1)
    return variables.n, variables.c


def is_relaxable(dist: Distribution) -> bool:
    """Whether an outcome of the distribution has a neighbourhood: one-hot or binary, no index."""
    return discrete(dist).encoding != "index"


def relaxable(name: str, dist: Distribution, k: int) -> Factors:
    """The variables behind a distribution whose outcomes can be relaxed."""
    if not is_relaxable(dist):
        raise TypeError(
            f"{name} was given {dist!r}, whose outcomes are indices; expected outcomes that can be "
            "relaxed. Use OneHotCategorical with the same logits, or Bernoulli."
        )
    return factors(dist, k)


def is_binary(dist: Distribution) -> bool:
    """Whether every variable has two categories."""
    return discrete(dist).log_probs.shape[-1] == 2


def binary(name: str, dist: Distribution, k: int) -> Factors:
    """The variables behind a distribution of binary variables."""
    if not is_binary(dist):
        raise TypeError(
            f"{name} was given {dist!r}; expected variables of two categories, such as Bernoulli. "
            "For more categories use arsm."
        )
    return factors(dist, k)
