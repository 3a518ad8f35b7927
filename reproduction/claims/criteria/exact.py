"""Decisions on numbers without noise: those of enumerated samples."""

from __future__ import annotations

import pandas as pd
from scipy.stats import norm

from reproduction.claims.claim import Decision
from reproduction.harness.statistics import LEVEL, OURS

ROUNDING = 1e-12
COMPARABLE = 10.0  # times the lowest variance
CLOSE = 0.1  # of the decrease of a loss


def unbiased(rules: pd.DataFrame) -> tuple[str, Decision]:
    """Find the largest bias of the rules that are said to be unbiased."""
    said = rules[rules["unbiased"]]
    largest = float(said["bias"].max())
    number = f"largest bias of {said['rule'].nunique()} rules: {largest:.0e}"
    return number, exactly(largest < ROUNDING)


def never_above(rules: pd.DataFrame, ours: str, others: tuple[str, ...]) -> tuple[str, Decision]:
    """Find the smallest ratio of the variances of other rules to that of ours at the same k, from k = 2."""
    variance = rules[rules["k"] > 1].pivot(index="k", columns="rule", values="variance")
    smallest = min(float((variance[other] / variance[ours]).min()) for other in others)
    return f"smallest variance of the other ÷ its own: {smallest:.2f}", exactly(
        smallest >= 1.0 - ROUNDING
    )


def smallest_ratio(variances: pd.DataFrame) -> tuple[str, Decision]:
    """Compare the largest ratios to the lowest variance, over η and 2 to 7 evaluations."""
    compared = variances[variances["evaluations"].between(2, 7)]
    lowest = compared.groupby(["eta", "evaluations"])["variance"].transform("min")
    worst = (compared["variance"] / lowest).groupby(compared["estimator"]).max()
    ours, others = worst[OURS], worst.drop(OURS)
    number = f"at most {ours:.1f} times the lowest; any other estimator {others.min():.0f} or more"
    return number, exactly(ours < COMPARABLE <= others.min())


def follows_exact(trajectory: pd.DataFrame) -> tuple[str, Decision]:
    """Compare runs with the exact trajectory: their mean loss, in parts of its decrease, and their band."""
    loss = trajectory.pivot(index="step", columns="estimator")
    mean, exact = loss["loss_mean"], loss["loss_mean"]["exact"]
    apart = 100 * mean.sub(exact, axis=0).abs().max() / (exact.max() - exact.min())
    low, high = loss["loss_10"][OURS] - ROUNDING, loss["loss_90"][OURS] + ROUNDING
    inside = bool(exact.between(low, high).all())
    number = f"at most {apart[OURS]:.0f} % of the decrease apart (RLOO: {apart['rloo']:.0f} %)"
    return number, exactly(inside and bool(apart[OURS] <= 100 * CLOSE))


def sampled_as_enumerated(checks: pd.DataFrame) -> tuple[str, Decision]:
    """Compare sampled variances with exact ones at η = 0, where their standard errors are reliable."""
    reliable = checks[(checks["eta"] == 0.0) & (checks["estimator"] != "importance_weighted")]
    largest, count = float(reliable["z"].abs().max()), len(reliable)
    critical = float(norm.ppf(1.0 - (1.0 - LEVEL) / 2 / count))
    number = f"largest of {count} deviations: {largest:.1f} standard errors (limit {critical:.1f})"
    return number, exactly(largest < critical)


def exactly(holds: bool) -> Decision:
    """Return the decision of numbers without noise."""
    return "agrees" if holds else "differs"
