"""Rules: exact with any baseline, off-policy, at low entropy and for impossible outcomes."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from four_outcomes import N, Problem
from problems import log_probabilities, seeded
from torch.distributions import Categorical

import swor
from swor.diagnostics.all_samples import all_samples
from swor.diagnostics.enumeration import exact_moments
from swor.estimators.baselines import BUILT_IN

RULES = {n: e for n, e in swor.ESTIMATORS.items() if e.baseline == BUILT_IN}


UNBIASED = sorted(name for name, entry in RULES.items() if entry.unbiased)


BIASED = sorted(name for name, entry in RULES.items() if not entry.unbiased)


DISTINCT = sorted(n for n, e in RULES.items() if e.scheme == swor.Scheme.WITHOUT_REPLACEMENT)


def worst_bias(entry, k, scale, **options):
    problem = Problem(scale)
    moments = exact_moments(
        entry.rule, entry.scheme, problem.cost, problem.dist, k, problem.parameters, **options
    )
    value, gradient = problem.gradient()
    return max((moments.mean - value).abs(), (moments.gradient - gradient).abs().max())


@pytest.mark.parametrize("scale", [0.5, 8.0])
@pytest.mark.parametrize("k", range(1, N + 1))
@pytest.mark.parametrize("name", UNBIASED)
def test_unbiased(name, k, scale):
    for baseline in ("built-in", 0.0, 1.7):
        assert worst_bias(RULES[name], k, scale, baseline=baseline) <= 1e-12


@pytest.mark.parametrize("name", BIASED)
def test_biased(name):
    for k in (2, 3):
        assert worst_bias(RULES[name], k, 0.5) > 1e-4
    assert worst_bias(RULES[name], N, 0.5) <= 1e-12  # the whole domain leaves no room for bias


@pytest.mark.parametrize("k", range(1, N + 1))
@pytest.mark.parametrize("name", UNBIASED)
def test_unbiased_off_policy(name, k):
    """Sampled from q, differentiated by the parameters of p, with the built-in baseline."""
    problem = Problem(0.5)
    log_q = log_probabilities(N, seed=9)
    entry = RULES[name]
    drawn = all_samples(log_q, k, entry.scheme)
    log_p = problem.theta.log_softmax(-1)
    weights = entry.rule(drawn.sample)
    index = drawn.sample.value
    loss = weights.loss(problem.cost(index), log_p=log_p[index])
    estimate = (drawn.probability * loss).sum()
    ours = torch.cat(torch.autograd.grad(estimate, problem.parameters))
    value, gradient = problem.gradient()
    assert (estimate - value).abs() <= 1e-12
    assert (ours - gradient).abs().max() <= 1e-12


def test_without_the_ratio_of_policies_it_is_biased():
    """The off-policy test would notice: the same sum with the weights of q for p."""
    problem = Problem(0.5)
    drawn = all_samples(log_probabilities(N, seed=9), 2, swor.Scheme.WITHOUT_REPLACEMENT)
    loss = swor.unordered_set(drawn.sample).loss(problem.cost(drawn.sample.value))
    assert ((drawn.probability * loss).sum() - problem.gradient()[0]).abs() > 1e-3


@pytest.mark.parametrize("name", DISTINCT)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_low_entropy_has_no_nan(name, dtype):
    logits = torch.tensor([[0.0, -30.0, -60.0, -90.0], [0.0, 0.0, -300.0, -300.0]], dtype=dtype)
    logits.requires_grad_()
    for k in range(1, 5):
        sample = swor.gumbel_top_k(logits.log_softmax(-1), k, generator=seeded())
        weights = RULES[name].rule(sample)
        loss = weights.loss(torch.arange(2.0 * k, dtype=dtype).reshape(2, k))
        (gradient,) = torch.autograd.grad(loss.sum(), logits)
        assert loss.isfinite().all() and gradient.isfinite().all()
        assert weights.weight.isfinite().all()


@pytest.mark.parametrize("name", DISTINCT)
def test_an_impossible_outcome_has_no_weight_and_no_gradient(name):
    log_p = torch.tensor([0.5, 0.0, 0.2]).double().log().requires_grad_()
    log_rest = torch.tensor(0.3).double().log()
    sample = swor.Sample(torch.arange(3), log_p, log_rest, log_rest, scheme="without_replacement")
    weights = RULES[name].rule(replace(sample))
    if name != "single_sample":
        assert weights.weight[1] <= 0.35  # raj: the mass left at its turn, for a sample of p = 0
    weights.loss(torch.tensor([1.0, 2.0, 3.0]).double()).backward()
    assert log_p.grad.isfinite().all() and log_p.grad[1] == 0
    if name in ("unordered_set", "importance_weighted", "normalized_importance_weighted", "risk"):
        assert weights.weight[1] == 0


@pytest.mark.parametrize("name", ["unordered_set", "rloo", "importance_weighted"])
def test_no_built_in_baseline_for_a_single_sample(name):
    dist = Categorical(logits=torch.zeros(3, 4))
    drawn = swor.sample(dist, 1, replacement=name == "rloo")
    assert RULES[name].rule(drawn).baseline_weights is None


def test_a_whole_loss_compiles_without_a_break():
    def loss(logits, cost):
        sample = swor.gumbel_top_k(logits.log_softmax(-1), 3)
        return swor.unordered_set(sample).loss(cost).mean()

    logits = torch.randn(5, 400, generator=seeded()).requires_grad_()
    cost = torch.ones(5, 3)
    value = torch.compile(loss, fullgraph=True, backend="aot_eager")(logits, cost)
    value.backward()
    assert torch.allclose(value, torch.tensor(1.0), atol=1e-5)  # weights sum to 1
    assert logits.grad.abs().max() <= 1e-5  # and so do the rows of the baseline
