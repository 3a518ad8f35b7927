"""Local estimators: one variable of a product at a time."""

from __future__ import annotations

import pytest
import torch
from proofs import Problem, exact, expected

import swor
from swor.estimators import local


def test_enumeration_sees_a_wrong_local_estimator(monkeypatch: pytest.MonkeyPatch) -> None:
    mean_of_gradients = lambda weights, cost: weights.loss(cost).mean(-1)  # noqa: E731
    monkeypatch.setattr(local, "_combine", mean_of_gradients)
    wrong = expected(swor.local_unordered_set, "categoricals", 2)
    assert (wrong - exact("categoricals")).abs().max() > 1e-2


def test_all_categories_of_a_single_variable_are_exact() -> None:
    for estimate, k in ((swor.local_expectation, 1), (swor.local_unordered_set, 3)):
        problem = Problem("categorical", 7)
        moments = problem.moments(estimate(problem.f, problem.dist, k))
        torch.testing.assert_close(moments, exact("categorical").expand(7, -1))


def test_a_masked_category_may_have_any_cost() -> None:
    """Local expectations evaluate it, but it cannot happen, so its cost does not matter."""
    mask = torch.tensor([[0.0, 0.0, -torch.inf], [0.0, -torch.inf, 0.0]])
    logits = torch.randn(2, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()

    def gradient(impossible: float) -> torch.Tensor:
        base = torch.distributions.OneHotCategorical(logits=logits + mask, validate_args=False)
        dist = torch.distributions.Independent(base, 1, validate_args=False)

        def f(z: torch.Tensor) -> torch.Tensor:
            masked = (z * mask.isinf()).sum((-1, -2)) > 0.0
            return (z[..., 0, 0] - z[..., 1, 2] / 3.0).exp().masked_fill(masked, impossible)

        generator = torch.Generator().manual_seed(1)
        loss = swor.local_expectation(f, dist, 2, generator=generator)
        (found,) = torch.autograd.grad(loss, logits)
        return torch.cat([loss.detach().unsqueeze(0), found.flatten()])

    for impossible in (torch.inf, -torch.inf, torch.nan):
        torch.testing.assert_close(gradient(impossible), gradient(0.0))
    assert gradient(0.0).isfinite().all()
