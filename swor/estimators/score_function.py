r"""Score-function estimators: a rule, the scheme that draws its samples, and a baseline.

$$\nabla E[f] \approx \sum_s w_s \nabla \log p_s \, (f_s - b_s) + \sum_s w_s \nabla f_s$$

The rule gives the weights $w_s$, the scheme the samples, and the baseline $b_s$ is built in to the
rule or comes from outside of the sample. Any combination whose baseline does not depend on the
sample that it is subtracted from is as unbiased as its rule.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.distributions import Distribution

from swor.baselines import Baseline, MovingAverage, compute_baseline
from swor.estimators.single import reinforce
from swor.estimators.sums import deterministic_sum_and_sample, sum_and_sample
from swor.estimators.unordered import unordered_set
from swor.samplers.schemes import draw
from swor.types import Cost, Sample, Scheme, Weights

Rule = Callable[[Sample], Weights]


@dataclass(frozen=True)
class ScoreFunctionEstimate:
    r"""$\sum_s w_s \bigl(f_s + (\log p_s - \bot(\log p_s)) \, \bot(f_s - b_s)\bigr)$ of a fresh sample.

    Call it as ``estimate(f, dist, k, generator=…)``.

    Attributes:
        rule: from the sample to its weights.
        scheme: how the sample is drawn.
        baseline: what each cost is compared with.

    >>> estimate = ScoreFunctionEstimate(reinforce, Scheme.WITH_REPLACEMENT, Baseline.SAMPLED)
    >>> dist = torch.distributions.Bernoulli(logits=torch.zeros(5))
    >>> estimate(torch.ones_like, dist, 2), estimate.evaluations(2)
    (tensor([1., 1., 1., 1., 1.]), 4)
    """

    rule: Rule
    scheme: Scheme
    baseline: Baseline = Baseline.BUILT_IN

    def __call__(
        self, f: Cost, dist: Distribution, k: int, /, *, generator: torch.Generator | None = None
    ) -> Tensor:
        """(*batch,): the value estimates E[f], its gradient estimates ∇E[f]."""
        drawn = draw(self.scheme, dist, k, generator)
        cost = f(drawn.value)
        baseline = compute_baseline(self.baseline, f, dist, cost, generator=generator)
        return self.rule(drawn).loss(cost, baseline=baseline)

    def evaluations(self, k: int) -> int:
        """The number of evaluations of f, those for the baseline included."""
        return k + self.baseline.evaluations(k)


_WITH, _WITHOUT = Scheme.WITH_REPLACEMENT, Scheme.WITHOUT_REPLACEMENT

reinforce_no_baseline = ScoreFunctionEstimate(reinforce, _WITH, Baseline.NONE)
"""REINFORCE without a baseline."""

reinforce_sampled_baseline = ScoreFunctionEstimate(reinforce, _WITH, Baseline.SAMPLED)
"""REINFORCE compared with a fresh sample for every term; 2k evaluations."""

reinforce_shared_sampled_baseline = ScoreFunctionEstimate(reinforce, _WITH, Baseline.SHARED_SAMPLE)
"""REINFORCE compared with one fresh sample that all terms share; k + 1 evaluations."""

reinforce_batch_mean = ScoreFunctionEstimate(reinforce, _WITH, Baseline.BATCH_MEAN)
"""REINFORCE compared with the mean cost of the others in the batch; none without a batch."""

reinforce_greedy = ScoreFunctionEstimate(reinforce, _WITH, Baseline.GREEDY)
"""REINFORCE compared with the cost of the likeliest outcome; k + 1 evaluations.

Self-critical training (Rennie et al. 2017).
"""

unordered_set_no_baseline = ScoreFunctionEstimate(unordered_set, _WITHOUT, Baseline.NONE)
"""The unordered set estimator without its built-in baseline."""

sum_and_sample_sampled_baseline = ScoreFunctionEstimate(sum_and_sample, _WITHOUT, Baseline.SAMPLED)
"""Sum-and-sample compared with a fresh sample for every term; 2k evaluations."""

sum_and_sample_shared_sampled_baseline = ScoreFunctionEstimate(
    sum_and_sample, _WITHOUT, Baseline.SHARED_SAMPLE
)
"""Sum-and-sample compared with one fresh sample that all terms share; k + 1 evaluations.

The sampled baseline of the paper's VAE; in its toy experiment every term has its own.
"""

deterministic_sum_and_sample_sampled_baseline = ScoreFunctionEstimate(
    deterministic_sum_and_sample, Scheme.TOP_K_AND_SAMPLE, Baseline.SAMPLED
)
"""Deterministic sum-and-sample compared with a fresh sample for every term; 2k evaluations.

For a distribution whose outcomes can be listed.
"""


def reinforce_moving_average(
    f: Cost,
    dist: Distribution,
    k: int,
    *,
    average: MovingAverage,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""$\frac1k \sum_i \nabla \log p(x_i) (f(x_i) - b)$, b a moving average of the costs of earlier calls.

    Unbiased. Uses k evaluations.

    Args:
        f: the cost, from values (*batch, k, *event) to (*batch, k).
        dist: Categorical, OneHotCategorical, Bernoulli, or Independent of these.
        k: the number of samples.
        average: remembers the costs; give the same one to every call.
        generator: the source of randomness.

    >>> dist = torch.distributions.Bernoulli(logits=torch.zeros(5))
    >>> average = MovingAverage(decay=0.9)
    >>> for step in range(3):
    ...     loss = reinforce_moving_average(torch.ones_like, dist, 2, average=average).mean()
    >>> average.average
    tensor(1.)
    """
    drawn = draw(_WITH, dist, k, generator)
    cost = f(drawn.value)
    return reinforce(drawn).loss(cost, baseline=average(cost))
