"""The contract of an estimator: from a function, a distribution and k to an estimate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from swor.baselines import Baseline
from swor.estimators.score_function import Rule, ScoreFunctionEstimate
from swor.samplers.distributions import can_be_listed, factorized
from swor.samplers.schemes import SAMPLERS
from swor.types import Cost, Scheme

Proof = Literal["enumeration", "z-score"]
"""How the tests prove what an entry says about its bias.

"enumeration": a sum over all samples of a small domain, to 1e-12. "z-score": the mean of 100 000
draws in units of its own standard error, for estimators with continuous noise.
"""


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


Count = Callable[[int, Distribution | None], int]
MakeState = Callable[[Distribution, torch.Generator | None], nn.Module]


def k_evaluations(k: int, dist: Distribution | None) -> int:
    """One evaluation of f for every sample."""
    return k


def defined_everywhere(dist: Distribution) -> bool:
    """Defined for every distribution that the library supports."""
    return True


def unlimited(dist: Distribution) -> None:
    """There is no largest k."""
    return None


def domain_size(dist: Distribution) -> int:
    """The number of outcomes."""
    return factorized(dist).outcomes


@dataclass(frozen=True)
class Estimator:
    """An entry of :data:`ESTIMATORS`; call it as ``entry(f, dist, k)``.

    An estimator that learns or remembers is made first, and then used like the others::

        estimator = ESTIMATORS["relax"].make(dist)  # an nn.Module
        optimizer = Adam([*model.parameters(), *estimator.parameters()])
        loss = estimator(f, dist, k).mean()  # one backward trains both

    Attributes:
        unbiased: whether value and gradient are unbiased for E[f] and ∇E[f].
        equation: its equation in the paper, or a citation.
        estimate: the callable; for an estimator that learns, the function that its module calls.
        proof: how the tests prove ``unbiased``, or show the bias.
        count: how many evaluations of f it uses, from k and the distribution; see ``evaluations``.
        smallest_k: the smallest k for which it is defined.
        largest_k: from a distribution to the largest k, or None if there is no largest.
        defined_for: whether it is defined for a distribution; elsewhere it raises an error that
            names the cure.
        mixes_batch: whether the estimate of an element of the batch depends on the others.
        make_state: makes the module of an estimator that learns or remembers; None for the others.
    """

    unbiased: bool
    equation: str
    estimate: Callable[..., Tensor]
    proof: Proof
    count: Count = k_evaluations
    smallest_k: int = 1
    largest_k: Callable[[Distribution], int | None] = unlimited
    defined_for: Callable[[Distribution], bool] = defined_everywhere
    mixes_batch: bool = False
    make_state: MakeState | None = None

    def __call__(
        self,
        f: Cost,
        dist: Distribution,
        k: int,
        *,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """(*batch,): the value estimates E[f], its gradient estimates ∇E[f].

        An estimator that learns is made anew for this call, so it has learned nothing: use
        :meth:`make` to train with it.

        Args:
            f: the cost, from values (*batch, k', *event) to (*batch, k'), for any k'.
            dist: Categorical, OneHotCategorical, Bernoulli, or Independent of these.
            k: the number of samples.
            generator: the source of randomness.
        """
        if self.make_state is None:
            return self.estimate(f, dist, k, generator=generator)
        return self.make(dist, generator=generator)(f, dist, k, generator=generator)

    @property
    def learns(self) -> bool:
        """Whether it learns or remembers something, and so has to be made first."""
        return self.make_state is not None

    def make(self, dist: Distribution, *, generator: torch.Generator | None = None) -> Estimate:
        """The estimator with a state of its own, for distributions of the size of ``dist``.

        Args:
            dist: a distribution of the number of variables and categories to estimate with; its
                device and precision become those of the module.
            generator: the source of randomness of initial weights.

        Returns:
            An ``nn.Module`` if the estimator learns or remembers, and otherwise the entry itself.

        >>> import swor
        >>> dist = torch.distributions.Categorical(logits=torch.zeros(5, 3))
        >>> average = swor.ESTIMATORS["reinforce_moving_average"].make(dist)
        >>> _ = [average(lambda x: x.double(), dist, 2) for step in range(3)]
        >>> sorted(average.state_dict())
        ['average.average', 'average.steps']
        """
        if self.make_state is None:
            return self
        log_probs = factorized(dist).in_working_precision().log_probs
        module = self.make_state(dist, generator)
        return module.to(log_probs.device, log_probs.dtype)

    def evaluations(self, k: int, dist: Distribution | None = None) -> int:
        """How many evaluations of f it uses.

        Args:
            k: the number of samples.
            dist: the distribution; only needed where the number depends on its size (``arsm`` and
                the local estimators).
        """
        return self.count(k, dist)

    @property
    def rule(self) -> Rule | None:
        """The rule of a score-function estimator; None for the others."""
        return self.estimate.rule if isinstance(self.estimate, ScoreFunctionEstimate) else None

    @property
    def scheme(self) -> Scheme | None:
        """The sampling scheme of a score-function estimator; None for the others."""
        return self.estimate.scheme if isinstance(self.estimate, ScoreFunctionEstimate) else None

    @property
    def baseline(self) -> Baseline | None:
        """The baseline of a score-function estimator; None for the others."""
        return self.estimate.baseline if isinstance(self.estimate, ScoreFunctionEstimate) else None


@dataclass(frozen=True)
class _CountOf:
    """The evaluations of a score-function estimator, whatever the distribution."""

    estimate: ScoreFunctionEstimate

    def __call__(self, k: int, dist: Distribution | None) -> int:
        return self.estimate.evaluations(k)


def lift(
    rule: Rule,
    scheme: Scheme,
    *,
    baseline: Baseline = Baseline.BUILT_IN,
    unbiased: bool,
    equation: str,
) -> Estimator:
    """The entry of a rule, the scheme that draws its samples, and a baseline."""
    return entry_of(
        ScoreFunctionEstimate(rule, scheme, baseline), unbiased=unbiased, equation=equation
    )


def entry_of(estimate: ScoreFunctionEstimate, *, unbiased: bool, equation: str) -> Estimator:
    """The entry of a score-function estimator."""
    sampler = SAMPLERS[estimate.scheme]
    return Estimator(
        unbiased,
        equation,
        estimate,
        proof="enumeration",
        count=_CountOf(estimate),
        largest_k=domain_size if sampler.distinct else unlimited,
        defined_for=can_be_listed if sampler.lists_domain else defined_everywhere,
        mixes_batch=estimate.baseline == Baseline.BATCH_MEAN,
    )
