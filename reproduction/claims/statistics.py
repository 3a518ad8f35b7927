"""Comparisons of runs and of measurements as confidence intervals, and the decisions on them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Literal, NamedTuple

import pandas as pd
from scipy.stats import norm, t

from reproduction.harness.tables import LEVEL, interval

OURS = "unordered_set"  # the estimator that claims are about
Decision = Literal["agrees", "differs", "undecided"]


class Interval(NamedTuple):
    """A difference with its confidence interval, whose ends are infinite if its noise is unknown."""

    mean: float
    low: float
    high: float

    def text(self, digits: int = 2) -> str:
        """Format the difference with its sign and its interval.

        >>> Interval(0.251, -0.1, 0.602).text(), Interval(1.0, -math.inf, math.inf).text(0)
        ('+0.25 (−0.10 to +0.60)', '+1 (one run each)')
        """
        # Adding 0.0 turns a rounded −0.0 into 0.0.
        rounded = (round(value, digits) + 0.0 for value in self)
        mean, low, high = (f"{value:+.{digits}f}".replace("-", "−") for value in rounded)
        return f"{mean} ({f'{low} to {high}' if self.high < math.inf else 'one run each'})"

    @property
    def reversed(self) -> Interval:
        """The same difference the other way round."""
        return Interval(-self.mean, -self.high, -self.low)

    @property
    def percent(self) -> Interval:
        """The relative difference in percent, if this is a difference of logarithms."""
        return Interval(
            *(100.0 * math.expm1(value) if value < math.inf else value for value in self)
        )


def between_runs(values: pd.DataFrame, first: str, second: str) -> Interval:
    r"""Compare two estimators, with the spread between seeds that all estimators of a table share.

    $\bar x_a - \bar x_b \pm t_\nu \, s \sqrt{1 / n_a + 1 / n_b}$, where $s^2$ is the mean of the variances
    within estimators, weighted by their degrees of freedom, whose sum is $\nu$ (a one-way analysis of
    variance). A comparison of a few seeds has few degrees of freedom; that of all estimators has more.

    Args:
        values: one row per run, with the columns "estimator" and "value".
        first: the estimator whose mean comes first in the difference.
        second: the estimator whose mean is subtracted.
    """
    groups = values.groupby("estimator")["value"]
    mean, size = groups.mean(), groups.size()
    freedom = int((size - 1).sum())
    difference = float(mean[first] - mean[second])
    if freedom == 0:
        return Interval(difference, -math.inf, math.inf)
    squares = float(((size - 1) * groups.var(ddof=1).fillna(0.0)).sum())
    spread = math.sqrt(squares / freedom * (1 / size[first] + 1 / size[second]))
    half = float(t.ppf(0.5 + LEVEL / 2, freedom)) * spread
    return Interval(difference, difference - half, difference + half)


def between_measurements(first: tuple[float, float], second: tuple[float, float]) -> Interval:
    """Compare two measured values, each with its standard error.

    >>> between_measurements((2.0, 0.3), (1.0, 0.4)).text()
    '+1.00 (+0.02 to +1.98)'
    """
    difference = first[0] - second[0]
    half = float(norm.ppf(0.5 + LEVEL / 2)) * math.hypot(first[1], second[1])
    return Interval(difference, difference - half, difference + half)


def over_seeds(apart: Sequence[float]) -> Interval:
    """Return the mean of the differences of runs with the same seed, and its interval."""
    return Interval(fmean(apart), *interval(apart))


def above_zero(intervals: Iterable[Interval]) -> Decision:
    """Decide whether all differences are positive.

    >>> above_zero([Interval(1.0, 0.5, 1.5)]), above_zero([Interval(1.0, -0.5, 2.5)])
    ('agrees', 'undecided')
    """
    lows, highs = zip(*((difference.low, difference.high) for difference in intervals), strict=True)
    return "differs" if min(highs) < 0.0 else "agrees" if min(lows) > 0.0 else "undecided"


def at_most(intervals: Iterable[Interval], margin: float) -> Decision:
    """Decide whether no difference is above a margin.

    >>> at_most([Interval(0.0, -0.05, 0.05)], 0.1), at_most([Interval(0.3, 0.2, 0.4)], 0.1)
    ('agrees', 'differs')
    """
    lows, highs = zip(*((difference.low, difference.high) for difference in intervals), strict=True)
    return "differs" if max(lows) > margin else "agrees" if max(highs) <= margin else "undecided"


def on_par(difference: Interval, margin: float) -> Decision:
    """Decide whether a difference is within a margin on both sides.

    >>> on_par(Interval(0.0, -0.05, 0.05), 0.1), on_par(Interval(0.0, -0.5, 0.5), 0.1)
    ('agrees', 'undecided')
    """
    return at_most([difference, difference.reversed], margin)
