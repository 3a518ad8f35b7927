"""The decisions of tables of results on claims: each returns the number, in words, and the decision."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from statistics import fmean

import numpy as np
import pandas as pd
from scipy.stats import norm

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
from reproduction.harness.tables import LEVEL, interval
from reproduction.pronunciation.tables import at_the_end, gains
from reproduction.tsp.ranking import ranking
from reproduction.tsp.settings import SINGLE
from reproduction.vae.published import PAPER, paper_k

OURS = "unordered_set"
INCORRECT = ("arsm", "relax")
"""Estimators whose published variances come from incorrect code."""
ROUNDING = 1e-12
VARIANCE_MARGIN = 0.1  # in log-variance, about 10 % of a variance
ELBO_MARGIN = 1.0  # in nats; the paper calls a difference of 0.8 on par
GAP_MARGIN = 10.0  # percent


def exactly(holds: bool) -> Decision:
    """Return the decision of numbers without noise."""
    return "agrees" if holds else "differs"


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
    return f"smallest variance of the other ÷ ours: {smallest:.2f}", exactly(
        smallest >= 1.0 - ROUNDING
    )


def smallest_ratio(variances: pd.DataFrame) -> tuple[str, Decision]:
    """Compare the largest ratios to the lowest variance, over η and 2 to 7 evaluations."""
    compared = variances[variances["evaluations"].between(2, 7)]
    lowest = compared.groupby(["eta", "evaluations"])["variance"].transform("min")
    worst = (compared["variance"] / lowest).groupby(compared["estimator"]).max()
    ours, others = worst[OURS], worst.drop(OURS)
    number = f"at most {ours:.1f} times the lowest; any other estimator {others.min():.0f} or more"
    return number, exactly(ours < others.min())


def follows_exact(trajectory: pd.DataFrame) -> tuple[str, Decision]:
    """Count the steps at which the exact loss is within the 10th to the 90th percentile of the runs."""
    by_step = {name: rows.set_index("step") for name, rows in trajectory.groupby("estimator")}
    exact, runs = by_step["exact"]["loss_mean"], by_step[OURS]
    inside = (runs["loss_10"] <= exact + ROUNDING) & (exact - ROUNDING <= runs["loss_90"])
    difference = float((runs["loss_mean"] - exact).abs().max())
    number = f"{inside.sum()} of {len(inside)} steps; the mean differs by at most {difference:.3f}"
    return number, exactly(bool(inside.all()))


def sampled_as_enumerated(checks: pd.DataFrame) -> tuple[str, Decision]:
    """Compare sampled variances with exact ones at η = 0, where their standard errors are reliable."""
    reliable = checks[(checks["eta"] == 0.0) & (checks["estimator"] != "importance_weighted")]
    largest, count = float(reliable["z"].abs().max()), len(reliable)
    critical = float(norm.ppf(1.0 - (1.0 - LEVEL) / 2 / count))
    number = f"largest of {count} deviations: {largest:.1f} standard errors (limit {critical:.1f})"
    return number, exactly(largest < critical)


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
    found = {name: between_measurements(measured[name], reference) for name in INCORRECT}
    number = "; ".join(f"{appearance(name).label} {found[name].text()}" for name in INCORRECT)
    return number, above_zero(found.values())


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


def log_gaps(gaps: pd.DataFrame, axis: str = "steps") -> pd.DataFrame:
    """Return the logarithm of the gap of each run in the last quarter of the steps, or of the instances.

    All runs count up to the same number of them. A difference of logarithms is a relative difference.
    """
    ranked = ranking(gaps.assign(steps=gaps[axis]))
    seeds = [name for name in ranked.columns if name.startswith("seed ")]
    runs = ranked.melt("estimator", seeds, value_name="value").dropna()
    return runs.assign(value=np.log(runs["value"]))


def shorter_tours(gaps: pd.DataFrame, other: str) -> tuple[str, Decision]:
    """Compare the gap of another estimator with that of the unordered set estimator."""
    difference = between_runs(log_gaps(gaps), other, OURS)
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


def less_variance(variances: pd.DataFrame, policies: pd.DataFrame) -> tuple[str, Decision]:
    """Compare the variance with that of RLOO on the most confident policy."""
    last = variances[variances["step"] == variances["step"].max()].set_index("estimator").loc[OURS]
    gain, error = float(last["gain"]), float(last["gain_error"])
    duplicates = float(policies.set_index("step").loc[variances["step"].max(), "duplicates"])
    number = f"variance of RLOO ÷ ours: {gain:.2f} ± {error:.2f}, at {duplicates:.0%} duplicates"
    return number, above_zero([between_measurements((gain, error), (1.0, 0.0))])


def less_variance_for_every_k(variance: pd.DataFrame, k: int) -> tuple[str, Decision]:
    """Compare the variances of gradients for each k, and report one k."""
    found = gains(variance)
    pairs = zip(found["gain"], found["gain_error"], strict=True)
    decision = above_zero([between_measurements(pair, (1.0, 0.0)) for pair in pairs])
    gain, error, duplicates = found.loc[k, ["gain", "gain_error", "duplicates"]]
    number = f"variance of RLOO ÷ ours: {gain:.2f} ± {error:.2f}, at {duplicates:.0f}% duplicates"
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
    return f"{difference.text()} points", above_zero([difference])


def over_seeds(apart: list[float]) -> Interval:
    """Return the mean of the differences of runs with the same seed, and its interval."""
    return Interval(fmean(apart), *interval(apart))


def paired_gaps(paired: pd.DataFrame, other: str) -> Interval:
    """Return the gap of another estimator minus ours at the end, by runs with the same seed."""
    rows = paired[paired["estimator"] == other]
    return over_seeds(rows["minus_unordered_set"].dropna().tolist())


def shorter_final_tours(paired: pd.DataFrame, other: str) -> tuple[str, Decision]:
    """Compare the tours of final models on the same instances."""
    difference = paired_gaps(paired, other)
    return f"{difference.text(4)} points of the gap", above_zero([difference])


def final_tours_on_par(paired: pd.DataFrame, other: str) -> tuple[str, Decision]:
    """Compare the tours of final models both ways, relative to the gap of the unordered set estimator."""
    gap = float(paired[paired["estimator"] == OURS]["gap"].mean())
    relative = Interval(*(100 * value / gap for value in paired_gaps(paired, other)))
    return f"{relative.text(1)} % of the gap", on_par(relative, GAP_MARGIN)


def fewer_tours(growth: pd.DataFrame, few: int, many: int) -> tuple[str, Decision]:
    """Compare the best of a few distinct tours with that of many independent ones.

    Both are tours of the same instances, so the interval of independent measurements is too wide.
    """
    rows = growth.set_index(["method", "k"])[["gap", "gap_error"]]
    ours, other = (tuple(rows.loc[at]) for at in (("distinct", few), ("sampling", many)))
    difference = between_measurements(other, ours)
    return f"{difference.text(3)} points of the gap", above_zero([difference])


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
