"""Comparisons of runs: their intervals, and the decisions on them."""

from __future__ import annotations

import math

import pandas as pd
import pytest

pytest.importorskip("scipy")

from scipy.stats import t, ttest_rel

from reproduction.claims.claim import above_zero, at_most, on_par
from reproduction.harness.statistics import Interval, between_runs, noise


def runs(**values: list[float]) -> pd.DataFrame:
    rows = [(name, seed, value) for name, mine in values.items() for seed, value in enumerate(mine)]
    return pd.DataFrame(rows, columns=["estimator", "seed", "value"])


def test_three_seeds_have_the_interval_of_a_paired_t_test() -> None:
    a, b = [1.0, 2.0, 4.0], [0.5, 0.7, 1.1]
    found = between_runs(runs(a=[*a, 9.0], b=b, c=[0.0, 50.0, 0.0]), "a", "b")
    expected = ttest_rel(a, b).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


def half_width(changes: list[float]) -> float:
    """The half width from the changes of estimators between two seeds."""
    freedom, mean = len(changes) - 1, sum(changes) / len(changes)
    spread = math.sqrt(sum((change - mean) ** 2 for change in changes) / 2 / freedom)
    return float(t.ppf(0.975, freedom)) * spread


def test_two_seeds_have_the_noise_of_all_estimators_or_of_all_but_one() -> None:
    values = [[1.0, 1.3], [3.0, 3.2], [7.0, 7.9], [5.0, 5.1]]
    found = between_runs(runs(**dict(zip("abcd", values, strict=True))), "b", "a")
    changes = [second - first for first, second in values]
    without_d, without_c = changes[:3], [*changes[:2], changes[3]]
    widths = [half_width(pool) for pool in (changes, without_d, without_c)]
    assert found.mean == pytest.approx(1.95)
    assert (found.high - found.low) / 2 == pytest.approx(max(widths))
    assert max(widths) == widths[1] > widths[0]


def test_what_a_seed_does_to_all_estimators_is_no_noise() -> None:
    table = pd.DataFrame({"a": [1.0, 5.0, 2.0], "b": [2.0, 6.0, 3.0], "c": [math.nan, 9.0, 6.0]})
    spread, freedom = noise(table)
    assert (spread, freedom) == (pytest.approx(0.0, abs=1e-12), 3)
    table.loc[0, "b"] += 0.3
    assert noise(table)[0] > 0.05


def test_runs_without_a_common_seed_are_not_compared() -> None:
    apart = runs(a=[1.0, 1.2], b=[3.0, 3.2])
    apart.loc[apart["estimator"] == "b", "seed"] += 2
    with pytest.raises(KeyError, match="run of b with a seed of a"):
        between_runs(apart, "b", "a")


def test_one_run_of_each_estimator_decides_nothing() -> None:
    difference = between_runs(runs(a=[1.0], b=[100.0]), "b", "a")
    assert above_zero([difference]) == on_par(difference, 1.0) == "undecided"


@pytest.mark.parametrize(
    ("low", "high", "above", "par"),
    [
        (0.5, 0.9, "agrees", "agrees"),
        (1.5, 1.9, "agrees", "differs"),
        (-0.9, -0.5, "differs", "agrees"),
        (-1.9, -1.5, "differs", "differs"),
        (-0.5, 0.5, "undecided", "agrees"),
        (-1.5, 0.5, "undecided", "undecided"),
    ],
)
def test_decisions(low: float, high: float, above: str, par: str) -> None:
    interval = Interval((low + high) / 2, low, high)
    assert above_zero([interval]) == above
    assert on_par(interval, 1.0) == par


def test_one_estimator_that_is_too_far_decides_for_all() -> None:
    near, far = Interval(0.0, -0.1, 0.1), Interval(3.0, 2.0, 4.0)
    assert at_most([near], 1.0) == "agrees"
    assert at_most([near, far], 1.0) == "differs"
    assert above_zero([far, far.reversed]) == "differs"
