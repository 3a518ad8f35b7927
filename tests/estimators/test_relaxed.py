"""Relaxations: biased, with a value of outcomes or of relaxed ones, at any temperature."""

from __future__ import annotations

import pytest
import torch
from proofs import Problem, exact, expected, z_scores
from torch import Tensor

import swor


def test_reinmax_is_exact_for_a_quadratic() -> None:
    def quadratic(x: Tensor) -> Tensor:
        return x[..., 0] * x[..., 1] - 2.0 * x[..., 2].square() + 0.5 * x[..., 1]

    mean = expected(lambda f, dist, k: swor.reinmax(quadratic, dist, k), "one_hot", 1)
    problem = Problem("one_hot")
    target = problem.moments(swor.exact(quadratic, problem.dist))
    torch.testing.assert_close(mean, target, rtol=0, atol=1e-12)


def test_values_and_gradients_by_the_cost_are_unbiased_where_f_sees_outcomes() -> None:
    z = z_scores(swor.straight_through, "one_hots", 1, exact("one_hots"))
    bias = (expected(swor.reinmax, "one_hots", 1) - exact("one_hots")).abs()
    assert max(z[0], z[-1]) < 4.0 and max(bias[0], bias[-1]) < 1e-12


@pytest.mark.parametrize("name", ["straight_through", "reinmax", "rebar", "relax"])
def test_the_value_is_that_of_outcomes(name: str) -> None:
    seen = []

    def f(x: Tensor) -> Tensor:
        seen.append(x.detach())
        return x.square().sum((-1, -2))

    base = torch.distributions.OneHotCategorical(logits=torch.randn(50, 2, 3, requires_grad=True))
    dist = torch.distributions.Independent(base, 1)
    value = swor.ESTIMATORS[name].make(dist)(f, dist, 3)
    assert torch.equal(value, torch.full((50,), 2.0))
    assert ((seen[0] == 0) | (seen[0] == 1)).all()
    assert (seen[0].sum(-1) == 1).all()


@pytest.mark.parametrize("name", ["gumbel_softmax", "straight_through"])
def test_a_temperature_can_be_learned(name: str) -> None:
    problem = Problem("one_hots", 3)
    log_temperature = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    options = {"temperature": log_temperature.exp()}
    getattr(swor, name)(problem.f, problem.dist, 2, **options).sum().backward()
    assert log_temperature.grad is not None
    assert log_temperature.grad.abs() > 0


@pytest.mark.parametrize("name", ["gumbel_softmax", "straight_through", "reinmax", "rebar", "arsm"])
def test_masked_categories_leave_no_nan(name: str) -> None:
    logits = torch.tensor([0.3, -torch.inf, 0.1], requires_grad=True)
    dist = torch.distributions.OneHotCategorical(logits=logits, validate_args=False)
    temperature = torch.tensor(0.5, requires_grad=True)
    options = {} if name == "arsm" else {"temperature": temperature}
    value = getattr(swor, name)(lambda x: (x * torch.arange(3.0)).sum(-1), dist, 4, **options)
    value.backward()
    assert value.isfinite() and logits.grad is not None and logits.grad.isfinite().all()
    assert logits.grad[1] == 0
    assert temperature.grad is None or temperature.grad.isfinite()
