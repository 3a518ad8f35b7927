"""Decisions on claims about policies that were trained: tours, language models, and the best of m."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from reproduction.claims.statistics import (
    Decision,
    above_zero,
    between_measurements,
    between_runs,
    on_par,
)
from reproduction.harness.appearance import appearance
from reproduction.tsp.ranking import ranking
from reproduction.tsp.settings import SINGLE

OURS = "unordered_set"
GAP_MARGIN = 10.0  # percent


def log_gaps(gaps: pd.DataFrame, axis: str = "steps") -> pd.DataFrame:
    """Return the logarithm of the gap of each run in the last quarter of the steps, or of the instances.

    All runs count up to the same number of them. A difference of logarithms is a relative difference.
    """
    ranked = ranking(gaps.assign(steps=gaps[axis]))
    seeds = [name for name in ranked.columns if name.startswith("seed ")]
    runs = ranked.melt("estimator", seeds, value_name="value").dropna()
    return runs.assign(value=np.log(runs["value"]))


def named(values: pd.DataFrame, family: str) -> str:
    """Return the name of the estimator of a family, whose baseline the name may tell as well."""
    names: list[str] = values["estimator"].tolist()
    return next((name for name in names if name.startswith(family)), family)


def shorter_tours(gaps: pd.DataFrame, other: str) -> tuple[str, Decision]:
    """Compare the gap of another estimator with that of the unordered set estimator."""
    values = log_gaps(gaps)
    difference = between_runs(values, named(values, other), OURS)
    return f"{difference.percent.text(1)} % of the gap", above_zero([difference])


def tours_on_par(gaps: pd.DataFrame, other: str) -> tuple[str, Decision]:
    """Compare the gap of another estimator with that of the unordered set estimator, both ways."""
    difference = between_runs(log_gaps(gaps), other, OURS)
    return f"{difference.percent.text(1)} % of the gap", on_par(difference.percent, GAP_MARGIN)


def fewer_instances(gaps: pd.DataFrame) -> tuple[str, Decision]:
    """Compare single-sample estimators with the unordered set estimator at equal numbers of instances."""
    values = log_gaps(gaps, "instances")
    differences = [between_runs(values, name, OURS) for name in SINGLE]
    closest = min(differences, key=lambda difference: difference.low)
    number = f"{closest.percent.text(1)} % of the gap: {appearance(SINGLE[differences.index(closest)]).label}"
    return number, above_zero(differences)


def less_variance(variances: pd.DataFrame, policies: pd.DataFrame) -> tuple[str, Decision]:
    """Compare the variance with that of RLOO on the most confident policy."""
    last = variances[variances["step"] == variances["step"].max()].set_index("estimator").loc[OURS]
    ratio, error = float(last["relative_variance"]), float(last["relative_variance_error"])
    duplicates = float(policies.set_index("step").loc[variances["step"].max(), "duplicates"])
    number = f"{ratio:.2f} ± {error:.2f} of its variance, at {duplicates:.0%} duplicates"
    return number, above_zero([between_measurements((1.0, 0.0), (ratio, error))])


def fewer_steps(reached: pd.DataFrame) -> tuple[str, Decision]:
    """Compare the steps until a share is solved; a run that never solves it counts as its length."""
    values = reached.assign(value=reached["steps"].fillna(reached["last"]))
    difference = between_runs(values, "rloo", OURS)
    return f"{difference.text(0)} steps with RLOO", above_zero([difference])


def better_best(table: pd.DataFrame, metric: str, *, lower: bool) -> tuple[str, Decision]:
    """Compare the best of m after training on independent and on distinct samples."""
    seeds = [name for name in table.columns if name.startswith(f"{metric}, seed ")]
    values = table.rename(columns={"objective": "estimator"}).melt("estimator", seeds)
    order = ("independent", "distinct") if lower else ("distinct", "independent")
    difference = between_runs(values, *order)
    unit = "points of the gap" if lower else "of the prompts"
    return f"{difference.text(3)} {unit}", above_zero([difference])


def ahead_of(training: pd.DataFrame, other: str, problems: Sequence[str]) -> tuple[str, Decision]:
    """Compare costs in the last third of training with another method, in percent, on each problem."""
    late = training[training["solutions"] > training["solutions"].max() * 2 / 3]
    runs = late.groupby(["problem", "method", "seed"], as_index=False)["cost"].mean()
    runs = runs.assign(estimator=runs["method"], value=np.log(runs["cost"]))
    found = [between_runs(runs[runs["problem"] == name], other, OURS) for name in problems]
    number = "; ".join(
        f"{name} {difference.percent.text(1)} %"
        for name, difference in zip(problems, found, strict=True)
    )
    return number, above_zero(found)
