"""Weights: the surrogate loss, its baselines and its pathwise term."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from problems import log_probabilities, seeded

import swor
from swor import Sample


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


def test_an_off_policy_loss_of_a_probability_that_float32_cannot_represent():
    """0 · inf: the weight of q = e^-95 is tiny, and p / q is beyond float32."""
    log_q = torch.tensor([[math.log(0.5), math.log(0.5), -95.0, -96.0]]).log_softmax(-1)
    nothing = torch.full((1,), -torch.inf)
    sample = Sample(torch.arange(4)[None], log_q, nothing, scheme="without_replacement")
    log_p = torch.tensor([[0.1, 0.2, 0.3, 0.4]]).log().requires_grad_()
    f = torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    loss = swor.unordered_set(sample).loss(f, log_p=log_p)  # the whole domain: exact
    assert loss.item() == pytest.approx(3.0, rel=1e-3)  # its weight is subnormal
    loss.sum().backward()
    assert log_p.grad.isfinite().all()


EVEN_LESS = torch.tensor([[math.log(0.5), math.log(0.5), -150.0, -800.0]])  # exp is 0 in float32
TARGET = torch.tensor([[0.1, 0.2, 0.3, 0.4]]).log()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_off_policy_loss_of_a_weight_that_underflows(dtype):
    nothing = torch.full((1,), -torch.inf, dtype=dtype)
    log_q, log_p = EVEN_LESS.to(dtype), TARGET.to(dtype, copy=True).requires_grad_()
    f = torch.tensor([[1.0, 2.0, 3.0, 4.0]], dtype=dtype)
    whole = Sample(torch.arange(4)[None], log_q, nothing, scheme="without_replacement")
    loss = swor.unordered_set(whole).loss(f, log_p=log_p)
    assert loss.item() == pytest.approx(3.0, rel=1e-6)
    loss.sum().backward()
    assert log_p.grad.isfinite().all()
    log_p.grad = None
    swor.unordered_set(whole).loss(f, log_p=log_p, baseline=3.0).sum().backward()
    torch.testing.assert_close(log_p.grad, log_p.detach().exp() * (f - 3.0))


def test_off_policy_weights_in_log_space_are_those_of_the_product():
    """A rest of e^-120 is below float32, too; in float64 the product is right."""
    log_q = torch.tensor([[math.log(0.5), math.log(0.5), -110.0, -115.0]])
    rest = torch.tensor([-120.0])
    log_p = torch.tensor([[-1.0, -1.0, -100.0, -95.0]])
    single = Sample(torch.arange(4)[None], log_q, rest, scheme="without_replacement")
    double = replace(single, log_p=log_q.double(), log_rest=rest.double())
    found = swor.unordered_set(single).off_policy(log_p + 90.0 * (log_p < -2))
    expected = swor.unordered_set(double).off_policy((log_p + 90.0 * (log_p < -2)).double())
    torch.testing.assert_close(found.weight.double(), expected.weight, rtol=1e-4, atol=0)
    torch.testing.assert_close(
        found.baseline_weights.double(), expected.baseline_weights, rtol=1e-4, atol=0
    )


@pytest.mark.parametrize("rule", [swor.raj, swor.sum_and_sample, swor.risk])
def test_other_rules_refuse_a_weight_that_underflows(rule):
    nothing = torch.full((1,), -torch.inf)
    whole = Sample(torch.arange(4)[None], EVEN_LESS, nothing, scheme="without_replacement")
    with pytest.raises(ValueError, match=r"weight below 1e-38.*float64, or use swor.unordered_set"):
        rule(whole).loss(torch.ones(1, 4), log_p=TARGET)


def test_an_off_policy_weight_that_overflows_is_refused():
    sample = swor.Sample(torch.arange(2), torch.tensor([-60.0, -1.0]), scheme="with_replacement")
    log_p = torch.tensor([-1.0, -1.0])
    with pytest.raises(
        ValueError, match=r"e.59 times as probable under log_p.*nearer to each other"
    ):
        swor.rloo(sample).loss(torch.ones(2), log_p=log_p)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_that_of_the_result_alone(dtype):
    log_probs = log_probabilities(64, 30, dtype=torch.float32).to(dtype).requires_grad_()
    cost = 1000.0 + torch.randn(64, 6, generator=seeded(), dtype=torch.float32)
    sample = swor.gumbel_top_k(log_probs, 6, generator=seeded())
    exact = Sample(
        sample.value,
        sample.log_p.detach().double().requires_grad_(),
        sample.log_rest.double(),
        sample.kappa.double(),
        scheme=sample.scheme,
    )
    for rule in (swor.unordered_set, swor.importance_weighted, swor.raj, swor.risk):
        weights = rule(sample)
        assert weights.weight.dtype == torch.float32
        loss = weights.loss(cost)
        assert loss.dtype == torch.float32  # that of the costs
        (found,) = torch.autograd.grad(loss.sum(), sample.log_p, retain_graph=True)
        (expected,) = torch.autograd.grad(rule(exact).loss(cost.double()).sum(), exact.log_p)
        error = (found.double() - expected).abs().mean() / expected.abs().mean()
        assert error < 0.01
        assert rule(sample).loss(cost.to(dtype)).dtype == dtype


def test_costs_of_any_finite_size():
    log_probs = torch.tensor([0.4, 0.3, 0.2, 0.1]).log().requires_grad_()
    sample = swor.gumbel_top_k(log_probs, 3, generator=seeded())
    cost = torch.tensor([3e38, -3e38, 3e38])
    weights = swor.unordered_set(sample)
    assert torch.allclose(weights.loss(cost), weights.mean(cost))
    weights.loss(cost).backward()
    assert not log_probs.grad.isnan().any()


@pytest.mark.parametrize("baseline", [math.nan, math.inf])
def test_a_number_as_a_baseline_is_finite(baseline):
    weights = swor.Weights(torch.ones(2) / 2, None, torch.tensor([0.5, 0.5]).log())
    with pytest.raises(ValueError, match=f"baseline is {baseline}; expected a finite number"):
        weights.loss(torch.ones(2), baseline=baseline)


def test_true_is_no_baseline():
    weights = swor.Weights(torch.ones(2) / 2, None, torch.tensor([0.5, 0.5]).log())
    with pytest.raises(TypeError, match="baseline is a bool; expected 'built-in', a number"):
        weights.loss(torch.ones(2), baseline=True)


def test_the_cost_of_an_impossible_outcome_is_not_used_whether_it_is_finite_or_not():
    log_p = torch.tensor([0.5, 0.5, 0.0]).log()
    sample = swor.Sample(torch.arange(3), log_p, scheme="with_replacement")
    finite, infinite = torch.tensor([1.0, 2.0, 5.0]), torch.tensor([1.0, 2.0, torch.inf])
    assert swor.rloo(sample).mean(finite) == swor.rloo(sample).mean(infinite)


def test_forward_and_reverse_derivatives_agree():
    chosen = torch.tensor([[0, 3, 1], [4, 2, 0]])
    cost = torch.rand(2, 3, dtype=torch.float64, generator=seeded())

    def loss(logits: torch.Tensor) -> torch.Tensor:
        log_probs = logits.log_softmax(-1)
        log_p = log_probs.gather(-1, chosen)
        left = log_probs.scatter(-1, chosen, -torch.inf).logsumexp(-1)
        sample = Sample(chosen, log_p, left, scheme="without_replacement")
        return swor.unordered_set(sample).loss(cost)

    logits = log_probabilities(2, 5)
    forward, reverse = torch.func.jacfwd(loss)(logits), torch.func.jacrev(loss)(logits)
    torch.testing.assert_close(forward, reverse)
