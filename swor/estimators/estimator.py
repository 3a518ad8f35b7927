"""The contract of an estimator: a function, a distribution and k give an estimate of E[f]."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from swor.estimators.baselines import BUILT_IN, Baseline
from swor.estimators.score_function import ScoreFunctionEstimator
from swor.samplers.distributions import SAMPLERS, can_be_listed, factorized
from swor.types import Cost, Rule, Scheme

Proof = Literal["enumeration", "z-score"]
"""How the tests prove the bias that an entry declares, or that it has none.

"enumeration": by a sum over all samples of a small domain, to 1e-12. "z-score": by the mean of 100 000
draws in units of its own standard error, for estimators with continuous noise.
"""


class EstimatorLike(Protocol):
    """A callable that estimates the expected cost and its gradient: the contract of every estimator."""

    def __call__(
        self,
        f: Cost,
        dist: Distribution,
        k: int,
        /,
        *,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Return an estimate of E[f] whose gradient is an estimate of ∇E[f], (*batch,)."""
        ...


Count = Callable[[int, Distribution | None], int]
MakeState = Callable[..., nn.Module]  # from a distribution and a generator, or None


def k_evaluations(k: int, dist: Distribution | None) -> int:
    """Return k: one evaluation of f for every sample."""
    return k


def defined_everywhere(dist: Distribution) -> bool:
    """Return True: the estimator is defined for every distribution that the library supports."""
    return True


def unlimited(dist: Distribution) -> None:
    """Return None: there is no largest k."""
    return None


def possible_categories(dist: Distribution) -> list[list[int]]:
    """Return the number of categories of positive probability of each variable, once for equal elements."""
    variables = factorized(dist)
    possible = (variables.log_probs > -torch.inf).sum(-1).reshape(-1, variables.length)
    rows: list[list[int]] = possible.unique(dim=0).tolist()
    return rows or [[variables.categories] * variables.length]  # the batch may be empty


def domain_size(dist: Distribution) -> int:
    """Return the number of possible outcomes, the largest k for distinct samples of the whole batch."""
    return min(map(math.prod, possible_categories(dist)))


@dataclass(frozen=True)
class Estimator:
    """An entry of ESTIMATORS: a function, and its properties.

    Call an entry as ``entry(f, dist, k)``. An entry that learns or remembers something raises an error if it
    is called like this. Make a module from it first, and call that like the other estimators:

        estimator = ESTIMATORS["relax"].make(dist)  # an nn.Module
        optimizer = Adam([*model.parameters(), *estimator.parameters()])
        loss = estimator(f, dist, k).mean()  # one backward trains both

    Attributes:
        unbiased: whether its value and its gradient are unbiased for E[f] and ∇E[f].
        equation: the reference, such as "Kool et al. (2020), equation (17)".
        function: the callable. For an estimator that learns, the function that its module calls.
        proof: how the tests prove that it is unbiased, or show that it is biased.
        count: the number of evaluations of f, from k and the distribution; see ``evaluations``.
        largest_k: from a distribution to the largest k, or None if there is no largest one.
        defined_for: whether it is defined for a distribution. For others it raises an error that says
            what to use instead.
        mixes_batch: whether the estimate of an element of the batch depends on the other elements.
        infinite_up_to: the largest k for which the variance of the gradient is infinite, unless the sample
            is the whole domain; 0 if it is finite for every k.
        make_state: makes the module of an estimator that learns or remembers; None for the others.
        takes_context: whether its module reads a context, which it is then called with.

    >>> import swor
    >>> entry = swor.ESTIMATORS["unordered_set"]
    >>> entry.unbiased, entry.evaluations(4), entry.learns
    (True, 4, False)
    >>> dist = torch.distributions.Categorical(logits=torch.zeros(5, 3))
    >>> entry(lambda x: x.float(), dist, 2).shape
    torch.Size([5])
    """

    unbiased: bool
    equation: str
    function: Callable[..., Tensor]
    proof: Proof
    count: Count = k_evaluations
    largest_k: Callable[[Distribution], int | None] = unlimited
    defined_for: Callable[[Distribution], bool] = defined_everywhere
    mixes_batch: bool = False
    infinite_up_to: int = 0
    make_state: MakeState | None = None
    takes_context: bool = False

    def __call__(
        self,
        f: Cost,
        dist: Distribution,
        k: int,
        *,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Return an estimate of E[f] whose gradient is an estimate of ∇E[f], (*batch,).

        An estimator that learns or remembers has no state here, so it raises an error: call the module that
        :meth:`make` returns.

        Args:
            f: the cost, from values (*batch, k', *event) to (*batch, k'), for any k'.
            dist: Categorical, OneHotCategorical, Bernoulli, or Independent of these.
            k: the number of samples.
            generator: the source of randomness.

        Returns:
            (*batch,)
        """
        if self.make_state is not None:
            name = getattr(self.function, "__name__", str(self.function))
            raise TypeError(
                f"{name} learns or remembers, and was called without a state; expected a call of the "
                f'module that has it. Make it once with estimator = swor.ESTIMATORS["{name}"].make(dist), '
                "and call estimator(f, dist, k) in every step."
            )
        return self.function(f, dist, k, generator=generator)

    @property
    def learns(self) -> bool:
        """Whether it learns or remembers something, so that :meth:`make` returns a module."""
        return self.make_state is not None

    def make(
        self,
        dist: Distribution,
        *,
        context: int | None = None,
        generator: torch.Generator | None = None,
    ) -> EstimatorLike:
        """Return the estimator with a state of its own, for distributions of the size of ``dist``.

        Args:
            dist: a distribution with the number of variables and categories to use the estimator for. The
                module gets its device and its precision.
            context: the number of elements of a context, such as the pixels of an image, for an estimator
                that takes one. Then call the module with ``context=``, (*batch, context).
            generator: the source of randomness of initial weights.

        Returns:
            An ``nn.Module`` if the estimator learns or remembers something, and the entry itself otherwise.

        >>> import swor
        >>> dist = torch.distributions.Categorical(logits=torch.zeros(5, 3))
        >>> average = swor.ESTIMATORS["reinforce_moving_average"].make(dist)
        >>> _ = [average(lambda x: x.float(), dist, 2) for step in range(3)]
        >>> sorted(average.state_dict())
        ['average.average', 'average.steps']
        """
        if context is not None and not self.takes_context:
            raise TypeError(
                f"a context of {context} elements was given; expected none, because this estimator reads "
                "no context. Leave it out, or use unordered_set_additive."
            )
        if self.make_state is None:
            return self
        log_probs = factorized(dist).in_working_precision().log_probs
        reads = {"context": context} if self.takes_context else {}
        module = self.make_state(dist, generator, **reads)
        return module.to(log_probs.device, log_probs.dtype)

    def evaluations(self, k: int, dist: Distribution | None = None) -> int:
        """Return the number of evaluations of f for one element of the batch.

        Args:
            k: the number of samples.
            dist: the distribution. It is needed only if the number depends on its size, as for ``arsm`` and
                the local estimators.
        """
        return self.count(k, dist)

    def has_infinite_variance(self, k: int, dist: Distribution) -> bool:
        """Return whether the variance of the gradient is infinite with k samples of a distribution."""
        return k <= self.infinite_up_to and k < max(map(math.prod, possible_categories(dist)))

    @property
    def rule(self) -> Rule | None:
        """The rule of a score-function estimator; None for the others."""
        return self.function.rule if isinstance(self.function, ScoreFunctionEstimator) else None

    @property
    def scheme(self) -> Scheme | None:
        """The sampling scheme of a score-function estimator; None for the others."""
        return self.function.scheme if isinstance(self.function, ScoreFunctionEstimator) else None

    @property
    def baseline(self) -> Baseline | None:
        """The baseline of a score-function estimator; None for the others."""
        return self.function.baseline if isinstance(self.function, ScoreFunctionEstimator) else None


@dataclass(frozen=True)
class _CountOf:
    """The number of evaluations of a score-function estimator, which does not depend on the distribution."""

    estimator: ScoreFunctionEstimator

    def __call__(self, k: int, dist: Distribution | None) -> int:
        return self.estimator.evaluations(k)


def lift(
    rule: Rule,
    scheme: Scheme,
    *,
    baseline: Baseline = BUILT_IN,
    unbiased: bool,
    equation: str,
) -> Estimator:
    """Return the entry of a rule with the scheme that draws its samples and a baseline.

    Args:
        rule: maps a sample to its weights.
        scheme: how the samples are drawn.
        baseline: the baseline that is subtracted from each cost.
        unbiased: whether the rule is unbiased.
        equation: the reference.
    """
    return entry_of(
        ScoreFunctionEstimator(rule, scheme, baseline), unbiased=unbiased, equation=equation
    )


def entry_of(estimator: ScoreFunctionEstimator, *, unbiased: bool, equation: str) -> Estimator:
    """Return the entry of a score-function estimator."""
    sampler = SAMPLERS[estimator.scheme]
    return Estimator(
        unbiased,
        equation,
        estimator,
        proof="enumeration",
        count=_CountOf(estimator),
        largest_k=domain_size if sampler.distinct else unlimited,
        defined_for=can_be_listed if sampler.lists_domain else defined_everywhere,
        mixes_batch=estimator.baseline.mixes_batch,
    )
