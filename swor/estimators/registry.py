"""All estimators under one contract: from a function, a distribution and k to an estimate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.distributions import Distribution

from swor.estimators.importance import importance_weighted, normalized_importance_weighted, risk
from swor.estimators.single import reinforce, single_sample
from swor.estimators.sums import deterministic_sum_and_sample, raj, sum_and_sample
from swor.estimators.unordered import unordered_set
from swor.samplers.distributions import sample, sample_top_k
from swor.types import Sample, Scheme, Weights

Cost = Callable[[Tensor], Tensor]
Rule = Callable[[Sample], Weights]


class Estimate(Protocol):
    """From a cost, a distribution and k to an estimate of the expected cost and its gradient."""

    def __call__(
        self,
        f: Cost,
        dist: Distribution,
        k: int,
        *,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """(*batch,): the value estimates E[f], its gradient estimates ∇E[f]."""
        ...


@dataclass(frozen=True)
class Estimator:
    """An entry of :data:`ESTIMATORS`; call it as ``entry(f, dist, k)``.

    Attributes:
        unbiased: whether value and gradient are unbiased.
        equation: its equation in the paper, or a citation.
        estimate: the callable.
        evaluations: how many evaluations of f it uses for k.
        rule: the rule behind it, if it is one.
        scheme: the sampling scheme of that rule.
        smallest_k: the smallest k for which it is defined.
    """

    unbiased: bool
    equation: str
    estimate: Estimate
    evaluations: Callable[[int], int] = lambda k: k
    rule: Rule | None = None
    scheme: Scheme | None = None
    smallest_k: int = 1

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
            f: the cost, from values (*batch, k, *event) to (*batch, k).
            dist: Categorical, OneHotCategorical, Bernoulli, or Independent of these.
            k: the number of samples.
            generator: the source of randomness.
        """
        return self.estimate(f, dist, k, generator=generator)


def draw(scheme: Scheme, dist: Distribution, k: int, generator: torch.Generator | None) -> Sample:
    """A sample of a distribution by a scheme."""
    if scheme == Scheme.TOP_K_AND_SAMPLE:
        return sample_top_k(dist, k, generator=generator)
    replacement = scheme == Scheme.WITH_REPLACEMENT
    return sample(dist, k, replacement=replacement, generator=generator)


def lift(rule: Rule, scheme: Scheme, *, unbiased: bool, equation: str) -> Estimator:
    """Pair a rule with a sampler, for an entry of :data:`ESTIMATORS`."""

    def estimate(
        f: Cost, dist: Distribution, k: int, *, generator: torch.Generator | None = None
    ) -> Tensor:
        drawn = draw(scheme, dist, k, generator)
        return rule(drawn).loss(f(drawn.value))

    return Estimator(unbiased, equation, estimate, rule=rule, scheme=scheme)


_WITHOUT, _WITH = Scheme.WITHOUT_REPLACEMENT, Scheme.WITH_REPLACEMENT

ESTIMATORS: dict[str, Estimator] = {
    "single_sample": lift(single_sample, _WITHOUT, unbiased=True, equation="eq:ss_unbiased"),
    "reinforce": lift(reinforce, _WITH, unbiased=True, equation="eq:reinforce_with_replacement"),
    "unordered_set": lift(
        unordered_set, _WITHOUT, unbiased=True, equation="eq:unord_set_pg_bl_estimator"
    ),
    "sum_and_sample": lift(sum_and_sample, _WITHOUT, unbiased=True, equation="eq:ssas_estimator"),
    "raj": lift(raj, _WITHOUT, unbiased=True, equation="Raj (1956)"),
    "top_k_and_sample": lift(
        deterministic_sum_and_sample,
        Scheme.TOP_K_AND_SAMPLE,
        unbiased=True,
        equation="eq:sas_unbiased, Liu et al. (2019)",
    ),
    "importance_weighted": lift(
        importance_weighted, _WITHOUT, unbiased=True, equation="eq:iwpgbl_estimator"
    ),
    "normalized_importance_weighted": lift(
        normalized_importance_weighted, _WITHOUT, unbiased=False, equation="eq:niwpgbl_estimator"
    ),
    "risk": lift(risk, _WITHOUT, unbiased=False, equation="eq:risk_bl"),
}
