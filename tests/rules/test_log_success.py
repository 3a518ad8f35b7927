"""The log of the probability of success: unbiased for every order, by enumeration."""

from __future__ import annotations

import pytest
import torch
from best_of_enumeration import distinct, independent
from torch import Tensor

import swor
from swor.math._best_of.weights import Method, best_of_weights

SUCCESS = torch.tensor([0.0, 1.0, 0.0, 0.0, 1.0], dtype=torch.float64)


def logits(scale: float = 1.0) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return (scale * torch.randn(5, dtype=torch.float64, generator=generator)).requires_grad_()


def target(theta: Tensor, order: int) -> tuple[Tensor, Tensor]:
    """The truncated series and its gradient, written by the definition."""
    success = (theta.softmax(-1) * SUCCESS).sum()
    series = -sum(((1.0 - success) ** m / m for m in range(1, order + 1)), torch.zeros(()))
    return series.detach(), torch.autograd.grad(series, theta)[0]


def mean(estimates: Tensor, probability: Tensor, theta: Tensor) -> tuple[Tensor, Tensor]:
    value = (probability * estimates).sum()
    return value.detach(), torch.autograd.grad(value, theta)[0]


@pytest.mark.parametrize("scale", [0.3, 4.0])
@pytest.mark.parametrize(("k", "order"), [(k, t) for k in range(1, 6) for t in range(1, k + 1)])
def test_every_order_is_unbiased(k: int, order: int, scale: float) -> None:
    theta = logits(scale)
    sample, probability = distinct(theta.log_softmax(-1), k)
    estimate = swor.log_success(sample, order)
    losses = estimate.loss(SUCCESS[sample.value])
    torch.testing.assert_close(estimate.mean(SUCCESS[sample.value]), losses.detach())
    for found, exact in zip(mean(losses, probability, theta), target(theta, order), strict=True):
        torch.testing.assert_close(found, exact, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("k", [2, 3, 5])
def test_maxrl_has_the_order_below_the_number_of_samples(k: int) -> None:
    theta = logits()
    sample, probability = independent(theta.log_softmax(-1), k)
    losses = swor.log_success_independent(sample, SUCCESS[sample.value])
    found = mean(losses, probability, theta)
    for x, exact in zip(found, target(theta, k - 1), strict=True):
        torch.testing.assert_close(x, exact, rtol=1e-12, atol=1e-12)
    assert (found[1] - target(theta, k)[1]).abs().max() > 1e-4  # not for the next order


@pytest.mark.parametrize("k", [3, 4])
def test_distinct_samples_have_less_variance_than_maxrl(k: int) -> None:
    """At the same order, k − 1, and from as many samples."""

    def variance(losses: Tensor, probability: Tensor, theta: Tensor) -> float:
        rows = torch.stack([torch.autograd.grad(x, theta, retain_graph=True)[0] for x in losses])
        return float((probability @ rows.square() - (probability @ rows).square()).sum())

    theta = logits(2.0)
    one, p = distinct(theta.log_softmax(-1), k)
    other, q = independent(theta.log_softmax(-1), k)
    ours = variance(swor.log_success(one, k - 1).loss(SUCCESS[one.value]), p, theta)
    assert ours < variance(swor.log_success_independent(other, SUCCESS[other.value]), q, theta)


@pytest.mark.parametrize("method", ["subsets", "integral"])
@pytest.mark.parametrize(("k", "order"), [(4, 4), (6, 3), (12, 9), (12, 12)])
def test_one_pass_is_the_sum_of_the_passes_for_every_m(k: int, order: int, method: Method) -> None:
    """Also off-policy, with an impossible outcome, and where the sample is the whole domain."""
    generator = torch.Generator().manual_seed(2)
    log_probs = (3 * torch.randn(3, 20, dtype=torch.float64, generator=generator)).log_softmax(-1)
    log_p, log_rest = log_probs[:, :k].clone(), log_probs[:, k:].logsumexp(-1)
    log_p[1], log_rest[1] = log_p[1].log_softmax(-1), -torch.inf
    log_p[2, 0] = -torch.inf if order < k else log_p[2, 0]
    target = log_p - 0.1 * torch.arange(k)
    success = (torch.arange(k).expand(3, k) % 3 == 1).double()
    rest = torch.where(log_rest > -torch.inf, torch.log1p(-log_p.exp().sum(-1)), log_rest)

    def found(m: int | dict[int, float]) -> Tensor:
        return torch.stack(best_of_weights(log_p, rest, success, m, log_p=target, method=method))

    parts = sum((found(m) / m for m in range(1, order + 1)), torch.zeros(()))
    together = found({m: 1.0 / m for m in range(1, order + 1)})
    torch.testing.assert_close(together, parts, rtol=1e-11, atol=1e-12)


def test_order_one_is_the_unordered_set_estimator() -> None:
    theta = logits()
    sample, _ = distinct(theta.log_softmax(-1), 3)
    success = SUCCESS[sample.value]
    one = swor.log_success(sample, 1).loss(success)
    torch.testing.assert_close(one, swor.unordered_set(sample).loss(success) - 1.0)


def test_off_policy_it_stays_unbiased() -> None:
    theta, other = logits(), logits(0.2).detach()
    sample, probability = distinct(other.log_softmax(-1), 3)
    log_p = theta.log_softmax(-1)[sample.value]
    losses = swor.log_success(sample, 3).loss(SUCCESS[sample.value], log_p=log_p)
    for found, exact in zip(mean(losses, probability, theta), target(theta, 3), strict=True):
        torch.testing.assert_close(found, exact, rtol=1e-12, atol=1e-12)


def test_mistakes_are_explained() -> None:
    sample = swor.gumbel_top_k(torch.zeros(4).log_softmax(-1), 3)
    with pytest.raises(ValueError, match="order is 4; expected from 1 to 3"):
        swor.log_success(sample, 4)
    with pytest.raises(ValueError, match="neither 0 nor 1"):
        swor.log_success(sample, 2).loss(torch.tensor([0.5, 0.0, 1.0]))
    with pytest.raises(ValueError, match=r"log_success was given .* 'with_replacement'"):
        swor.log_success(swor.with_replacement(torch.zeros(4).log_softmax(-1), 3), 2)
    alone = swor.with_replacement(torch.zeros(4).log_softmax(-1), 1)
    with pytest.raises(ValueError, match="expected k >= 2"):
        swor.log_success_independent(alone, torch.ones(1))
