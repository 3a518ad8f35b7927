"""Exact variances by hand and by Monte Carlo, and the optimisation."""

from __future__ import annotations

import math

import pytest
import torch

from reproduction.bernoulli.problem import CURVES, cost, distribution
from reproduction.bernoulli.task import K, Variance, exact_variance, monte_carlo, trajectory

CURVE = {curve.name: curve for curve in CURVES}


def variance(name: str, k: int, eta: float = 0.0) -> float:
    return exact_variance(eta, CURVE[name], k).variance


@pytest.mark.parametrize("eta", [0.0, -4.0])
def test_variances_by_hand(eta: float) -> None:
    """REINFORCE is a mean of independent terms; with others' mean as a baseline, a U-statistic."""
    p = distribution(torch.tensor(eta, dtype=torch.float64)).probs
    ones = torch.tensor([0, 1, 1, 2, 1, 2, 2, 3], dtype=torch.float64)
    score = ones - 3.0 * torch.sigmoid(torch.tensor(eta, dtype=torch.float64))
    f = cost(torch.arange(8))

    def mean(x: torch.Tensor) -> float:
        return float((p * x).sum())

    gradient, spread = mean(score * f), mean(f**2) - mean(f) ** 2
    plain = mean((score * f) ** 2) - gradient**2
    centred = mean((score * (f - mean(f))) ** 2) - gradient**2
    for k in K:
        assert variance("reinforce_no_baseline", k, eta) == pytest.approx(plain / k, rel=1e-11)
        fresh = (centred + spread * mean(score**2)) / k
        assert variance("reinforce_sampled_baseline", k, eta) == pytest.approx(fresh, rel=1e-11)
        if k > 1:  # the terms s_i f_j that are left have no mean, and pairs of them
            pairs = (mean(score**2) * spread + gradient**2) / (k * (k - 1))
            loo = variance("rloo", k, eta)
            assert loo == pytest.approx(centred / k + pairs, rel=1e-11)


def test_whole_domain_leaves_no_variance() -> None:
    for name in (
        "unordered_set",
        "unordered_set_no_baseline",
        "sum_and_sample",
        "deterministic_sum_and_sample",
    ):
        for eta in (0.0, -4.0):
            point = exact_variance(eta, CURVE[name], 8)
            assert point.variance == 0.0
            assert point.log_variance == -math.inf
    assert variance("importance_weighted", 8) == 0.0
    assert variance("sum_and_sample_sampled_baseline", 8) > 0.0


def test_importance_weights_are_infinite_up_to_three() -> None:
    for k in (1, 2, 3):
        point = exact_variance(0.0, CURVE["importance_weighted"], k)
        assert (point.variance, point.method) == (math.inf, "analysis")
    assert variance("importance_weighted", 4) < math.inf


def test_ties_are_broken_by_index() -> None:
    """At η = 0 all outcomes tie: the first k - 1 are summed."""
    p, f = 1 / 8, cost(torch.arange(8))
    score = torch.tensor([0, 1, 1, 2, 1, 2, 2, 3], dtype=torch.float64) - 1.5
    rest = score[3:] * f[3:]  # k = 4 sums the first three, and samples from the others
    expected = ((5 * p) ** 2 * rest.square()).mean() - (5 * p * rest.mean()) ** 2
    assert variance("deterministic_sum_and_sample", 4) == pytest.approx(float(expected), rel=1e-11)
    probs = distribution(torch.tensor(-4.0, dtype=torch.float64)).probs
    assert probs[1] == probs[2] == probs[4]


@pytest.mark.parametrize("curve", CURVES, ids=lambda curve: curve.name)
@pytest.mark.parametrize("k", [2, 5])
def test_monte_carlo_agrees(curve, k: int) -> None:
    point = exact_variance(0.0, curve, k)
    check = monte_carlo(point, 20_000, torch.Generator().manual_seed(0))
    if point.variance < math.inf:
        assert abs(check.z) < 4.0
    else:
        assert check.z == -math.inf


def test_monte_carlo_would_notice() -> None:
    point = exact_variance(0.0, CURVE["unordered_set"], 3)
    wrong = Variance(*point[:4], 1.2 * point.variance, *point[5:])
    assert monte_carlo(wrong, 20_000, torch.Generator().manual_seed(0)).z < -4.0


def test_unordered_set_follows_the_exact_gradient() -> None:
    names = ("exact", "unordered_set", "rloo")
    exact, unordered, rloo = (trajectory(name, 20, 300, seed=0) for name in names)
    assert exact.shape == (301, 20)
    assert float(exact[0, 0]) == -4.0
    away = (unordered - exact).abs()[-1].mean()
    assert float(away) < 0.5 * float((rloo - exact).abs()[-1].mean())
