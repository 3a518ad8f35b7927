"""Decisions on claims about the VAE: Table 1, the gradient variance, and Figure 2, the training curves."""

from __future__ import annotations

from itertools import combinations

import pandas as pd

from reproduction.claims.statistics import (
    Decision,
    Interval,
    above_zero,
    at_most,
    between_measurements,
    between_runs,
    on_par,
)
from reproduction.harness.appearance import appearance
from reproduction.vae.published import PAPER, paper_k

OURS = "unordered_set"
INCORRECT = ("arsm", "relax")
"""Estimators whose published variances come from incorrect code."""
VARIANCE_MARGIN = 0.1  # in log-variance, about 10 % of a variance
ELBO_MARGIN = 1.0  # in nats; the paper calls a difference of 0.8 on par

Measured = dict[str, tuple[float, float]]


def log_variances(table: pd.DataFrame) -> Measured:
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
    differences = [between_measurements(measured[name], measured[OURS]) for name in others]
    closest = min(differences, key=lambda difference: difference.mean)
    number = f"{closest.text()} in log-variance: {_label(others[differences.index(closest)])}"
    return number, at_most([difference.reversed for difference in differences], VARIANCE_MARGIN)


def tied(table: pd.DataFrame, other: str) -> tuple[str, Decision]:
    """Compare the log-variance of another estimator with that of the unordered set estimator."""
    measured = log_variances(table)
    difference = between_measurements(measured[other], measured[OURS])
    return f"{difference.text()} in log-variance", on_par(difference, VARIANCE_MARGIN)


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
    differences = [between_measurements(measured[name], reference) for name in INCORRECT]
    number = "; ".join(
        f"{_label(name)} {difference.text()}"
        for name, difference in zip(INCORRECT, differences, strict=True)
    )
    return number, above_zero(differences)


def final_elbo(curves: pd.DataFrame, dims: int, other: str) -> Interval:
    """Return the −ELBO in training of another estimator minus that of the unordered set estimator.

    It is the end of the smoothed curve, or the last epoch that both have, with the k of Table 1.
    """
    k = curves["estimator"].map(paper_k)
    train = curves[(curves["split"] == "train") & (curves["dims"] == dims) & (curves["k"] == k)]
    ends = train.groupby("estimator")["epoch"].max()
    epoch = min(ends[OURS], ends[other])
    ended = train.groupby("run")["epoch"].transform("max") >= epoch
    before = train[ended & (train["epoch"] <= epoch)].sort_values("epoch")
    runs = before.groupby("run").last().rename(columns={"smoothed": "value"})
    return between_runs(runs, other, OURS)


def trains_on_par(curves: pd.DataFrame, dims: int, other: str) -> tuple[str, Decision]:
    """Compare another estimator with the unordered set estimator in training."""
    difference = final_elbo(curves, dims, other)
    return f"{difference.text()} nats", on_par(difference, ELBO_MARGIN)


def outperforms_in_one(small: pd.DataFrame, large: pd.DataFrame) -> tuple[str, Decision]:
    """Find, for each other estimator than RLOO, the domain in which it is further behind."""
    found = []
    for name in sorted(set(small["estimator"]) & set(large["estimator"]) - {OURS, "rloo"}):
        both = [final_elbo(small, 2, name), final_elbo(large, 20, name)]
        found.append(max(both, key=lambda difference: difference.low))
    closest = min(found, key=lambda difference: difference.low)
    return f"the closest of {len(found)}: {closest.text()} nats", above_zero(found)


def _label(estimator: str) -> str:
    return appearance(estimator).label
