"""Decisions on tours: training, the variance of gradients, and the best of k."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from reproduction.claims.claim import Decision, above_zero, on_par
from reproduction.harness.appearance import appearance
from reproduction.harness.statistics import (
    OURS,
    Interval,
    between_measurements,
    between_runs,
    by_seed,
    over_seeds,
    with_error,
)
from reproduction.tsp.ranking import ranking, runs_of
from reproduction.tsp.settings import SINGLE

GAP_MARGIN = 10.0  # percent


def log_gaps(gaps: pd.DataFrame, axis: str = "steps") -> pd.DataFrame:
    """Return the logarithm of the gap of each run in the last quarter of the steps, or of the instances.

    All runs count up to the same number of them. A difference of logarithms is a relative difference.
    """
    runs = runs_of(ranking(gaps.assign(steps=gaps[axis])))
    return runs.assign(value=np.log(runs["value"]))


def shorter_tours(gaps: pd.DataFrame, other: str) -> tuple[str, Decision]:
    """Compare the gap of another estimator with that of the unordered set estimator."""
    difference = between_runs(log_gaps(gaps), other, OURS)
    return f"{difference.percent.text(1)} % of the gap", above_zero([difference])


def shorter_tours_from_each(*starts: pd.DataFrame, other: str) -> tuple[str, Decision]:
    """Compare the gaps of runs with the same start and the same seed, of all starts together."""
    apart = [difference for gaps in starts for difference in by_seed(log_gaps(gaps), other, OURS)]
    difference = over_seeds(apart)
    return f"{difference.percent.text(1)} % of the gap", above_zero([difference])


def tours_on_par(gaps: pd.DataFrame, other: str) -> tuple[str, Decision]:
    """Compare the gaps both ways."""
    difference = between_runs(log_gaps(gaps), other, OURS).percent
    return f"{difference.text(1)} % of the gap", on_par(difference, GAP_MARGIN)


def fewer_instances(gaps: pd.DataFrame) -> tuple[str, Decision]:
    """Compare single-sample estimators with the unordered set estimator at equal numbers of instances."""
    values = log_gaps(gaps, "instances")
    differences = {name: between_runs(values, name, OURS) for name in SINGLE}
    closest = min(SINGLE, key=lambda name: differences[name].low)
    number = f"{differences[closest].percent.text(1)} % of the gap: {appearance(closest).label}"
    return number, above_zero(differences.values())


def paired_gaps(paired: pd.DataFrame, other: str) -> Interval:
    """Return the gap of another estimator minus ours at the end, on the same instances."""
    return between_runs(paired.assign(value=paired["gap"]), other, OURS)


def shorter_final_tours(paired: pd.DataFrame, other: str) -> tuple[str, Decision]:
    """Compare the tours of final models on the same instances."""
    difference = paired_gaps(paired, other)
    return f"{difference.text(4)} percentage points", above_zero([difference])


def final_tours_on_par(paired: pd.DataFrame, other: str) -> tuple[str, Decision]:
    """Compare the tours of final models both ways, relative to the gap of the unordered set estimator."""
    gap = float(paired[paired["estimator"] == OURS]["gap"].mean())
    relative = Interval(*(100 * value / gap for value in paired_gaps(paired, other)))
    return f"{relative.text(1)} % of the gap", on_par(relative, GAP_MARGIN)


def less_variance(variances: pd.DataFrame, policies: pd.DataFrame) -> tuple[str, Decision]:
    """Compare the variance with that of RLOO on the most confident policy."""
    last = variances[variances["step"] == variances["step"].max()].set_index("estimator").loc[OURS]
    gain, error = float(last["gain"]), float(last["gain_error"])
    duplicates = float(policies.set_index("step").loc[variances["step"].max(), "duplicates"])
    number = f"variance of RLOO ÷ its own: {with_error(gain, error)}, at {100 * duplicates:.0f} % duplicates"
    return number, above_zero([between_measurements((gain, error), (1.0, 0.0))])


def fewer_tours(growth: pd.DataFrame, few: int, many: int) -> tuple[str, Decision]:
    """Compare the best of a few distinct tours with that of many independent ones.

    Both are tours of the same instances, so the interval of independent measurements is too wide.
    """
    rows = growth.set_index(["method", "k"])[["gap", "gap_error"]]
    ours, other = (tuple(rows.loc[at]) for at in (("distinct", few), ("sampling", many)))
    difference = between_measurements(other, ours)
    return f"{difference.text(3)} percentage points", above_zero([difference])


def ahead_of(training: pd.DataFrame, other: str, problems: Sequence[str]) -> tuple[str, Decision]:
    """Compare greedy costs in the last third of training with another method on each problem."""
    late = training[training["solutions"] > training["solutions"].max() * 2 / 3]
    runs = late.groupby(["problem", "method", "seed"], as_index=False)["cost"].mean()
    return _cheaper(runs, other, problems)


def better_best_of_k(
    decoded: pd.DataFrame, other: str, ways: Mapping[str, str], k: int, problems: Sequence[str]
) -> tuple[str, Decision]:
    """Compare the best of k solutions with another method on each problem, each by its own way to decode."""
    at_k = decoded[decoded["k"] == k]
    runs = at_k[at_k["decoding"] == at_k["method"].map(ways)]
    return _cheaper(runs, other, problems)


def _cheaper(runs: pd.DataFrame, other: str, problems: Sequence[str]) -> tuple[str, Decision]:
    """Compare the logarithms of costs on each problem, and report the one that is the closest."""
    runs = runs.assign(estimator=runs["method"], value=np.log(runs["cost"]))
    found = {name: between_runs(runs[runs["problem"] == name], other, OURS) for name in problems}
    closest = min(problems, key=lambda name: found[name].low)
    number = f"{found[closest].percent.text(1)} % of the cost: {closest.upper()}"
    return number, above_zero(found.values())
