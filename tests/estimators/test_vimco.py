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
