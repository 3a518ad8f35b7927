"""Advantages of distinct completions: their plain mean with the scores estimates the gradient."""

from __future__ import annotations

import pytest
import torch
from best_of_enumeration import Problem, distinct
from problems import log_probabilities
from torch import Tensor

import swor

OBJECTIVES: list[tuple[str, int | None]] = [("mean", None), ("best_of", 2), ("log_success", 3)]


def objective(f: Tensor, log_probs: Tensor, name: str, m: int | None) -> Tensor:
    p = log_probs.exp()
    if name == "mean":
        return (p * f).sum()
    if name == "best_of":
        return (
            p.unsqueeze(0) * p.unsqueeze(1) * torch.maximum(f.unsqueeze(0), f.unsqueeze(1))
        ).sum()
    return -sum(((1 - (p * f).sum()) ** n / n for n in range(1, 4)), torch.zeros(()))


@pytest.mark.parametrize(("name", "m"), OBJECTIVES)
@pytest.mark.parametrize("given", [True, False])
def test_they_are_unbiased(name: str, m: int | None, given: bool) -> None:
    problem = Problem(5)
    f = problem.value().detach()
    f = (f > 0).to(f.dtype) if name == "log_success" else f
    sample, probability = distinct(problem.log_probs, 3)
    rest = sample.log_rest if given else None
    a = swor.advantages(sample.log_p, f[sample.value], log_rest=rest, objective=name, m=m)
    assert not a.requires_grad
    estimate = (probability * (a * sample.log_p).mean(-1)).sum()
    (found,) = torch.autograd.grad(estimate, problem.theta)
    (exact,) = torch.autograd.grad(objective(f, problem.log_probs, name, m), problem.theta)
    torch.testing.assert_close(found, exact, rtol=1e-12, atol=1e-12)


def test_the_ratio_of_whole_completions_corrects_for_another_policy() -> None:
    """As in a second step with the same completions: for the mean reward, and not for the best of m."""
    problem, old = Problem(5), log_probabilities(5, seed=3)
    sample, probability = distinct(old, 3)
    f, log_p = problem.value().detach(), problem.log_probs[sample.value]
    for name, m, corrected in (("mean", None, True), ("best_of", 2, False)):
        a = swor.advantages(sample.log_p, f[sample.value], objective=name, m=m)
        estimate = (probability * (a * (log_p - sample.log_p).exp()).mean(-1)).sum()
        (found,) = torch.autograd.grad(estimate, problem.theta, retain_graph=True)
        target = objective(f, problem.log_probs, name, m)
        (exact,) = torch.autograd.grad(target, problem.theta, retain_graph=True)
        assert ((found - exact).abs().max() < 1e-12) == corrected


def test_places_that_are_left_over_have_no_advantage() -> None:
    log_p = torch.tensor([0.7, 0.3, 0.0]).log().requires_grad_()
    given = {"log_rest": torch.tensor(-torch.inf)}
    a = swor.advantages(log_p, torch.tensor([1.0, 0.0, torch.nan]), **given)
    assert a[2] == 0
    loss = torch.where(a != 0, a * log_p, 0.0).mean()
    (found,) = torch.autograd.grad(loss, log_p)
    torch.testing.assert_close(found, torch.tensor([0.21, -0.21, 0.0]))


def test_without_duplicates_they_are_those_of_rloo() -> None:
    reward = torch.tensor([3.0, 1.0, 2.0, 0.0], dtype=torch.float64)
    log_p = torch.full((4,), -60.0, dtype=torch.float64)
    rloo = reward - (reward.sum() - reward) / 3
    torch.testing.assert_close(swor.advantages(log_p, reward), rloo)


def test_under_no_grad_and_with_batch_axes() -> None:
    log_p = torch.full((2, 3, 4), 0.1).log()
    reward = torch.rand(2, 3, 4)
    with torch.no_grad():
        a = swor.advantages(log_p, reward)
    assert a.shape == (2, 3, 4)
    torch.testing.assert_close(a[1, 2], swor.advantages(log_p[1, 2], reward[1, 2]))


def test_mistakes_are_explained() -> None:
    log_p, reward = torch.tensor([0.5, 0.2]).log(), torch.ones(2)
    with pytest.raises(ValueError, match="objective is 'max'; expected one of mean"):
        swor.advantages(log_p, reward, objective="max")
    with pytest.raises(ValueError, match="m is None for the objective 'best_of'"):
        swor.advantages(log_p, reward, objective="best_of")
    with pytest.raises(ValueError, match="m is 2 for the objective 'mean'"):
        swor.advantages(log_p, reward, m=2)
    with pytest.raises(ValueError, match=r"reward has shape \(3,\); expected \(2,\)"):
        swor.advantages(log_p, torch.ones(3))
    with pytest.raises(ValueError, match=r"sum to 1.8; expected at most 1.*that all differ"):
        swor.advantages(torch.tensor([0.9, 0.9]).log(), reward)  # one completion twice
    with pytest.raises(ValueError, match="reward contains NaN"):
        swor.advantages(log_p, torch.tensor([1.0, torch.nan]))


def test_inside_of_an_inference_mode():
    with torch.inference_mode():
        log_p, reward = torch.tensor([0.5, 0.25]).log(), torch.tensor([1.0, 0.0])
        found = swor.advantages(log_p, reward)
    torch.testing.assert_close(found, torch.tensor([0.6, -0.6]))


@pytest.mark.parametrize("objective", ["best_of", "log_success"])
def test_too_few_possible_completions_are_refused_without_the_mass_outside(objective):
    log_p, reward = torch.tensor([0.5, 0.0]).log(), torch.tensor([1.0, 0.0])
    with pytest.raises(ValueError, match="only 1 outcomes of positive probability"):
        swor.advantages(log_p, reward, objective=objective, m=2)


OBJECTIVE = [{}, {"objective": "best_of", "m": 2}, {"objective": "log_success", "m": 2}]


@pytest.mark.parametrize("given", OBJECTIVE, ids=str)
def test_under_vmap(given):
    log_p = torch.stack([log_probabilities(6)[:4], log_probabilities(7)[:4]])
    reward = torch.tensor([[0.0, 1.0, 1.0, 0.0], [1.0, 0.0, 0.0, 0.0]], dtype=torch.float64)
    found = torch.func.vmap(lambda p, r: swor.advantages(p, r, **given))(log_p, reward)
    assert torch.allclose(found, swor.advantages(log_p, reward, **given), rtol=1e-12)


@pytest.mark.parametrize("given", OBJECTIVE, ids=str)
def test_compiled_as_one_graph(given):
    log_p = log_probabilities(6)[:4]
    reward = torch.tensor([0.0, 1.0, 1.0, 0.0], dtype=torch.float64)
    compiled = torch.compile(
        lambda p, r: swor.advantages(p, r, **given), fullgraph=True, backend="eager"
    )
    assert torch.allclose(compiled(log_p, reward), swor.advantages(log_p, reward, **given))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_an_offset_of_the_rewards_costs_no_digits_in_half_precision(dtype: torch.dtype) -> None:
    log_p = torch.tensor([0.25, 0.25, 0.125, 0.0625]).log().to(dtype)
    reward = torch.tensor([100.0, 101.0, 102.0, 103.0])
    found = swor.advantages(log_p, reward.to(dtype)).double()
    exact = swor.advantages(log_p.double(), reward.double())
    assert ((found - exact).abs().max() / exact.abs().max()) < 0.01


def test_an_order_that_is_too_high_is_named_as_it_was_given():
    log_p, reward = torch.tensor([0.3, 0.2]).log(), torch.tensor([1.0, 0.0])
    with pytest.raises(ValueError, match=r"^m is 3; expected from 1 to 2"):
        swor.advantages(log_p, reward, objective="log_success", m=3)
