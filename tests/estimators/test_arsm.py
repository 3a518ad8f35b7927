"""ARSM is its formula."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from proofs import Problem, assert_unbiased

import swor
from swor.estimators import coupled as arsm_module


def test_arsm_is_its_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    """Term by term for two variables; swaps that are not centred would be unbiased as well."""
    problem = Problem("categoricals")
    noise = torch.randn(1, 2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    monkeypatch.setattr(arsm_module, "gumbel_like", lambda x, generator: noise)
    gradient = problem.moments(swor.arsm(problem.f, problem.dist, 1))[1:7].reshape(2, 3)
    pi = torch.softmax(-noise[0], -1)
    table = torch.empty(3, 3, dtype=torch.float64)
    for m, j in product(range(3), repeat=2):
        swapped = pi.clone()
        swapped[:, m], swapped[:, j] = pi[:, j], pi[:, m]
        x = (swapped * torch.exp(-problem.logits.detach())).argmin(-1)
        table[m, j] = problem.f(x.unsqueeze(0)).detach().squeeze()
    for i, m in product(range(2), range(3)):
        terms = [(table[m, j] - table[:, j].mean()) * (1 / 3 - pi[i, j]) for j in range(3)]
        torch.testing.assert_close(gradient[i, m], sum(terms))


def test_the_same_test_sees_a_wrong_scale_of_arsm(monkeypatch: pytest.MonkeyPatch) -> None:
    right = arsm_module.loss_with_gradient
    wrong = lambda variables, cost, gradient: right(variables, cost, gradient / 3)  # noqa: E731
    monkeypatch.setattr(arsm_module, "loss_with_gradient", wrong)
    with pytest.raises(AssertionError, match="z-scores"):
        assert_unbiased(swor.arsm, "categoricals", 1)
