"""Comparisons of runs: their intervals, and the decisions on them."""

from __future__ import annotations

import math

import pandas as pd
import pytest

pytest.importorskip("scipy")

from scipy.stats import ttest_ind

from reproduction.claims.statistics import Interval, above_zero, at_most, between_runs, on_par


def runs(**values: list[float]) -> pd.DataFrame:
    rows = [(name, value) for name, mine in values.items() for value in mine]
    return pd.DataFrame(rows, columns=["estimator", "value"])


def test_two_estimators_have_the_interval_of_a_t_test() -> None:
    a, b = [1.0, 2.0, 4.0], [0.5, 0.7]
    found = between_runs(runs(a=a, b=b), "a", "b")
    expected = ttest_ind(a, b).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


def test_the_spread_of_other_estimators_counts() -> None:
    few = between_runs(runs(a=[1.0, 1.2], b=[3.0, 3.2]), "b", "a")
    more = between_runs(runs(a=[1.0, 1.2], b=[3.0, 3.2], c=[7.0, 7.2, 7.2, 7.0]), "b", "a")
    assert more.mean == few.mean == pytest.approx(2.0)
    assert few.low < more.low < more.high < few.high
    single = between_runs(runs(a=[1.0], b=[3.0], c=[7.0, 7.2]), "b", "a")
    assert math.isfinite(single.low)


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
