"""The laws of samplers in float32 where outcomes are as improbable as its rounding: 6e-8 and below."""

from __future__ import annotations

import math

import pytest
import torch
from problems import seeded

import swor
from swor.samplers import _distinct, _inversion, _race


def confident(n: int, p: float) -> torch.Tensor:
    """Log-probabilities of one likely outcome, the first, and n - 1 that share the rest."""
    log_probs = torch.full((n,), (1.0 - p) / (n - 1)).log()
    log_probs[0] = torch.tensor(p).log()
    return log_probs


def assert_tail(value: torch.Tensor, n: int, p: float) -> None:
    """The tail is drawn as often as it should be, and its halves are drawn equally often."""
    draws, tail = value.numel(), value[value > 0]
    expected = (1.0 - p) * draws
    assert abs(len(tail) - expected) < 4.0 * expected**0.5
    assert abs(int((tail > n // 2).sum()) - expected / 2) < 4.0 * (expected / 2) ** 0.5


@pytest.mark.parametrize("n, p", [(50_257, 0.999), (250_000, 0.98)])
def test_independent_samples_have_their_tail(n: int, p: float) -> None:
    value = swor.with_replacement(confident(n, p), 400_000, generator=seeded()).value
    assert_tail(value, n, p)


@pytest.mark.parametrize("n, p", [(50_257, 0.999), (250_000, 0.98), (1000, 1.0 - 2e-5)])
def test_two_levels_invert_the_same_fractions_as_one(
    n: int, p: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even fractions of the tail give outcomes that are even in the tail."""
    u = p + (1.0 - p) * (torch.arange(500, dtype=torch.float64) + 0.5) / 500
    fractions = [1.0 - u, torch.full((500, 1), 0.5, dtype=torch.float64)]
    monkeypatch.setattr(_inversion, "DIRECT", 1)
    monkeypatch.setattr(_inversion, "SMALLEST_BLOCK", 1)
    monkeypatch.setattr(_inversion, "uniform_like", lambda x, generator: fractions.pop(0))
    value = _inversion.draw(confident(n, p).exp(), 500, None)
    even = 1 + (n - 1) * (u - p) / (1.0 - p)
    assert (value - even).abs().max() < 2 + n / 500


@pytest.mark.parametrize("draw", [swor.stratified_sample, swor.systematic_sample])
def test_strata_reach_every_outcome_of_the_tail(draw) -> None:
    n, p, k, generator = 50_257, 0.999, 2**21, seeded()
    log_probs = confident(n, p)
    values = torch.cat([draw(log_probs, k, generator=generator).value for _ in range(10)])
    tail = values[values > 0]
    assert abs(len(tail) - (1.0 - p) * len(values)) <= 20
    # In steps of 6e-8, two outcomes of three would have no probability.
    reached = (n - 1) * -math.expm1(-len(tail) / (n - 1))
    assert len(tail.unique()) > 0.95 * reached


def test_a_stream_spreads_over_millions_of_outcomes() -> None:
    n, k = 2_000_000, 130_000
    sample = swor.gumbel_top_k(torch.full((n,), 1.0 / n).log(), k, generator=seeded())
    tenths = torch.bincount(sample.value * 10 // n, minlength=10)
    assert ((tenths - k / 10).abs() < 4.0 * (k / 10) ** 0.5).all()


def test_drawing_one_by_one_reaches_the_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    n, p = 50_257, 0.999
    u = p + (1.0 - p) * (torch.arange(100, dtype=torch.float64) + 0.5) / 100
    monkeypatch.setattr(_inversion, "uniform_like", lambda x, generator: 1.0 - u.unsqueeze(-1))
    place = _distinct.draw_index(confident(n, p).expand(100, n), None).squeeze(-1)
    even = 1 + (n - 1) * (u - p) / (1.0 - p)
    assert (place - even).abs().max() < 10


@pytest.mark.parametrize(
    "noise", [_race.exponential_like, lambda x, g: _race.gumbel_like(x, g).neg().exp()]
)
def test_noise_of_a_race_resolves_small_probabilities(noise) -> None:
    """An outcome of probability p wins with a noise of about p, so the smallest must not lie on a grid."""
    e = noise(torch.empty(2_000_000), seeded())
    small = e[e < 1e-5].double() * 2.0**24  # in units of float32's steps below 1
    assert 2 <= len(small) <= 45  # 20 are expected
    assert ((small - small.round()).abs() > 0.02).double().mean() > 0.8


def test_more_outcomes_than_float32_has_integers() -> None:
    n = 2**24 + 100
    log_probs = torch.full((n,), -torch.inf)
    log_probs[-2:] = torch.tensor([0.25, 0.75]).log()
    value = swor.with_replacement(log_probs, 1000, generator=seeded()).value - (n - 2)
    assert abs(int(value.sum()) - 750) < 4.0 * (1000 * 0.25 * 0.75) ** 0.5
    assert set(value.tolist()) == {0, 1}
    assert set(swor.gumbel_top_k(log_probs, 2, generator=seeded()).value.tolist()) == {n - 2, n - 1}
