"""Forward-mode derivatives, nested transforms and export: constants stay constants, and nothing remains."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import swor
from swor.math._subsets import made_once

LOG_P = torch.tensor([0.4, 0.3, 0.1], dtype=torch.float64).log()
LOG_REST = torch.tensor(0.2, dtype=torch.float64).log()
F = torch.tensor([1.0, 3.0, 2.0], dtype=torch.float64)
SUCCESS = (F > 2.0).double()
DIRECTION = torch.tensor([1.0, -0.5, 0.25], dtype=torch.float64)


def sample(log_p: Tensor) -> swor.Sample:
    return swor.Sample(torch.arange(3), log_p, LOG_REST, scheme="without_replacement")


LOSSES: dict[str, Callable[[Tensor], Tensor]] = {
    "unordered_set": lambda log_p: swor.unordered_set(sample(log_p)).loss(F),
    "unordered_set, off-policy": lambda log_p: swor.unordered_set(sample(LOG_P)).loss(
        F, log_p=log_p
    ),
    "best_of": lambda log_p: swor.best_of(sample(log_p), 2).loss(F),
    "best_of, off-policy": lambda log_p: swor.best_of(sample(LOG_P), 2).loss(F, log_p=log_p),
    "best_of, of the values": lambda f: swor.best_of(sample(LOG_P), 2).loss(f),
    "log_success": lambda log_p: swor.log_success(sample(log_p), 2).loss(SUCCESS),
    "risk": lambda log_p: swor.risk(sample(log_p)).loss(F),
}
CONSTANTS: dict[str, Callable[[Tensor], Tensor]] = {
    "leave_one_out": swor.leave_one_out,
    "mean": lambda log_p: swor.unordered_set(sample(log_p)).mean(F),
    "baseline": lambda log_p: swor.unordered_set(sample(log_p)).baseline(F),
    "mean of risk": lambda log_p: swor.risk(sample(log_p)).mean(F),
    "best_of": lambda log_p: swor.best_of(sample(log_p), 2).mean(F),
    "log_success": lambda log_p: swor.log_success(sample(log_p), 2).mean(SUCCESS),
    "advantages": lambda log_p: swor.advantages(log_p, F),
    "advantages, of the rewards": lambda reward: swor.advantages(LOG_P, reward),
    "murthy_variance": lambda log_p: swor.murthy_variance(sample(log_p), F),
    "pair_weights": lambda log_p: swor.pair_weights(sample(log_p)),
}


@pytest.mark.parametrize("name", LOSSES)
def test_both_modes_have_the_same_derivative(name: str) -> None:
    loss = LOSSES[name]
    at = F if "values" in name else LOG_P
    _, forward = torch.func.jvp(loss, (at,), (DIRECTION,))
    torch.testing.assert_close(forward, torch.func.grad(loss)(at) @ DIRECTION)


@pytest.mark.parametrize("name", CONSTANTS)
def test_what_has_no_gradient_has_no_tangent(name: str) -> None:
    _, tangent = torch.func.jvp(CONSTANTS[name], (LOG_P,), (DIRECTION,))
    assert tangent.abs().max() == 0.0


class Loss(torch.nn.Module):
    """The loss of a sample whose outcomes are its costs."""

    def forward(self, log_p: Tensor, f: Tensor) -> Tensor:
        """Return the loss, (*batch,)."""
        return swor.unordered_set(swor.Sample(f, log_p, None, scheme="without_replacement")).loss(f)


@pytest.mark.parametrize("first", ["hessian", "export", "inference", "vmap"])
def test_what_a_first_call_runs_under_does_not_matter(first: str) -> None:
    """Tables that are made under a transform and kept would break every later call."""
    made_once.cache_clear()
    log_p, f, loss = torch.full((4,), 0.2).log(), torch.arange(4.0), Loss()
    expected = 1.5  # the mean of f, since all outcomes are equally likely

    def curvature() -> Tensor:
        return torch.func.hessian(lambda x: loss(x, f))(log_p)

    match first:
        case "hessian":
            curvature()
        case "export":
            exported = torch.export.export(loss, (log_p, f))
            assert float(exported.module()(log_p, f)) == pytest.approx(expected)
        case "inference":
            with torch.inference_mode():
                loss(log_p, f)
        case "vmap":
            torch.func.vmap(torch.func.grad(loss))(log_p.expand(2, 4), f.expand(2, 4))
    assert float(loss(log_p, f)) == pytest.approx(expected)
    assert curvature().isfinite().all()
    tracked = log_p.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(tracked, f), tracked)
    assert gradient.isfinite().all() and not math.isclose(float(gradient.abs().max()), 0.0)
