"""Confidence intervals: of means over seeds, and of differences between runs and between measurements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import ndtri, stdtrit

LEVEL = 0.95
"""Of confidence intervals."""
INTERVAL = f"{100 * LEVEL:.0f} % interval"
OURS = "unordered_set"  # the estimator that others are compared with
ENOUGH = 3  # seeds, to compare two estimators by their own differences alone


def minus(text: str) -> str:
    """Return the text of a number with a minus sign in the place of a hyphen."""
    return text.replace("-", "−")


class Interval(NamedTuple):
    """A mean or difference with its confidence interval, whose ends are infinite if its noise is unknown."""

    mean: float
    low: float
    high: float

    def text(self, digits: int = 2) -> str:
        """Format the difference with its sign and its interval.

        >>> Interval(0.251, -0.1, 0.602).text(), Interval(1.0, -math.inf, math.inf).text(0)
        ('+0.25 (−0.10 to +0.60)', '+1 (one run each)')
        """
        # Adding 0.0 turns a rounded −0.0 into 0.0.
        mean, low, high = (minus(f"{round(value, digits) + 0.0:+.{digits}f}") for value in self)
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
    r"""Compare two estimators by their runs with the same seed.

    $\bar d \pm t_{n - 1} \, s_d / \sqrt n$ for the differences $d$ of $n \ge 3$ seeds. With fewer, a spread
    of their own says next to nothing, and they get that of all estimators of the table,
    $\bar d \pm t_\nu \, s \sqrt{2 / n}$ with the spread $s$ of :func:`noise`. It is the widest of the
    intervals with all estimators and without each of the others, so that none of them decides by its noise.

    Args:
        values: one row per run, with the columns "estimator", "seed" and "value".
        first: the estimator that comes first in the difference.
        second: the estimator that is subtracted.
    """
    table = values.pivot(index="seed", columns="estimator", values="value")
    apart = by_seed(values, first, second)
    if len(apart) >= ENOUGH:
        return over_seeds(apart)
    others = [name for name in table.columns if name not in (first, second)]
    pools = [table, *(table.drop(columns=name) for name in others)]
    difference, half = (
        fmean(apart),
        max(_pooled(pool) for pool in pools) * math.sqrt(2 / len(apart)),
    )
    return Interval(difference, difference - half, difference + half)


def _pooled(table: pd.DataFrame) -> float:
    """Return the half width of the interval of a run; infinity if there is nothing to estimate it from."""
    spread, freedom = noise(table)
    return float(stdtrit(freedom, 0.5 + LEVEL / 2)) * spread if freedom else math.inf


def by_seed(values: pd.DataFrame, first: str, second: str) -> list[float]:
    """Return the differences of the runs of two estimators with the same seed, at least one."""
    table = values.pivot(index="seed", columns="estimator", values="value")
    apart: list[float] = (table[first] - table[second]).dropna().tolist()
    if not apart:
        raise KeyError(f"run of {first} with a seed of {second}")
    return apart


def minus_ours(values: pd.DataFrame, estimator: str, digits: int) -> str:
    """Format an estimator minus the unordered set estimator, if any of their runs have the same seed."""
    ours, mine = (set(values[values["estimator"] == name]["seed"]) for name in (OURS, estimator))
    return between_runs(values, estimator, OURS).text(digits) if ours & mine else "–"


def behind(values: pd.DataFrame, estimator: str) -> str:
    """Say in how many seeds an estimator has a larger value than the unordered set estimator."""
    apart = by_seed(values, estimator, OURS)
    return f"{sum(difference > 0 for difference in apart)} of {len(apart)}"


def noise(table: pd.DataFrame) -> tuple[float, int]:
    r"""Return the standard deviation of runs around estimator and seed, and its degrees of freedom.

    It is that of $\epsilon$ in $x_{es} = \mu_e + \beta_s + \epsilon_{es}$, fitted by least squares (a two-way
    analysis of variance).

    Args:
        table: a row per seed, a column per estimator; NaN where there is no run.
    """
    runs = table.stack().dropna()
    effects = pd.get_dummies(runs.index.to_frame().astype(str), dtype=float)
    fitted, _, rank, _ = np.linalg.lstsq(effects.to_numpy(), runs.to_numpy(), rcond=None)
    freedom = len(runs) - int(rank)
    squares = float(((runs.to_numpy() - effects.to_numpy() @ fitted) ** 2).sum())
    return math.sqrt(squares / freedom) if freedom else math.nan, freedom


def between_measurements(first: tuple[float, float], second: tuple[float, float]) -> Interval:
    """Compare two measured values, each with its standard error.

    >>> between_measurements((2.0, 0.3), (1.0, 0.4)).text()
    '+1.00 (+0.02 to +1.98)'
    """
    difference = first[0] - second[0]
    half = float(ndtri(0.5 + LEVEL / 2)) * math.hypot(first[1], second[1])
    return Interval(difference, difference - half, difference + half)


def with_error(value: float, error: float) -> str:
    """Format a measured value with its standard error, which gets two digits.

    >>> (
    ...     with_error(10.371, 0.1467),
    ...     with_error(0.4867, 0.031),
    ...     with_error(535.2, 2.81),
    ...     with_error(1, 0),
    ... )
    ('10.37 ± 0.15', '0.487 ± 0.031', '535.2 ± 2.8', '1 ± 0')
    """
    if not error > 0.0:  # also where it is NaN
        return f"{value:.3g} ± {error:g}"
    digits = max(1 - math.floor(math.log10(error)), 0)
    return minus(f"{value:.{digits}f} ± {error:.{digits}f}")


def over_seeds(apart: Sequence[float]) -> Interval:
    r"""Return the mean of the numbers of several seeds, with its interval by Student's distribution.

    $\bar x \pm t_{n-1} \, s / \sqrt n$ for $n$ seeds; a single one has an interval without ends.

    >>> [round(number, 3) for number in over_seeds([1.0, 2.0, 3.0])]
    [2.0, -0.484, 4.484]
    """
    n, centre = len(apart), fmean(apart)
    if n == 1:
        return Interval(centre, -math.inf, math.inf)
    half = float(stdtrit(n - 1, 0.5 + LEVEL / 2)) * stdev(apart) / math.sqrt(n)
    return Interval(centre, centre - half, centre + half)
