"""VIMCO is unbiased for its own objective."""

from __future__ import annotations

import math

import pytest
import torch
from proofs import Problem, exact, expected
from torch import Tensor

import swor


@pytest.mark.parametrize("k", [1, 2, 3])
def test_vimco_unbiased_for_its_objective(k: int) -> None:
    def objective(problem: Problem) -> Tensor:
        draws = torch.cartesian_prod(*[torch.arange(3)] * k).reshape(-1, k)
        log_p = problem.dist.logits[draws].sum(-1)
        bound = problem.f(draws).logsumexp(-1) - math.log(k)
        return (log_p.exp() * bound).sum()

    problem = Problem("categorical")
    mean = expected(swor.vimco, "categorical", k)
    torch.testing.assert_close(mean, problem.moments(objective(problem)), rtol=0, atol=1e-12)
    if k > 1:
        assert (mean - exact("categorical")).abs().max() > 1e-3


def test_the_baseline_of_vimco_absorbs_a_shift() -> None:
    gradients = []
    for shift in (0.0, 50.0):
        problem = Problem("categorical", 100)
        generator = torch.Generator().manual_seed(0)
        shifted = lambda x, f=problem.f, shift=shift: f(x) + shift  # noqa: E731
        estimate = swor.vimco(shifted, problem.dist, 4, generator=generator)
        gradients.append(problem.moments(estimate)[:, 1:])
    torch.testing.assert_close(*gradients)


def test_impossible_terms_leave_value_and_gradient_finite() -> None:
    log_f = torch.tensor([0.0, -torch.inf, -torch.inf], dtype=torch.float64)
    logits = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    dist, refused = torch.distributions.Categorical(logits=logits), 0
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        try:
            bound = swor.vimco(lambda x: log_f[x], dist, 3, generator=generator)
        except ValueError as error:
            assert "all terms log_f of an element of the batch are" in str(error)
            refused += 1
            continue
        (gradient,) = torch.autograd.grad(bound, logits, retain_graph=True)
        assert bound.item() in [pytest.approx(math.log(n / 3)) for n in (1, 2, 3)]
        assert gradient.isfinite().all()
    assert 0 < refused < 20
