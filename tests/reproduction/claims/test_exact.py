"""Claims about exact numbers: their criteria, on tables that fulfil them or not."""

from __future__ import annotations

import pandas as pd
import pytest

pytest.importorskip("scipy")

from reproduction.claims.criteria.exact import (
    follows_exact,
    never_above,
    sampled_as_enumerated,
    smallest_ratio,
    unbiased,
)


@pytest.mark.parametrize(("bias", "decision"), [(1e-15, "agrees"), (1e-6, "differs")])
def test_a_biased_rule_that_is_said_to_be_unbiased_is_found(bias: float, decision: str) -> None:
    rows = [("rloo", True, bias), ("risk", False, 0.1)]
    table = pd.DataFrame(rows, columns=["rule", "unbiased", "bias"])
    assert unbiased(table)[1] == decision


@pytest.mark.parametrize(("variance", "decision"), [(1.0, "agrees"), (1.001, "differs")])
def test_a_variance_above_another_is_found(variance: float, decision: str) -> None:
    rows = [("a", 2, 1.0), ("b", 2, 1.0), ("a", 3, variance), ("b", 3, 1.0)]
    table = pd.DataFrame(rows, columns=["rule", "k", "variance"])
    assert never_above(table, "a", ("b",))[1] == decision


@pytest.mark.parametrize(
    ("ours", "other", "decision"),
    [(3.0, 10.0, "agrees"), (11.0, 10.0, "differs"), (3.0, 9.0, "differs")],
)
def test_only_one_may_be_comparable_to_the_lowest_variance_in_both_regimes(
    ours: float, other: float, decision: str
) -> None:
    # The others are the lowest in one regime, and far above the lowest in the other.
    variances = {"a": (1.0, 10.0), "b": (other, 1.0), "unordered_set": (1.0, ours)}
    rows = [
        {"eta": eta, "estimator": name, "evaluations": 4, "variance": value}
        for name, pair in variances.items()
        for eta, value in zip((0.0, -4.0), pair, strict=True)
    ]
    assert smallest_ratio(pd.DataFrame(rows))[1] == decision


@pytest.mark.parametrize(
    ("apart", "band", "decision"),
    [(0.05, 0.2, "agrees"), (-0.15, 0.5, "differs"), (0.05, 0.01, "differs")],
)
def test_the_exact_trajectory_is_followed(apart: float, band: float, decision: str) -> None:
    rows = [
        {"estimator": name, "step": step, "loss_mean": 3.0 - step + shift * (step == 1)}
        for name, shift in (("exact", 0.0), ("unordered_set", 2 * apart), ("rloo", 1.0))
        for step in range(3)
    ]
    losses = pd.DataFrame(rows)
    losses["loss_10"], losses["loss_90"] = losses["loss_mean"] - band, losses["loss_mean"] + band
    number = f"at most {100 * abs(apart):.0f} % of the decrease apart (RLOO: 50 %)"
    assert follows_exact(losses) == (number, decision)


@pytest.mark.parametrize(("z", "decision"), [(3.0, "agrees"), (-4.0, "differs")])
def test_a_deviation_may_be_as_large_as_that_of_so_many(z: float, decision: str) -> None:
    rows = [{"eta": 0.0, "estimator": "rloo", "z": value} for value in (z, *[0.5] * 49)]
    rows.append({"eta": -4.0, "estimator": "rloo", "z": 99.0})
    assert sampled_as_enumerated(pd.DataFrame(rows))[1] == decision
