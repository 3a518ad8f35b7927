"""The unordered set estimator: its theorems, and the estimate of its own variance."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from problems import log_probabilities, seeded
from torch.distributions import Categorical

import swor
from swor.diagnostics.all_samples import all_samples
from swor.diagnostics.enumeration import exact_moments

N = 4


class Problem:
    """A categorical over N outcomes, and a cost that has parameters of its own."""

    def __init__(self, scale=1.0, seed=0):
        self.theta = scale * torch.randn(N, dtype=torch.float64, generator=seeded(seed))
        self.phi = torch.randn(N, dtype=torch.float64, generator=seeded(seed + 1))
        self.parameters = [self.theta.requires_grad_(), self.phi.requires_grad_()]

    @property
    def dist(self):
        return Categorical(logits=self.theta)

    def cost(self, x):
        return torch.sin(self.phi)[x] * (1.0 + x) + self.theta.square()[x]

    def gradient(self):
        value = swor.exact(self.cost, self.dist)
        return value, torch.cat(torch.autograd.grad(value, self.parameters))


def conditional_mean(rule, k, cost, log_probs):
    """E[e | S] for every set, and the unordered set estimate of the same set."""
    drawn = all_samples(log_probs, k, swor.Scheme.WITHOUT_REPLACEMENT)
    value = rule(drawn.sample).mean(cost[drawn.sample.value])
    unordered = swor.unordered_set(drawn.sample).mean(cost[drawn.sample.value])
    sets = (2**drawn.sample.value).sum(-1)
    for s in sets.unique():
        rows = sets == s
        share = drawn.probability[rows] / drawn.probability[rows].sum()
        yield (share * value[rows]).sum(), unordered[rows][0]


@pytest.mark.parametrize(
    "rule",
    [
        swor.single_sample,
        swor.raj,
        swor.importance_weighted,
        *(partial(swor.sum_and_sample, m=m) for m in (1, 2, 3)),
    ],
)
def test_rao_blackwell_of_each_is_the_unordered_set_estimator(rule):
    log_probs, cost = log_probabilities(5), torch.randn(5, dtype=torch.float64, generator=seeded())
    for blackwellised, unordered in conditional_mean(rule, 3, cost, log_probs):
        assert (blackwellised - unordered).abs() <= 1e-12


@pytest.mark.parametrize("k", [2, 3, 4])
@pytest.mark.parametrize("scale", [0.3, 3.0])
def test_the_unordered_set_estimator_has_the_least_variance(k, scale):
    problem = Problem(scale)

    def variance(rule):
        moments = exact_moments(
            rule,
            "without_replacement",
            problem.cost,
            problem.dist,
            k,
            [problem.theta],
            baseline=0.0,
        )
        return moments.variance, moments.total_variance

    ours = variance(swor.unordered_set)
    others = [swor.single_sample, swor.raj, swor.importance_weighted]
    others += [partial(swor.sum_and_sample, m=m) for m in range(1, k + 1)]
    for rule in others:
        for mine, other in zip(ours, variance(rule), strict=True):
            assert mine <= other * (1 + 1e-9) + 1e-20


def test_sum_and_sample_with_all_terms_sampled_is_the_unordered_set_estimator():
    drawn = all_samples(log_probabilities(5), 3, swor.Scheme.WITHOUT_REPLACEMENT).sample
    mine, other = swor.sum_and_sample(drawn, m=3), swor.unordered_set(drawn)
    assert torch.allclose(mine.weight, other.weight, rtol=0, atol=1e-12)


@pytest.mark.parametrize("k", [2, 3, 4])
def test_murthys_variance_is_unbiased(k):
    log_probs, cost = log_probabilities(5), torch.randn(5, dtype=torch.float64, generator=seeded())
    drawn = all_samples(log_probs, k, swor.Scheme.WITHOUT_REPLACEMENT)
    costs = cost[drawn.sample.value]
    estimate = swor.unordered_set(drawn.sample).mean(costs)
    variance = (drawn.probability * (estimate - (log_probs.exp() * cost).sum()).square()).sum()
    ours = (drawn.probability * swor.murthy_variance(drawn.sample, costs)).sum()
    assert (ours - variance).abs() <= 1e-12
