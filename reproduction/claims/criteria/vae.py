"""Decisions on the categorical VAE: the variances of Table 1, and the training of Figure 2."""

from __future__ import annotations

from itertools import combinations

import pandas as pd

from reproduction.claims.claim import Decision, above_zero, at_most, on_par
from reproduction.harness.appearance import appearance
from reproduction.harness.statistics import OURS, Interval, between_measurements, between_runs
from reproduction.vae.published import PAPER, paper_k

INCORRECT = ("arsm", "relax")
"""Estimators whose published variances come from incorrect code."""
VARIANCE_MARGIN = 0.1  # in log-variance, about 10 % of a variance
ELBO_MARGIN = 1.0  # in nats; the paper calls a difference of 0.8 on par


def log_variances(table: pd.DataFrame) -> dict[str, tuple[float, float]]:
    """Return the log-variance and the standard error of each estimator of Table 1, on the last model.

    As in the paper, the gradient is that of encoder and decoder together, and k that of its code.
    """
    last = table[(table["epoch"] == table["epoch"].max()) & (table["part"] == "both")]
    rows = last.set_index(["estimator", "k"])[["log_variance", "standard_error"]]
    return {
        name: (float(rows.loc[name, entry.k].iloc[0]), float(rows.loc[name, entry.k].iloc[1]))
        for name, entry in PAPER.items()
        if (name, entry.k) in rows.index
    }


def lowest(table: pd.DataFrame) -> tuple[str, Decision]:
    """Compare the log-variance of the unordered set estimator with each of the others."""
    measured = log_variances(table)
    others = [name for name in measured if name != OURS]
    closest = min(others, key=lambda name: measured[name][0])
    number = f"{between_measurements(measured[closest], measured[OURS]).text()} in log-variance"
    behind = [between_measurements(measured[OURS], measured[name]) for name in others]
    return f"{number}: {appearance(closest).label}", at_most(behind, VARIANCE_MARGIN)


def same_order(table: pd.DataFrame, dims: int) -> tuple[str, Decision]:
    """Count the pairs of estimators that Table 1 separates and that are in its order here."""
    measured = log_variances(table)
    published = {name: PAPER[name].log_variance[dims] for name in measured if name not in INCORRECT}
    pairs = [
        (a, b) if published[a] > published[b] else (b, a)
        for a, b in combinations(published, 2)
        if abs(published[a] - published[b]) > VARIANCE_MARGIN
    ]
    decisions = [above_zero([between_measurements(measured[a], measured[b])]) for a, b in pairs]
    number = f"{decisions.count('agrees')} of {len(pairs)} pairs in order"
    if "differs" in decisions:
        return f"{number}, {decisions.count('differs')} reversed", "differs"
    return number, "undecided" if "undecided" in decisions else "agrees"


def highest(table: pd.DataFrame) -> tuple[str, Decision]:
    """Compare ARSM and RELAX with REINFORCE without a baseline, the next in the paper."""
    measured = log_variances(table)
    reference = measured["reinforce_no_baseline"]
    found = {name: between_measurements(measured[name], reference) for name in INCORRECT}
    closest = max(INCORRECT, key=lambda name: found[name].mean)
    number = f"{found[closest].text()} in log-variance: {appearance(closest).label}"
    return number, above_zero(found.values())


def tied(table: pd.DataFrame, other: str) -> tuple[str, Decision]:
    """Compare the log-variance of another estimator with that of the unordered set estimator."""
    measured = log_variances(table)
    difference = between_measurements(measured[other], measured[OURS])
    return f"{difference.text()} in log-variance", on_par(difference, VARIANCE_MARGIN)


def controlled(table: pd.DataFrame, ours: str, margin: float) -> tuple[str, Decision]:
    """Compare the log-variances of the encoder's gradient without and with a control variate at equal k."""
    encoder = table[(table["part"] == "encoder") & (table["k"] == table["k"].max())]
    measured = {
        row.estimator: (float(row.log_variance), float(row.standard_error))
        for row in encoder.itertuples()
    }
    less = [between_measurements(measured[name], measured[ours]) for name in ("rloo", OURS)]
    number = f"{min(less, key=lambda difference: difference.mean).text()} in log-variance"
    beyond = [Interval(*(end - margin for end in difference)) for difference in less]
    return number, above_zero(beyond)


def final_elbo(curves: pd.DataFrame, dims: int, other: str) -> Interval:
    """Return the −ELBO in training of another estimator minus that of the unordered set estimator.

    It is the mean of the last epoch that both have, with the k of Table 1.
    """
    k = curves["estimator"].map(paper_k)
    train = curves[(curves["split"] == "train") & (curves["dims"] == dims) & (curves["k"] == k)]
    ends = train.groupby("estimator")["epoch"].max()
    epoch = min(ends[OURS], ends[other])
    ended = train.groupby("run")["epoch"].transform("max") >= epoch
    last = train[ended & (train["epoch"] > epoch - 1) & (train["epoch"] <= epoch)]
    runs = last.groupby(["estimator", "seed"], as_index=False)["negative_elbo"].mean()
    return between_runs(runs.rename(columns={"negative_elbo": "value"}), other, OURS)


def trains_on_par(curves: pd.DataFrame, dims: int, other: str) -> tuple[str, Decision]:
    """Compare another estimator with the unordered set estimator in training."""
    difference = final_elbo(curves, dims, other)
    return f"{difference.text()} nats", on_par(difference, ELBO_MARGIN)


def outperforms_in_one(small: pd.DataFrame, large: pd.DataFrame) -> tuple[str, Decision]:
    """Find, for each other estimator than RLOO, the domain in which it is further behind."""
    found = {}
    for name in sorted(set(small["estimator"]) & set(large["estimator"]) - {OURS, "rloo"}):
        both = [final_elbo(small, 2, name), final_elbo(large, 20, name)]
        found[name] = max(both, key=lambda difference: difference.low)
    closest = min(found, key=lambda name: found[name].low)
    number = f"{found[closest].text()} nats: {appearance(closest).label}"
    return number, above_zero(found.values())
