"""Decisions on confidence intervals: whether differences are positive, small, or neither for sure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from reproduction.harness.statistics import Interval

Decision = Literal["agrees", "differs", "undecided"]


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
