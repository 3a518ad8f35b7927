"""The Bernoulli problem: its known loss and gradient, and the estimators that are compared on it."""

from __future__ import annotations

import pytest
import torch

import swor
from reproduction.bernoulli.problem import CURVES, cost, distribution


def test_known_loss_and_gradient() -> None:
    eta = torch.tensor(0.0, dtype=torch.float64, requires_grad=True)
    loss = swor.exact(cost, distribution(eta))
    (gradient,) = torch.autograd.grad(loss, eta)
    assert loss.item() == pytest.approx(0.7605, abs=1e-12)
    assert gradient.item() == pytest.approx(-0.045, abs=1e-12)


def test_evaluations_are_those_of_the_registry() -> None:
    dist = distribution(torch.tensor(0.0))
    for curve in CURVES:
        assert curve.estimate.evaluations(3) == swor.ESTIMATORS[curve.name].evaluations(3, dist)
