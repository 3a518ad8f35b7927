"""The contract of an estimator: from a function, a distribution and k to an estimate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.distributions import Distribution

from swor.estimators.factors import sizes
from swor.samplers.distributions import can_be_listed, sample, sample_top_k
from swor.samplers.strata import sample_strata
from swor.types import Cost, Sample, Scheme, Weights

Rule = Callable[[Sample], Weights]
Count = Callable[[int, Distribution | None], int]


class Estimate(Protocol):
    """From a cost, a distribution and k to an estimate of the expected cost and its gradient."""

    def __call__(
        self,
        f: Cost,
        dist: Distribution,
        k: int,
        /,
        *,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """(*batch,): the value estimates E[f], its gradient estimates ∇E[f]."""
        ...


def everywhere(dist: Distribution) -> bool:
    """Defined for every distribution that the library knows."""
    return True


def unlimited(dist: Distribution) -> None:
    """There is no largest k."""
    return None


@dataclass(frozen=True)
class Estimator:
    """An entry of :data:`ESTIMATORS`; call it as ``entry(f, dist, k)``.

    Attributes:
        unbiased: whether value and gradient are unbiased for E[f] and ∇E[f].
        equation: its equation in the paper, or a citation.
        estimate: the callable.
        count: how many evaluations of f it uses, from k and the distribution; see ``evaluations``.
        rule: the rule behind it, if it is one.
        scheme: the sampling scheme of that rule.
        smallest_k: the smallest k for which it is defined.
        largest_k: from a distribution to the largest k, or None if there is no largest.
        defined_for: whether it is defined for a distribution; elsewhere it raises an error that
            names the cure.
        mixes_batch: whether the estimate of an element of the batch depends on the others.
    """

    unbiased: bool
    equation: str
    estimate: Estimate
    count: Count = lambda k, dist: k
    rule: Rule | None = None
    scheme: Scheme | None = None
    smallest_k: int = 1
    largest_k: Callable[[Distribution], int | None] = unlimited
    defined_for: Callable[[Distribution], bool] = everywhere
    mixes_batch: bool = False

    def __call__(
        self,
        f: Cost,
        dist: Distribution,
        k: int,
        *,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """(*batch,): the value estimates E[f], its gradient estimates ∇E[f].

        Args:
            f: the cost, from values (*batch, k', *event) to (*batch, k'), for any k'.
            dist: Categorical, OneHotCategorical, Bernoulli, or Independent of these.
            k: the number of samples.
            generator: the source of randomness.
        """
        return self.estimate(f, dist, k, generator=generator)

    def evaluations(self, k: int, dist: Distribution | None = None) -> int:
        """How many evaluations of f it uses for k.

        Args:
            k: the number of samples.
            dist: the distribution; only needed where the number depends on its size (``arsm`` and
                the local estimators).
        """
        return self.count(k, dist)


def draw(scheme: Scheme, dist: Distribution, k: int, generator: torch.Generator | None) -> Sample:
    """A sample of a distribution by a scheme."""
    if scheme == Scheme.TOP_K_AND_SAMPLE:
        return sample_top_k(dist, k, generator=generator)
    if scheme in (Scheme.STRATIFIED, Scheme.SYSTEMATIC):
        return sample_strata(dist, k, scheme, generator=generator)
    replacement = scheme == Scheme.WITH_REPLACEMENT
    return sample(dist, k, replacement=replacement, generator=generator)


def domain_size(dist: Distribution) -> int:
    """The number of outcomes."""
    n, c = sizes(dist)
    return int(c**n)


def lift(rule: Rule, scheme: Scheme, *, unbiased: bool, equation: str) -> Estimator:
    """Pair a rule with a sampler, for an entry of :data:`ESTIMATORS`."""

    def estimate(
        f: Cost, dist: Distribution, k: int, /, *, generator: torch.Generator | None = None
    ) -> Tensor:
        drawn = draw(scheme, dist, k, generator)
        return rule(drawn).loss(f(drawn.value))

    distinct = scheme in (Scheme.WITHOUT_REPLACEMENT, Scheme.TOP_K_AND_SAMPLE)
    listed = scheme in (Scheme.TOP_K_AND_SAMPLE, Scheme.STRATIFIED, Scheme.SYSTEMATIC)
    return Estimator(
        unbiased,
        equation,
        estimate,
        rule=rule,
        scheme=scheme,
        largest_k=domain_size if distinct else unlimited,
        defined_for=can_be_listed if listed else everywhere,
    )
