"""The unordered set estimator: its theorems, and the estimate of its own variance."""

from __future__ import annotations

from functools import partial
from itertools import permutations

import mpmath
import pytest
import torch
from four_outcomes import Problem
from problems import log_probabilities, seeded

import swor
from swor.diagnostics.all_samples import all_samples
from swor.diagnostics.enumeration import exact_moments
from swor.math._murthy import variance_of_pairs


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


@pytest.mark.parametrize("scale", [1.0, 10.0, 40.0])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("k", [2, 4, 12])
def test_murthys_variance_is_never_negative(k, dtype, scale):
    log_probs = log_probabilities(300, 16, scale=scale).to(dtype)
    sample = swor.gumbel_top_k(log_probs, k, generator=seeded())
    cost = 80.0 * torch.randn(300, k, generator=seeded(1)).to(dtype)
    variance = swor.murthy_variance(sample, cost)
    assert variance.isfinite().all() and (variance >= 0).all()
    assert (variance > 0).any() or scale > 1.0


@pytest.mark.parametrize(
    ("probabilities", "rest", "rtol"),
    [
        (("0.7", "1e-2", "1e-3"), "1e-5", 1e-11),  # a difference of ratios has six digits left
        (("0.5", "0.3"), "1e-9", 1e-7),  # and here none
        (("0.5", "0.3", "0.01", "0.02"), "0.1", 1e-12),
    ],
)
def test_murthys_variance_keeps_its_digits_where_the_sample_has_nearly_all_the_mass(
    probabilities, rest, rtol
):
    with mpmath.workdps(60):
        total = sum(map(mpmath.mpf, probabilities)) + mpmath.mpf(rest)
        p, rest = [mpmath.mpf(x) / total for x in probabilities], mpmath.mpf(rest) / total
        expected = torch.tensor(
            [[float(pair_variance(p, rest, i, j)) for j in range(len(p))] for i in range(len(p))],
            dtype=torch.float64,
        )
        log_p = torch.tensor([float(mpmath.log(x)) for x in p], dtype=torch.float64)
        log_rest = torch.tensor(float(mpmath.log(rest)), dtype=torch.float64)
    pairs = variance_of_pairs(log_p, log_rest)
    torch.testing.assert_close(pairs, expected, rtol=rtol, atol=0)


def pair_variance(p, rest, i, j):
    """p_i p_j (R_ij − R_i R_j), from the probabilities of sets."""
    if i == j:
        return mpmath.mpf(0)

    def q(*left_out):
        return set_probability([x for n, x in enumerate(p) if n not in left_out], rest)

    return p[i] * p[j] * (q(i, j) / q() - q(i) * q(j) / q() ** 2)


def set_probability(p, rest):
    """The sum over all orderings, where what is left out is no part of the domain."""
    total = mpmath.mpf(0)
    for order in permutations(p):
        left, term = sum(p) + rest, mpmath.mpf(1)
        for x in order:
            term, left = term * x / left, left - x
        total += term
    return total


def test_the_estimated_variance_has_the_whole_range_of_half_precision():
    log_p = torch.tensor([0.5, 0.25], dtype=torch.float16).log()
    log_rest = torch.tensor(0.25, dtype=torch.float16).log()
    sample = swor.Sample(torch.arange(2), log_p, log_rest, scheme="without_replacement")
    found = swor.murthy_variance(sample, torch.tensor([0.0, 900.0], dtype=torch.float16))
    assert found.item() == pytest.approx(0.06 * 900**2, rel=2e-3)  # more than half of 65504
