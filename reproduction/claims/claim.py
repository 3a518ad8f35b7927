"""A claim with its criterion, the decisions that criteria rest on, and the verdict of tables of results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import pandas as pd

from reproduction.harness.statistics import Interval

Decision = Literal["agrees", "differs", "undecided"]
Verdict = Literal[Decision, "not shown in a run this short", "not measured"]
Measure = Callable[..., tuple[str, Decision]]


@dataclass(frozen=True)
class Claim:
    """A statement, and the criterion by which tables of results decide on it.

    Attributes:
        where: figure, table or theorem of the paper, or the experiment.
        statement: the claim itself.
        criterion: the condition under which the verdict is "agrees", in words.
        tables: names of the tables that decide, see :class:`Tables`.
        measure: function of these tables that returns the number, in words, and the decision.
    """

    where: str
    statement: str
    criterion: str
    tables: tuple[str, ...]
    measure: Measure


@dataclass(frozen=True)
class Tables:
    """The tables of results of a reproduction, or those of the folder ``results``.

    Attributes:
        paths: path of each table by its name; a table that such a run does not make has none.
        short: whether the run is too short to show small differences.
    """

    paths: Mapping[str, Path]
    short: bool = False


class Finding(NamedTuple):
    """A claim, the number that was measured, and the verdict."""

    claim: Claim
    number: str
    verdict: Verdict


def evaluate(claims: Iterable[Claim], tables: Tables) -> list[Finding]:
    """Return the verdict of tables on each claim."""
    return [_evaluate(claim, tables) for claim in claims]


def _evaluate(claim: Claim, tables: Tables) -> Finding:
    short: Verdict = "not shown in a run this short"
    if not all(name in tables.paths for name in claim.tables):
        return Finding(claim, "–", short if tables.short else "not measured")
    missing = [tables.paths[name] for name in claim.tables if not tables.paths[name].exists()]
    if missing:
        return Finding(claim, f"no {'/'.join(missing[0].parts[-2:])}", "not measured")
    try:
        number, decision = claim.measure(
            *(pd.read_csv(tables.paths[name]) for name in claim.tables)
        )
    except KeyError as error:  # the table of a step that was interrupted lacks an estimator
        return Finding(claim, f"the table has no {error.args[0]}", "not measured")
    hidden = tables.short and decision == "undecided"
    return Finding(claim, number, short if hidden else decision)


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
