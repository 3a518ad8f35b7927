"""Statistics of groups: exact means by enumeration."""

from __future__ import annotations

from itertools import permutations

import pytest
import torch
from problems import log_probabilities, seeded

import swor


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("scale", [0.5, 4.0])
def test_duplicates_avoided_and_variance_are_unbiased(k, scale):
    log_p = log_probabilities(5, scale=scale)
    p = log_p.exp()
    cost = torch.randn(5, generator=seeded(), dtype=torch.float64)
    orders = torch.tensor(list(permutations(range(5), k)))
    samples = swor.Sample(orders, log_p[orders], scheme="without_replacement")
    chance = swor.log_prob_ordered(log_p[orders]).exp()
    found = swor.group_statistics(samples, cost[orders])
    distinct = (1 - (1 - p) ** k).sum()
    assert torch.allclose(
        (chance * found.duplicates_avoided).sum(), k - distinct, rtol=0, atol=1e-12
    )
    estimate = swor.unordered_set(samples).mean(cost[orders])
    variance = (chance * (estimate - (p * cost).sum()).square()).sum()
    assert torch.allclose((chance * found.standard_error.square()).sum(), variance, atol=1e-12)
    assert torch.allclose(found.mass_covered, p[orders].sum(-1))
    assert ((found.effective_sample_size >= 1) & (found.effective_sample_size <= k)).all()


def test_confident_and_vanishing_probabilities():
    log_p = torch.tensor([0.0, -200.0, -torch.inf]).log_softmax(-1)[:2]
    found = swor.group_statistics(
        swor.Sample(torch.arange(2), log_p, torch.tensor(-400.0), scheme="without_replacement"),
        torch.tensor([1.0, 0.0]),
    )
    assert found.mass_covered == 1 and found.duplicates_avoided == 1
    assert found.effective_sample_size == 1 and found.standard_error == 0


def test_a_probability_that_rounding_makes_larger_than_one():
    sample = swor.gumbel_top_k(torch.tensor([2e-7, -30.0, -30.0]), 2)
    found = swor.group_statistics(sample, torch.tensor([1.0, 0.0]))
    assert found.mass_covered == 1 and found.duplicates_avoided == 1


def test_samples_with_replacement_are_refused():
    sample = swor.with_replacement(log_probabilities(4), 3)
    with pytest.raises(ValueError, match="group_statistics was given a sample"):
        swor.group_statistics(sample, torch.zeros(3).double())
