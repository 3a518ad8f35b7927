"""The best of m from independent samples: the definition over subsets, and unbiasedness."""

from __future__ import annotations

from itertools import combinations
from math import comb

import pytest
import torch
from best_of_enumeration import Problem, independent

import swor

BASELINES = ["none", "leave_one_out", "fewer", "centred"]


def random_sample(k):
    g = torch.Generator().manual_seed(k)
    log_p = torch.randn(k, generator=g, dtype=torch.float64).log_softmax(-1).requires_grad_()
    sample = swor.Sample(torch.arange(k), log_p, scheme=swor.Scheme.WITH_REPLACEMENT)
    return sample, torch.randn(k, generator=g, dtype=torch.float64)


def mean_of_best(f, m, keep):
    """The mean of the maximum over the sets of m samples that are kept."""
    sets = [i for i in combinations(range(len(f)), m) if keep(i)]
    return sum(f[list(i)].max() if i else torch.zeros_like(f[0]) for i in sets) / len(sets)


@pytest.mark.parametrize("baseline", BASELINES)
@pytest.mark.parametrize("k, m", [(2, 1), (4, 2), (5, 3), (6, 5), (4, 4), (1, 1)])
def test_sums_over_subsets(k, m, baseline):
    if k == m and baseline in ("leave_one_out", "centred"):
        return
    sample, f = random_sample(k)
    loss = swor.best_of_independent(sample, m, baseline=baseline).loss(f)
    gradient = torch.autograd.grad(loss, sample.log_p)[0]
    assert (loss - mean_of_best(f, m, lambda i: True)).abs() <= 1e-14
    for s in range(k):
        credit = m / k * mean_of_best(f, m, lambda i, s=s: s in i)
        if baseline == "fewer":
            credit -= m / k * mean_of_best(f, m - 1, lambda i, s=s: s not in i)
        elif baseline != "none":
            scale = m / k if baseline == "centred" else m / (k - 1)
            credit -= scale * mean_of_best(f, m, lambda i, s=s: s not in i)
        assert (gradient[s] - credit).abs() <= 1e-14


def test_two_left_out_centre_the_gradient():
    """From "fewer", subtract the mean of what it gives to the others without i: that is "centred"."""
    sample, f = random_sample(6)
    k, m = 6, 3

    def fewer(values):
        n = len(values)
        return [
            mean_of_best(values, m, lambda i, s=s: s in i)
            - mean_of_best(values, m - 1, lambda i, s=s: s not in i)
            for s in range(n)
        ]

    own = torch.stack(fewer(f))
    others = [torch.stack(fewer(torch.cat([f[:s], f[s + 1 :]]))).mean() for s in range(k)]
    loss = swor.best_of_independent(sample, m, baseline="centred").loss(f)
    gradient = torch.autograd.grad(loss, sample.log_p)[0]
    torch.testing.assert_close(gradient, m / k * (own - torch.stack(others)))
    assert gradient.sum().abs() <= 1e-14


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("baseline", BASELINES)
@pytest.mark.parametrize("k, m", [(2, 1), (3, 2), (4, 2), (4, 4)])
def test_value_and_gradient_are_unbiased(k, m, baseline, largest):
    if k == m and baseline in ("leave_one_out", "centred"):
        return
    problem = Problem(4)
    sample, probability = independent(problem.log_probs, k)
    estimate = swor.best_of_independent(sample, m, largest=largest, baseline=baseline)
    loss = probability @ estimate.loss(problem.value()[sample.value])
    target = problem.exact(m, largest=largest)
    assert (loss - target).abs() <= 1e-12
    assert (problem.gradient(loss) - problem.gradient(target)).abs().max() <= 1e-12


def test_successes_give_the_known_formula():
    k, right = 7, 3
    f = torch.tensor([1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0], dtype=torch.float64)
    sample, _ = random_sample(k)
    for m in range(1, k + 1):
        target = 1.0 - comb(k - right, m) / comb(k, m)
        mean = swor.best_of_independent(sample, m).mean(f)
        assert (mean - target).abs() <= 1e-15 and not mean.requires_grad


def test_what_is_refused():
    sample, f = random_sample(3)
    with pytest.raises(ValueError, match="expected at least 4 for the best of m = 4"):
        swor.best_of_independent(sample, 4)
    with pytest.raises(ValueError, match=r"expected at least 4 .* baseline='centred'"):
        swor.best_of_independent(sample, 3, baseline="centred")
    with pytest.raises(ValueError, match="baseline is 'mean'; expected one of 'none'"):
        swor.best_of_independent(sample, 2, baseline="mean")
    with pytest.raises(ValueError, match=r"best_of_independent was given .* 'without_replacement'"):
        swor.best_of_independent(swor.gumbel_top_k(torch.zeros(4).log_softmax(-1), 2), 1)
    with pytest.raises(ValueError, match="f contains NaN or an infinite number"):
        swor.best_of_independent(sample, 2).loss(f * torch.nan)
