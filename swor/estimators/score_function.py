r"""Score-function estimators: a rule, the scheme that draws its samples, and a baseline.

$$\nabla E[f] \approx \sum_s w_s \nabla \log p_s \, (f_s - b_s) + \sum_s w_s \nabla f_s$$

The scheme draws the samples and the rule gives the weights $w_s$. The baseline $b_s$ is either built in
to the rule or computed from something other than the sample. If it does not depend on the sample from
whose cost it is subtracted, the estimator is as unbiased as its rule.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.distributions import Distribution

from swor.estimators.baselines import (
    BUILT_IN,
    Baseline,
    BaselineInputs,
    BatchMean,
    Greedy,
    MovingAverage,
    NoBaseline,
    Sampled,
    greedy,
    sampled_baseline,
)
from swor.estimators.learning import WithState
from swor.rules.reinforce import rloo
from swor.rules.sums import deterministic_sum_and_sample, sum_and_sample
from swor.rules.unordered_set import unordered_set
from swor.samplers.distributions import draw
from swor.types import Cost, Rule, Scheme, check_numbers


@dataclass(frozen=True)
class ScoreFunctionEstimator:
    r"""An estimator that draws a new sample at every call and returns its surrogate loss.

    $$\sum_s w_s \Bigl(f_s + \Bigl(\frac{p_s}{\bot(p_s)} - 1\Bigr) \bigl(f_s - \bot(b_s)\bigr)\Bigr)$$

    Call it as ``estimator(f, dist, k, generator=…)``.

    Attributes:
        rule: maps the sample to its weights.
        scheme: how the sample is drawn.
        baseline: the baseline that is subtracted from each cost.

    >>> estimator = ScoreFunctionEstimator(rloo, Scheme.WITH_REPLACEMENT, Sampled())
    >>> dist = torch.distributions.Bernoulli(logits=torch.zeros(5))
    >>> estimator(torch.ones_like, dist, 2), estimator.evaluations(2)
    (tensor([1., 1., 1., 1., 1.]), 4)
    """

    rule: Rule
    scheme: Scheme
    baseline: Baseline = BUILT_IN

    def __call__(
        self, f: Cost, dist: Distribution, k: int, /, *, generator: torch.Generator | None = None
    ) -> Tensor:
        """Return an estimate of E[f] whose gradient is an estimate of ∇E[f], (*batch,).

        Args:
            f: the cost, from values (*batch, k, *event) to (*batch, k).
            dist: Categorical, OneHotCategorical, Bernoulli, or Independent of these.
            k: the number of samples.
            generator: the source of randomness.
        """
        drawn = draw(self.scheme, dist, k, generator)
        cost = f(drawn.value)
        check_numbers("cost", cost, drawn.log_p, "the log-probabilities")
        inputs = BaselineInputs(
            cost,
            sampled=partial(sampled_baseline, f, dist, generator=generator),
            greedy=partial(greedy, f, dist),
        )
        return self.rule(drawn).loss(cost, baseline=self.baseline(inputs))

    def evaluations(self, k: int) -> int:
        """Return the number of evaluations of f, including those of the baseline."""
        return k + self.baseline.evaluations(k)


_WITH, _WITHOUT = Scheme.WITH_REPLACEMENT, Scheme.WITHOUT_REPLACEMENT

reinforce_no_baseline = ScoreFunctionEstimator(rloo, _WITH, NoBaseline())
"""REINFORCE without a baseline: the mean over k independent samples.

It is unbiased and uses k evaluations. Use it as a reference in comparisons.

References:
    | Simple statistical gradient-following algorithms for connectionist reinforcement
    | learning (Williams, 1992)
    | https://doi.org/10.1007/BF00992696
"""

reinforce_sampled_baseline = ScoreFunctionEstimator(rloo, _WITH, Sampled())
"""REINFORCE with a sampled baseline: the cost of one additional sample for every term.

It is unbiased and uses 2k evaluations.

References:
    | Simple statistical gradient-following algorithms for connectionist reinforcement
    | learning (Williams, 1992)
    | https://doi.org/10.1007/BF00992696

    | Rao-Blackwellized Stochastic Gradients for Discrete Distributions (Liu et al., 2019)
    | https://arxiv.org/abs/1810.04777
"""

reinforce_shared_sampled_baseline = ScoreFunctionEstimator(rloo, _WITH, Sampled(shared=True))
"""REINFORCE with a sampled baseline: the cost of one additional sample that all terms share.

It is unbiased and uses k + 1 evaluations.

References:
    | Simple statistical gradient-following algorithms for connectionist reinforcement
    | learning (Williams, 1992)
    | https://doi.org/10.1007/BF00992696

    | Rao-Blackwellized Stochastic Gradients for Discrete Distributions (Liu et al., 2019)
    | https://arxiv.org/abs/1810.04777
"""

reinforce_batch_mean = ScoreFunctionEstimator(rloo, _WITH, BatchMean())
"""REINFORCE with the mean cost of the other elements of the batch as its baseline.

It is unbiased and uses k evaluations. Use it where the elements of the batch have similar costs. There is
no baseline without a batch.

References:
    | Simple statistical gradient-following algorithms for connectionist reinforcement
    | learning (Williams, 1992)
    | https://doi.org/10.1007/BF00992696
"""

reinforce_greedy = ScoreFunctionEstimator(rloo, _WITH, Greedy())
"""REINFORCE with the cost of the most probable outcome as its baseline, also called self-critical training.

It is unbiased and uses k + 1 evaluations.

References:
    | Self-Critical Sequence Training for Image Captioning (Rennie et al., 2017)
    | https://arxiv.org/abs/1612.00563
"""

unordered_set_no_baseline = ScoreFunctionEstimator(unordered_set, _WITHOUT, NoBaseline())
"""The unordered set estimator without its built-in baseline.

It is unbiased and uses k evaluations. Use it to measure the effect of the baseline of
:func:`swor.unordered_set`.

References:
    | Estimating Gradients for Discrete Random Variables by Sampling without Replacement
    | (Kool et al., 2020), equation (16)
    | https://arxiv.org/abs/2002.06043
"""

sum_and_sample_sampled_baseline = ScoreFunctionEstimator(sum_and_sample, _WITHOUT, Sampled())
"""Stochastic sum-and-sample with a sampled baseline: the cost of one additional sample for every term.

It is unbiased and uses 2k evaluations. It is the version in the paper's toy experiment.

References:
    | Estimating Gradients for Discrete Random Variables by Sampling without Replacement
    | (Kool et al., 2020), equation (14)
    | https://arxiv.org/abs/2002.06043
"""

sum_and_sample_shared_sampled_baseline = ScoreFunctionEstimator(
    sum_and_sample, _WITHOUT, Sampled(shared=True)
)
"""Stochastic sum-and-sample with a sampled baseline: the cost of one additional sample that all terms share.

It is unbiased and uses k + 1 evaluations. It is the version in the paper's VAE experiment.

References:
    | Estimating Gradients for Discrete Random Variables by Sampling without Replacement
    | (Kool et al., 2020), equation (14)
    | https://arxiv.org/abs/2002.06043
"""

deterministic_sum_and_sample_sampled_baseline = ScoreFunctionEstimator(
    deterministic_sum_and_sample, Scheme.TOP_K_AND_SAMPLE, Sampled()
)
"""Deterministic sum-and-sample with a sampled baseline: the cost of one additional sample for every term.

It is unbiased and uses 2k evaluations. Use it where all outcomes can be listed and a few of them have
most of the probability.

References:
    | Rao-Blackwellized Stochastic Gradients for Discrete Distributions (Liu et al., 2019)
    | https://arxiv.org/abs/1810.04777

    | Estimating Gradients for Discrete Random Variables by Sampling without Replacement
    | (Kool et al., 2020), equation (13)
    | https://arxiv.org/abs/2002.06043
"""


def reinforce_moving_average(
    f: Cost,
    dist: Distribution,
    k: int,
    *,
    average: MovingAverage,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""REINFORCE with a moving average of the costs of earlier calls as its baseline.

    $$\nabla E[f] \approx \frac1k \sum_i \nabla \log p(x_i) \, (f(x_i) - b)$$

    It is unbiased and uses k evaluations. Use it where the expected cost changes slowly from step to step.
    ``ESTIMATORS["reinforce_moving_average"].make(dist)`` keeps the average for you.

    Args:
        f: the cost, from values (*batch, k, *event) to (*batch, k).
        dist: Categorical, OneHotCategorical, Bernoulli, or Independent of these.
        k: the number of samples.
        average: the moving average $b$; pass the same object to every call.
        generator: the source of randomness.

    Returns:
        (*batch,)

    >>> dist = torch.distributions.Bernoulli(logits=torch.zeros(5))
    >>> average = MovingAverage(decay=0.9)
    >>> for step in range(3):
    ...     loss = reinforce_moving_average(torch.ones_like, dist, 2, average=average).mean()
    >>> average.average
    tensor(1.)

    References:
        | Simple statistical gradient-following algorithms for connectionist reinforcement
        | learning (Williams, 1992)
        | https://doi.org/10.1007/BF00992696
    """
    drawn = draw(_WITH, dist, k, generator)
    cost = f(drawn.value)
    return rloo(drawn).loss(cost, baseline=average(cost))


def make_moving_average(dist: Distribution, generator: torch.Generator | None) -> WithState:
    """Return REINFORCE with a moving average of no costs yet."""
    return WithState(reinforce_moving_average, "average", MovingAverage())
