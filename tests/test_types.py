"""Weights: the surrogate loss, its baselines and its pathwise term."""

from __future__ import annotations

import pytest
import torch
from problems import log_probabilities, seeded

import swor


def test_the_loss_is_the_estimate_and_carries_the_pathwise_term():
    sample = swor.gumbel_top_k(log_probabilities(3, 5).requires_grad_(), 2, generator=seeded())
    weights = swor.unordered_set(sample)
    cost = torch.rand(3, 2, dtype=torch.float64, generator=seeded()).requires_grad_()
    loss = weights.loss(cost)
    assert torch.equal(loss, weights.mean(cost))
    (by_cost,) = torch.autograd.grad(loss.sum(), cost)
    assert torch.equal(by_cost, weights.weight)


def test_an_external_baseline_replaces_the_built_in_one():
    log_probs = log_probabilities(3, 5).requires_grad_()
    sample = swor.gumbel_top_k(log_probs, 2, generator=seeded())
    weights = swor.unordered_set(sample)
    cost = torch.rand(3, 2, dtype=torch.float64, generator=seeded())
    for baseline in (2.0, torch.full((3, 1), 2.0).double(), torch.tensor(2.0).double()):
        (mine,) = torch.autograd.grad(
            weights.loss(cost, baseline=baseline).sum(), log_probs, retain_graph=True
        )
        by_hand = (weights.weight * (cost - 2.0) * sample.log_p).sum()
        (expected,) = torch.autograd.grad(by_hand, log_probs, retain_graph=True)
        assert torch.allclose(mine, expected, rtol=0, atol=1e-12)


def test_a_sample_says_how_it_was_drawn():
    log_p = log_probabilities(3)
    with pytest.raises(
        TypeError, match=r"no scheme; expected one of 'without_replacement', .*scheme="
    ):
        swor.Sample(torch.arange(3), log_p)
    independent = swor.Sample(torch.arange(3), log_p, scheme="with_replacement")
    with pytest.raises(ValueError, match="unordered_set was given a sample drawn by the scheme"):
        swor.unordered_set(independent)
