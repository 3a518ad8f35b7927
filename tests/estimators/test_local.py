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
