"""Decisions on sequence models: steps to a target, the best of m, and pronunciation."""

from __future__ import annotations

import numpy as np
import pandas as pd

from reproduction.claims.claim import Decision, above_zero
from reproduction.harness.statistics import (
    OURS,
    Interval,
    between_measurements,
    between_runs,
    over_seeds,
    with_error,
)
from reproduction.pronunciation.tables import at_the_end, gains


def fewer_steps(reached: pd.DataFrame) -> tuple[str, Decision]:
    """Compare the steps until a share is solved; a run that never solves it counts as its length."""
    values = reached.assign(value=reached["steps"].fillna(reached["last"]))
    difference = between_runs(values, "rloo", OURS)
    return f"{difference.text(1)} steps", above_zero([difference])


def distinct_ahead(table: pd.DataFrame, metric: str) -> Interval:
    """Return by how much the best of m, a gap or a share in percent, is better from distinct samples."""
    seeds = [name for name in table.columns if name.startswith(f"{metric}, seed ")]
    values = table.rename(columns={"objective": "estimator"}).melt("estimator", seeds, "seed")
    if metric == "best_of_gap":
        return between_runs(values, "independent", "distinct")
    return between_runs(values.assign(value=100 * values["value"]), "distinct", "independent")


def better_best(table: pd.DataFrame, metric: str) -> tuple[str, Decision]:
    """Compare the best of m after training on independent and on distinct samples."""
    difference = distinct_ahead(table, metric)
    gap = metric == "best_of_gap"
    number = f"{difference.text(2 if gap else 1)} percentage points"
    return number, above_zero([difference])


def less_variance_for_every_k(variance: pd.DataFrame, k: int) -> tuple[str, Decision]:
    """Compare the variances of gradients for each k, and report one k."""
    found = gains(variance)
    pairs = zip(found["gain"], found["gain_error"], strict=True)
    decision = above_zero([between_measurements(pair, (1.0, 0.0)) for pair in pairs])
    gain, error, duplicates = found.loc[k, ["gain", "gain_error", "duplicates"]]
    number = (
        f"variance of RLOO ÷ its own: {with_error(gain, error)}, at {duplicates:.0f} % duplicates"
    )
    return number, decision


def more_precise(passes: pd.DataFrame, m: int) -> tuple[str, Decision]:
    r"""Compare the variances of evaluations; a log-variance of n has the variance $2 / (n - 1)$ or so."""
    by = passes[passes["m"] == m].set_index("samples")
    logs = {name: 2 * np.log(by.loc[name, "spread"]) for name in ("rloo", OURS)}
    errors = {name: (2 / (by.loc[name, "evaluations"] - 1)) ** 0.5 for name in logs}
    apart = between_measurements(*((float(logs[name]), float(errors[name])) for name in logs))
    mean, low, high = (float(np.exp(end)) for end in apart)
    number = f"variance, independent ÷ distinct: {mean:.1f} ({low:.1f} to {high:.1f})"
    return number, above_zero([apart])


def better_pronunciations(curves: pd.DataFrame) -> tuple[str, Decision]:
    """Compare the probability of a right draw after training, by runs with the same seeds."""
    _, end = at_the_end(curves)
    apart = (100 * (end.loc[f"{OURS} mean"] - end.loc["rloo mean"])["sampled"]).dropna().tolist()
    difference = over_seeds(apart)
    return f"{difference.text()} percentage points", above_zero([difference])
