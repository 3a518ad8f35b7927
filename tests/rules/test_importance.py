"""Importance weights and risk follow the paper's equations."""

from __future__ import annotations

import math

import pytest
import torch
from problems import log_probabilities, seeded

import swor


def test_risk_is_the_gradient_of_the_normalised_expectation():
    theta = torch.randn(6, dtype=torch.float64, generator=seeded()).requires_grad_()
    cost = torch.randn(3, dtype=torch.float64, generator=seeded(1))
    log_p = theta.log_softmax(-1)[[4, 0, 2]]
    (exact,) = torch.autograd.grad((log_p.softmax(-1) * cost).sum(), theta, retain_graph=True)
    sample = swor.Sample(torch.tensor([4, 0, 2]), log_p, scheme="without_replacement")
    (ours,) = torch.autograd.grad(swor.risk(sample).loss(cost), theta)
    assert torch.allclose(ours, exact, rtol=0, atol=1e-12)


def test_normalised_importance_weights_follow_the_papers_equation():
    """Kool et al. (2020), equation (52): terms normalised by W_i and the baseline by W."""
    sample = swor.gumbel_top_k(log_probabilities(6), 3, generator=seeded())
    cost = torch.randn(3, dtype=torch.float64, generator=seeded(1))
    p = sample.log_p.exp()
    q = -torch.expm1(-torch.exp(sample.log_p - sample.kappa))
    total, baseline = (p / q).sum(), (p / q * cost).sum()
    own = total - p / q + p
    expected = (p / q) / own * (cost - baseline / total)
    weights = swor.normalized_importance_weighted(sample)
    ours = weights.weight * (cost - weights.baseline(cost))
    assert torch.allclose(ours, expected, rtol=0, atol=1e-12)


def test_importance_weights_with_a_baseline_follow_the_papers_equation():
    """Kool et al. (2020), equation (51), with the correction in place of a baseline per sample."""
    sample = swor.gumbel_top_k(log_probabilities(6), 3, generator=seeded())
    cost = torch.randn(3, dtype=torch.float64, generator=seeded(1))
    p = sample.log_p.exp()
    q = -torch.expm1(-torch.exp(sample.log_p - sample.kappa))
    expected = p / q * (cost * (1 - p + p / q) - (p / q * cost).sum())
    weights = swor.importance_weighted(sample)
    ours = weights.weight * (cost - weights.baseline(cost))
    assert torch.allclose(ours, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("kappa", "message"),
    [
        ([-1.0, math.nan, -1.0], "log_p or kappa of the sample contains NaN"),
        ([-1.0, math.inf, -1.0], "log_p or kappa of the sample contains NaN or .inf"),
        (
            [[-1.0], [-1.0], [-1.0]],
            r"kappa has shape .3, 1.; expected .3,., one number for every el",
        ),
        (-1.0, r"kappa has shape ..; expected .3,."),
    ],
)
def test_a_threshold_that_does_not_go_with_the_sample_is_refused(kappa, message):
    log_p, log_rest = torch.full((3, 2), 0.25).log(), torch.full((3,), 0.5).log()
    kappa = torch.tensor(kappa)
    sample = swor.Sample(torch.zeros(3, 2), log_p, log_rest, kappa, scheme="without_replacement")
    with pytest.raises(ValueError, match=message):
        swor.importance_weighted(sample)


@pytest.mark.parametrize("rule", [swor.importance_weighted, swor.risk])
def test_a_log_probability_that_is_nan_is_noticed(rule):
    log_p, kappa = torch.tensor([-1.0, float("nan")]), torch.tensor(-0.5)
    sample = swor.Sample(torch.arange(2), log_p, kappa, kappa, scheme="without_replacement")
    with pytest.raises(ValueError, match="of the sample contains NaN"):
        rule(sample)
    for log_rest in (torch.tensor(-1.0), torch.tensor(float("nan"))):
        with pytest.raises(ValueError, match="contains NaN"):
            swor.log_prob_ordered(log_p.nan_to_num(-1.0) if log_rest.isnan() else log_p, log_rest)
