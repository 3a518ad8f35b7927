"""REBAR and RELAX: unbiased for any control variate, which learns from the squared gradient."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from proofs import Problem, assert_unbiased
from torch import Tensor

import swor
from swor.estimators import _gumbel_control as gumbel_control


def nothing(z: Tensor) -> Tensor:
    """A control variate of 0: REINFORCE."""
    return 0.0 * z.sum((-1, -2))


def quadratic_control(z: Tensor) -> Tensor:
    """Any smooth function of the perturbed log-probabilities."""
    return (0.3 * z.square() + torch.sin(z)).sum((-1, -2)) + 0.2 * z[..., 0, 0] * z[..., -1, 1]


@pytest.mark.parametrize("common_noise", [True, False])
@pytest.mark.parametrize("dist", ["one_hot", "bernoulli", "one_hots", "bernoullis"])
def test_rebar_unbiased(dist: str, common_noise: bool) -> None:
    options = {"temperature": 0.7, "scale": 1.3, "common_noise": common_noise}
    assert_unbiased(partial(swor.rebar, **options), dist, 1)


@pytest.mark.parametrize("common_noise", [True, False])
@pytest.mark.parametrize("dist", ["categorical", "bernoulli", "categoricals", "square"])
def test_relax_unbiased(dist: str, common_noise: bool) -> None:
    options = {"control": quadratic_control, "common_noise": common_noise}
    assert_unbiased(partial(swor.relax, **options), dist, 1)


def without_its_argmax(
    log_probs: Tensor, index: Tensor, generator: torch.Generator | None
) -> Tensor:
    """The conditional Gumbel with each entry's own noise where that of the winner belongs."""
    log_probs = log_probs.expand(*index.shape, log_probs.shape[-1])
    g = gumbel_control.gumbel_like(log_probs, generator)
    wrong = g - torch.nn.functional.softplus(-log_probs)
    return torch.where(torch.arange(3) == index.unsqueeze(-1), g, wrong)


def test_the_same_test_sees_a_wrong_conditional_gumbel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gumbel_control, "conditional_gumbel", without_its_argmax)
    wrong = partial(swor.relax, control=quadratic_control, common_noise=False)
    with pytest.raises(AssertionError, match="z-scores"):
        assert_unbiased(wrong, "categoricals", 1)


def test_the_same_test_sees_a_missing_slope(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gumbel_control, "_behind", torch.ones_like)
    with pytest.raises(AssertionError, match="z-scores"):
        assert_unbiased(partial(swor.rebar, temperature=0.7), "one_hots", 1)


def test_conditional_gumbel_keeps_its_argmax_and_its_law() -> None:
    generator = torch.Generator().manual_seed(0)
    log_probs = torch.tensor([0.7, 0.2, 0.1], dtype=torch.float64).log().expand(200_000, 3)
    z = log_probs + gumbel_control.gumbel_like(log_probs, generator)
    winners = z.argmax(-1)
    again = gumbel_control.conditional_gumbel(log_probs, winners, generator)
    assert torch.equal(again.argmax(-1), winners)
    for moment in (lambda x: x, torch.square, lambda x: x * x.roll(1, -1)):
        difference = moment(z) - moment(again)  # paired by the winner
        error = difference.std(0) / len(z) ** 0.5
        assert (difference.mean(0) / error).abs().max() < 4.0


def gradient_by_logits(estimate: Tensor, logits: Tensor) -> Tensor:
    return torch.autograd.grad(estimate.sum(), logits, retain_graph=True)[0]


@pytest.mark.parametrize("common_noise", [True, False])
def test_relax_trains_its_control_by_the_squared_gradient(common_noise: bool) -> None:
    torch.manual_seed(0)
    control = swor.ControlVariate(2, 3, hidden=(5,)).double()
    for parameter in control.parameters():
        torch.nn.init.normal_(parameter, std=0.3)

    def run() -> tuple[Tensor, Problem]:
        problem = Problem("one_hots", 4)
        generator = torch.Generator().manual_seed(1)
        options = {"control": control, "common_noise": common_noise}
        return swor.relax(problem.f, problem.dist, 1, **options, generator=generator), problem

    estimate, problem = run()
    by_bias, by_psi = torch.autograd.grad(
        estimate.sum(), [control.layers[0].bias, problem.psi], retain_graph=True
    )
    generator = torch.Generator().manual_seed(1)
    plain = swor.relax(problem.f, problem.dist, 1, control=nothing, generator=generator)
    torch.testing.assert_close(by_psi, torch.autograd.grad(plain.sum(), problem.psi)[0])
    numeric = torch.empty_like(by_bias)
    for i in range(5):
        squares = []
        for step in (1e-5, -2e-5):
            with torch.no_grad():
                control.layers[0].bias[i] += step
            moved, at = run()
            squares.append(gradient_by_logits(moved, at.logits).square().sum())
        with torch.no_grad():
            control.layers[0].bias[i] += 1e-5
        numeric[i] = (squares[0] - squares[1]) / 2e-5
    torch.testing.assert_close(by_bias, numeric, rtol=1e-6, atol=1e-9)


def test_rebar_trains_temperature_and_scale_by_the_squared_gradient() -> None:
    def squared(temperature: float, scale: float) -> Tensor:
        problem = Problem("one_hots", 4)
        generator = torch.Generator().manual_seed(1)
        options = {"temperature": temperature, "scale": scale, "generator": generator}
        estimate = swor.rebar(problem.f, problem.dist, 1, **options)
        return gradient_by_logits(estimate, problem.logits).square().sum()

    problem = Problem("one_hots", 4)
    learned = [torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in (0.7, 1.3)]
    generator = torch.Generator().manual_seed(1)
    options = {"temperature": learned[0], "scale": learned[1], "generator": generator}
    estimate = swor.rebar(problem.f, problem.dist, 1, **options)
    *by, by_psi = torch.autograd.grad(estimate.sum(), [*learned, problem.psi])
    h = 1e-5
    numeric = [
        (squared(0.7 + h, 1.3) - squared(0.7 - h, 1.3)) / (2 * h),
        (squared(0.7, 1.3 + h) - squared(0.7, 1.3 - h)) / (2 * h),
    ]
    torch.testing.assert_close(torch.stack(by), torch.stack(numeric), rtol=1e-6, atol=1e-8)
    # The pathwise term is that of the outcome alone.
    generator = torch.Generator().manual_seed(1)
    plain = swor.relax(problem.f, problem.dist, 1, control=nothing, generator=generator)
    torch.testing.assert_close(by_psi, torch.autograd.grad(plain.sum(), problem.psi)[0])


def test_a_trained_control_variate_has_less_variance() -> None:
    torch.manual_seed(0)
    control = swor.ControlVariate(2, 3, hidden=(20,)).double()
    optimizer = torch.optim.Adam(control.parameters(), lr=0.02)

    def variance() -> float:
        problem = Problem("one_hots", 20_000)
        generator = torch.Generator().manual_seed(1)
        estimate = swor.relax(problem.f, problem.dist, 1, control=control, generator=generator)
        return float(gradient_by_logits(estimate, problem.logits).var(0).sum())

    before = variance()
    for _ in range(100):
        problem = Problem("one_hots", 64)
        optimizer.zero_grad()
        swor.relax(problem.f, problem.dist, 1, control=control).mean().backward()
        optimizer.step()
    assert variance() < 0.7 * before
