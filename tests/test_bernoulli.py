"""The Bernoulli experiment: its known numbers, its files and its figures."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import pytest
import torch

import swor
from swor.experiments.bernoulli.curves import CURVES
from swor.experiments.bernoulli.problem import cost, distribution
from swor.experiments.bernoulli.run import bernoulli
from swor.experiments.bernoulli.settings import Settings
from swor.experiments.bernoulli.trajectory import trajectory
from swor.experiments.bernoulli.variances import K, Variance, exact_variance, monte_carlo

NAMES = {
    "reinforce_no_baseline",
    "reinforce",
    "reinforce_sampled_baseline",
    "sum_and_sample",
    "sum_and_sample_sampled_baseline",
    "deterministic_sum_and_sample",
    "deterministic_sum_and_sample_sampled_baseline",
    "unordered_set",
    "unordered_set_no_baseline",
    "importance_weighted",
}
CURVE = {curve.name: curve for curve in CURVES}


def variance(name: str, k: int, eta: float = 0.0) -> float:
    return exact_variance(eta, CURVE[name], k).variance


def test_known_loss_and_gradient() -> None:
    eta = torch.tensor(0.0, dtype=torch.float64, requires_grad=True)
    loss = swor.exact(cost, distribution(eta))
    (gradient,) = torch.autograd.grad(loss, eta)
    assert loss.item() == pytest.approx(0.7605, abs=1e-12)
    assert gradient.item() == pytest.approx(-0.045, abs=1e-12)


def test_curves_are_those_of_the_figure() -> None:
    assert set(CURVE) == NAMES
    for curve in CURVES:
        dist = distribution(torch.tensor(0.0))
        assert curve.estimate.evaluations(3) == swor.ESTIMATORS[curve.name].evaluations(3, dist)


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
            loo = variance("reinforce", k, eta)
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
    settings = Settings(steps=300)
    exact, unordered, reinforce = (
        trajectory(name, settings) for name in ("exact", "unordered_set", "reinforce")
    )
    assert exact.shape == (301, 20)
    assert float(exact[0, 0]) == -4.0
    away = (unordered - exact).abs()[-1].mean()
    assert float(away) < 0.5 * float((reinforce - exact).abs()[-1].mean())


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_files(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    out = tmp_path / "figure"
    bernoulli(Settings(eta=(0.0, -4.0), out=out, repeats=50, runs=3, steps=4))
    header = (out / "variances.csv").read_text().splitlines()[0]
    assert header == "eta,estimator,k,evaluations,variance,log_variance,method"
    rows = read(out / "variances.csv")
    assert {(float(r["eta"]), r["estimator"], int(r["k"])) for r in rows} == {
        (eta, name, k) for eta in (0.0, -4.0) for name in NAMES for k in range(1, 9)
    }
    for r in rows:
        assert int(r["evaluations"]) == int(r["k"]) * (
            2 if "sampled_baseline" in r["estimator"] else 1
        )
        if 0.0 < float(r["variance"]) < math.inf:
            assert float(r["log_variance"]) == pytest.approx(math.log(float(r["variance"])))
    assert len(read(out / "monte_carlo.csv")) == 160
    assert len(read(out / "trajectory.csv")) == 3 * 5
    settings = json.loads((out / "settings.json").read_text())
    assert settings["settings"]["eta"] == [0.0, -4.0]
    assert {"python", "swor", "torch"} <= set(settings["versions"])
    for name in ("figure1", "trajectory"):
        assert (out / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (out / f"{name}.svg").read_text()
    assert not [path for path in out.iterdir() if path.name.startswith(".")]
    with pytest.raises(FileExistsError, match="--out"):
        bernoulli(Settings(out=out))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"eta": ()}, "eta is"),
        ({"eta": (math.nan,)}, "eta is"),
        ({"eta": (1.0, 1.0)}, "each number once"),
        ({"repeats": 1}, "repeats is 1"),
        ({"runs": 1}, "at least 2 runs"),
        ({"k": 9}, "8 outcomes"),
        ({"learning_rate": 0.0}, "positive"),
    ],
)
def test_bad_settings_are_refused(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Settings(**settings)
