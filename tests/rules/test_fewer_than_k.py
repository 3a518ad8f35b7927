"""Elements of a batch with fewer than k outcomes: every rule stays unbiased, proven by enumeration."""

from __future__ import annotations

import math
from functools import partial
from itertools import permutations

import pytest
import torch
from problems import seeded
from torch import Tensor

import swor

K = 3
POSSIBLE = ([0, 1, 2, 3, 4], [1, 3], [4], [0, 2, 3])  # one element has more than k, one has k
F = torch.randn(5, generator=seeded(3), dtype=torch.float64) + 2.0


def log_probs(logits: Tensor) -> Tensor:
    mask = torch.full((len(POSSIBLE), 5), -torch.inf, dtype=logits.dtype)
    for row, possible in enumerate(POSSIBLE):
        mask[row, possible] = 0.0
    return (logits + mask).log_softmax(-1)


def all_samples(logits: Tensor) -> tuple[swor.Sample, Tensor, Tensor]:
    """Every ordered sample of every row in one batch, its probability, and its row."""
    table = log_probs(logits)
    orders = [
        (row, b)
        for row, possible in enumerate(POSSIBLE)
        for b in permutations(possible, min(K, len(possible)))
    ]
    row = torch.tensor([row for row, _ in orders])
    value = torch.tensor([[*b, *[0] * (K - len(b))] for _, b in orders])
    left_over = torch.tensor([[i >= len(b) for i in range(K)] for _, b in orders])
    log_p = table[row].gather(-1, value).masked_fill(left_over, -torch.inf)
    masses = log_p.detach().exp()
    outside = [
        table[r, [i for i in POSSIBLE[r] if i not in b]].detach().exp().sum() for r, b in orders
    ]
    rest = torch.stack(outside)
    remaining = rest.unsqueeze(-1) + masses.flip(-1).cumsum(-1).flip(-1)
    probability = torch.where(left_over, 1.0, masses / remaining).prod(-1)
    sample = swor.Sample(value, log_p, rest.log(), scheme="without_replacement")
    return sample, probability, row


def costs(sample: swor.Sample, poison: float) -> Tensor:
    return F[sample.value].masked_fill(sample.log_p == -torch.inf, poison)


def parameters() -> Tensor:
    shape = (len(POSSIBLE), 5)
    return torch.randn(shape, generator=seeded(1), dtype=torch.float64).requires_grad_()


def by_row(x: Tensor, row: Tensor) -> Tensor:
    return torch.zeros(len(POSSIBLE), dtype=x.dtype).index_add(0, row, x)


def check(loss: Tensor, probability: Tensor, row: Tensor, exact: Tensor, logits: Tensor) -> None:
    mean = by_row(probability * loss, row)
    torch.testing.assert_close(mean, exact, rtol=0, atol=1e-12)
    (found,) = torch.autograd.grad(mean.sum(), logits)
    (expected,) = torch.autograd.grad(exact.sum(), logits)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


RULES = {
    "unordered_set": swor.unordered_set,
    "single_sample": swor.single_sample,
    "raj": swor.raj,
    **{f"sum_and_sample_{m}": partial(swor.sum_and_sample, m=m) for m in (1, 2, 3)},
}


@pytest.mark.parametrize("poison", [0.0, math.nan, math.inf])
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_rules_are_unbiased(rule, poison: float) -> None:
    logits = parameters()
    sample, probability, row = all_samples(logits)
    assert torch.allclose(by_row(probability, row), torch.ones(len(POSSIBLE)).double())
    exact = (log_probs(logits).exp() * F).sum(-1)
    weights = rule(sample)
    assert (weights.weight[sample.log_p == -torch.inf] == 0).all()
    check(weights.loss(costs(sample, poison)), probability, row, exact, logits)
    mean = by_row(probability * weights.mean(costs(sample, poison)), row)
    torch.testing.assert_close(mean, exact.detach(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("poison", [0.0, math.nan])
def test_an_off_policy_loss_is_unbiased(poison: float) -> None:
    sampled_from, logits = parameters().detach() * 0.5, parameters()
    sample, probability, row = all_samples(sampled_from)
    exact = (log_probs(logits).exp() * F).sum(-1)
    log_p = log_probs(logits)[row].gather(-1, sample.value)  # not masked by the sampler
    loss = swor.unordered_set(sample).loss(
        costs(sample, poison), log_p=log_p.masked_fill(sample.log_p == -torch.inf, -torch.inf)
    )
    check(loss, probability, row, exact, logits)


@pytest.mark.parametrize(
    "rule", [swor.importance_weighted, swor.normalized_importance_weighted, swor.risk]
)
def test_rules_with_a_threshold_are_exact_where_nothing_is_left(rule) -> None:
    logits = parameters()
    table = log_probs(logits)
    sample = swor.gumbel_top_k(table, K, allow_fewer=True, generator=seeded())
    loss = rule(sample).loss(costs(sample, math.nan))
    exact = (table.exp() * F).sum(-1)
    torch.testing.assert_close(loss[1:], exact[1:], rtol=0, atol=1e-12)
    (found,) = torch.autograd.grad(loss[1:].sum(), logits, retain_graph=True)
    (expected,) = torch.autograd.grad(exact[1:].sum(), logits)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def best(table: Tensor, f: Tensor, m: int) -> Tensor:
    """The expected largest of m draws, (rows,)."""
    order = f.argsort()
    below = table.exp()[:, order].cumsum(-1)
    before = torch.cat([torch.zeros_like(below[:, :1]), below[:, :-1]], dim=-1)
    return ((below**m - before**m) * f[order]).sum(-1)


@pytest.mark.parametrize("poison", [0.0, math.nan])
@pytest.mark.parametrize("m", [1, 2, 3])
def test_the_best_of_m_is_unbiased(m: int, poison: float) -> None:
    logits = parameters()
    sample, probability, row = all_samples(logits)
    exact = best(log_probs(logits), F, m)
    check(swor.best_of(sample, m).loss(costs(sample, poison)), probability, row, exact, logits)


@pytest.mark.parametrize("order", [1, 3])
def test_the_log_of_success_is_unbiased(order: int) -> None:
    logits = parameters()
    sample, probability, row = all_samples(logits)
    success = (F.median() < F).double()
    terms = [(best(log_probs(logits), success, m) - 1.0) / m for m in range(1, order + 1)]
    given = success[sample.value].masked_fill(sample.log_p == -torch.inf, math.nan)
    loss = swor.log_success(sample, order).loss(given)
    check(loss, probability, row, torch.stack(terms).sum(0), logits)


def test_the_estimated_variance_is_unbiased() -> None:
    sample, probability, row = all_samples(parameters().detach())
    cost = costs(sample, math.nan)
    estimate = swor.unordered_set(sample).mean(cost)
    mean = by_row(probability * estimate, row)
    variance = by_row(probability * estimate.square(), row) - mean.square()
    found = by_row(probability * swor.murthy_variance(sample, cost), row)
    torch.testing.assert_close(found, variance, rtol=0, atol=1e-12)
    assert variance[0] > 0 and (found[1:] == 0).all()
    of_best = by_row(probability * swor.best_of(sample, 1).variance(cost), row)
    torch.testing.assert_close(of_best, variance, rtol=0, atol=1e-12)


def test_advantages_of_completions_that_are_left_over_are_zero() -> None:
    sample, _, _ = all_samples(parameters().detach())
    found = swor.advantages(sample.log_p, costs(sample, math.nan), log_rest=sample.log_rest)
    assert found.isfinite().all()
    assert (found[sample.log_p == -torch.inf] == 0).all()


@pytest.mark.parametrize(
    "rule",
    [swor.unordered_set, swor.raj, swor.normalized_importance_weighted, swor.risk],
)
def test_an_element_without_possible_outcomes_has_no_weight(rule) -> None:
    nothing = torch.full((3,), -torch.inf)
    sample = swor.Sample(
        torch.zeros(3), nothing, nothing[0], nothing[0], scheme="without_replacement"
    )
    weights = rule(sample)
    assert (weights.weight == 0.0).all() and weights.loss(torch.ones(3)) == 0.0
