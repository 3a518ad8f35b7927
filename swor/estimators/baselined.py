"""Score-function estimators with a baseline from outside of the sample."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.distributions import Distribution

from swor.baselines import MovingAverage, batch_mean, greedy, sampled_baseline
from swor.estimators.single import reinforce
from swor.estimators.sums import deterministic_sum_and_sample, sum_and_sample
from swor.estimators.unordered import unordered_set
from swor.samplers.distributions import sample, sample_top_k
from swor.types import Cost, Sample, Weights


def reinforce_no_baseline(sample: Sample) -> Weights:
    r"""$e = \frac1k \sum_i f(x_i)$, $b_i = 0$: the rule :func:`reinforce` without its baseline.

    >>> import swor
    >>> s = swor.with_replacement(torch.tensor([0.6, 0.4]).log(), 2)
    >>> reinforce_no_baseline(s).control is None
    True
    """
    return replace(reinforce(sample), control=None)


def unordered_set_no_baseline(sample: Sample) -> Weights:
    r"""$w_s = p_s R(S, s)$, $b_s = 0$: the rule :func:`unordered_set` without its baseline.

    ``eq:unord_set_pg_estimator``.

    >>> import swor
    >>> s = swor.gumbel_top_k(torch.tensor([0.6, 0.4]).log(), 2)
    >>> unordered_set_no_baseline(s).control is None
    True
    """
    return replace(unordered_set(sample), control=None)


def reinforce_sampled_baseline(
    f: Cost, dist: Distribution, k: int, *, generator: torch.Generator | None = None
) -> Tensor:
    r"""$\frac1k \sum_i \nabla \log p(x_i) (f(x_i) - f(x'_i))$: a fresh sample for every term.

    Unbiased. Uses 2k evaluations.

    >>> dist = torch.distributions.Bernoulli(logits=torch.zeros(5))
    >>> reinforce_sampled_baseline(torch.ones_like, dist, 2)
    tensor([1., 1., 1., 1., 1.])
    """
    drawn = sample(dist, k, replacement=True, generator=generator)
    baseline = sampled_baseline(f, dist, k, generator=generator)
    return reinforce(drawn).loss(f(drawn.value), baseline=baseline)


def reinforce_shared_sampled_baseline(
    f: Cost, dist: Distribution, k: int, *, generator: torch.Generator | None = None
) -> Tensor:
    r"""$\frac1k \sum_i \nabla \log p(x_i) (f(x_i) - f(x'))$: one fresh sample for all terms.

    Unbiased. Uses k + 1 evaluations.

    >>> dist = torch.distributions.Bernoulli(logits=torch.zeros(5))
    >>> reinforce_shared_sampled_baseline(torch.ones_like, dist, 2)
    tensor([1., 1., 1., 1., 1.])
    """
    drawn = sample(dist, k, replacement=True, generator=generator)
    baseline = sampled_baseline(f, dist, 1, generator=generator)
    return reinforce(drawn).loss(f(drawn.value), baseline=baseline)


def sum_and_sample_shared_sampled_baseline(
    f: Cost, dist: Distribution, k: int, *, generator: torch.Generator | None = None
) -> Tensor:
    r"""$\sum_s w_s \nabla \log p_s (f_s - f(x'))$: sum-and-sample, one fresh sample for all terms.

    The sampled baseline of the paper's VAE; in its toy experiment every term has its own. Unbiased.
    Uses k + 1 evaluations.

    >>> dist = torch.distributions.Bernoulli(logits=torch.zeros(5))
    >>> sum_and_sample_shared_sampled_baseline(torch.ones_like, dist, 2)
    tensor([1., 1., 1., 1., 1.])
    """
    drawn = sample(dist, k, generator=generator)
    baseline = sampled_baseline(f, dist, 1, generator=generator)
    return sum_and_sample(drawn).loss(f(drawn.value), baseline=baseline)


def reinforce_batch_mean(
    f: Cost, dist: Distribution, k: int, *, generator: torch.Generator | None = None
) -> Tensor:
    r"""$\frac1k \sum_i \nabla \log p(x_i) (f(x_i) - b)$, b the mean cost of the others in the batch.

    Unbiased. Uses k evaluations. Without a batch there is no baseline.

    >>> dist = torch.distributions.Bernoulli(logits=torch.zeros(5))
    >>> reinforce_batch_mean(torch.ones_like, dist, 2)
    tensor([1., 1., 1., 1., 1.])
    """
    drawn = sample(dist, k, replacement=True, generator=generator)
    cost = f(drawn.value)
    return reinforce(drawn).loss(cost, baseline=batch_mean(cost))


def reinforce_moving_average(
    f: Cost,
    dist: Distribution,
    k: int,
    *,
    average: MovingAverage | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""$\frac1k \sum_i \nabla \log p(x_i) (f(x_i) - b)$, b a moving average of the costs of earlier calls.

    Unbiased. Uses k evaluations.

    Args:
        f: the cost, from values (*batch, k, *event) to (*batch, k).
        dist: Categorical, OneHotCategorical, Bernoulli, or Independent of these.
        k: the number of samples.
        average: the state; keep it and give it to every call. None is a new one, which has seen
            nothing and is 0.
        generator: the source of randomness.

    >>> dist = torch.distributions.Bernoulli(logits=torch.zeros(5))
    >>> average = MovingAverage(decay=0.9)
    >>> for step in range(3):
    ...     loss = reinforce_moving_average(torch.ones_like, dist, 2, average=average).mean()
    >>> average.average
    tensor(1.)
    """
    drawn = sample(dist, k, replacement=True, generator=generator)
    cost = f(drawn.value)
    baseline = 0.0 if average is None else average(cost)
    return reinforce(drawn).loss(cost, baseline=baseline)


def reinforce_greedy(
    f: Cost, dist: Distribution, k: int, *, generator: torch.Generator | None = None
) -> Tensor:
    r"""$\frac1k \sum_i \nabla \log p(x_i) (f(x_i) - f(\arg\max p))$: compared with the greedy outcome.

    Self-critical training (Rennie et al. 2017). Unbiased. Uses k + 1 evaluations.

    >>> dist = torch.distributions.Bernoulli(logits=torch.zeros(5))
    >>> reinforce_greedy(torch.ones_like, dist, 2)
    tensor([1., 1., 1., 1., 1.])
    """
    drawn = sample(dist, k, replacement=True, generator=generator)
    return reinforce(drawn).loss(f(drawn.value), baseline=greedy(f, dist))


def sum_and_sample_sampled_baseline(
    f: Cost, dist: Distribution, k: int, *, generator: torch.Generator | None = None
) -> Tensor:
    r"""$\sum_s w_s \nabla \log p_s (f_s - f(x'_s))$: :func:`sum_and_sample`, a fresh sample for every term.

    Unbiased. Uses 2k evaluations.

    >>> dist = torch.distributions.Categorical(logits=torch.zeros(5, 3))
    >>> sum_and_sample_sampled_baseline(lambda x: x.float() * 0, dist, 2)
    tensor([0., 0., 0., 0., 0.])
    """
    drawn = sample(dist, k, generator=generator)
    baseline = sampled_baseline(f, dist, k, generator=generator)
    return sum_and_sample(drawn).loss(f(drawn.value), baseline=baseline)


def deterministic_sum_and_sample_sampled_baseline(
    f: Cost, dist: Distribution, k: int, *, generator: torch.Generator | None = None
) -> Tensor:
    r"""$\sum_s w_s \nabla \log p_s (f_s - f(x'_s))$: deterministic sum-and-sample, likewise.

    For a distribution whose outcomes can be enumerated. Unbiased. Uses 2k evaluations.

    >>> dist = torch.distributions.Categorical(logits=torch.zeros(5, 3))
    >>> deterministic_sum_and_sample_sampled_baseline(lambda x: x.float() * 0, dist, 2)
    tensor([0., 0., 0., 0., 0.])
    """
    drawn = sample_top_k(dist, k, generator=generator)
    baseline = sampled_baseline(f, dist, k, generator=generator)
    return deterministic_sum_and_sample(drawn).loss(f(drawn.value), baseline=baseline)
