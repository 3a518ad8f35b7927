"""Settings of the VAE: the paper's by default."""

from __future__ import annotations

from reproduction.vae.settings import VAESettings


def test_samples_are_the_papers() -> None:
    usual = {
        n: VAESettings(estimator=n).samples for n in ("unordered_set", "arsm", "straight_through")
    }
    assert usual == {"unordered_set": 4, "arsm": 1, "straight_through": 1}
    assert VAESettings(estimator="arsm", k=2).samples == 2


def test_learning_rates_are_the_papers() -> None:
    rates = {n: VAESettings(estimator=n).rate for n in ("unordered_set", "arsm", "relax")}
    assert rates == {"unordered_set": 1e-3, "arsm": 3e-4, "relax": 1e-4}
    assert VAESettings(estimator="arsm", learning_rate=1.0).rate == 1.0
