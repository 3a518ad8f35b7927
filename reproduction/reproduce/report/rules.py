"""Exact bias and variance of every rule on five outcomes: the computation, and its section."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch.distributions import Categorical

from reproduction.reproduce.report import html
from swor.diagnostics.enumeration import ExactMoments, exact_moments
from swor.estimators.baselines import BuiltIn, NoBaseline
from swor.estimators.registry import ESTIMATORS
from swor.estimators.score_function import ScoreFunctionEstimator

K = range(1, 5)
PROBABILITIES = (0.4, 0.25, 0.2, 0.1, 0.05)
COSTS = (1.0, -0.5, 2.0, 0.3, 4.0)

TEXT = (
    "The chart shows the total variance of the gradient with respect to the logits, for the "
    f"probabilities {', '.join(map(str, PROBABILITIES))}. It is a sum over all possible samples, so it is "
    "exact. Move the slider to change the number of samples k."
)


def rule_rows() -> list[dict[str, object]]:
    """Return a row for each rule and k: the norm of the gradient's bias, and its total variance.

    A rule appears with its built-in baseline, and without it where that is an entry of its own.
    """
    rows: list[dict[str, object]] = []
    for name, entry in ESTIMATORS.items():
        estimate = entry.function
        if not isinstance(estimate, ScoreFunctionEstimator):
            continue
        if not isinstance(estimate.baseline, BuiltIn | NoBaseline):
            continue
        for k in K:
            moments = small_domain(estimate, k)
            bias, variance = float(moments.gradient_bias.norm()), float(moments.total_variance)
            first = {"rule": name, "unbiased": entry.unbiased, "k": k}
            rows.append(first | {"bias": bias, "variance": variance})
    return rows


def small_domain(estimate: ScoreFunctionEstimator, k: int) -> ExactMoments:
    """Return the moments of an estimator on five outcomes, with gradients by the logits.

    >>> import swor
    >>> moments = small_domain(swor.unordered_set_no_baseline, 2)
    >>> bool(moments.gradient_bias.norm() < 1e-12)
    True
    """
    logits = torch.tensor(PROBABILITIES, dtype=torch.float64).log().requires_grad_()
    costs = torch.tensor(COSTS, dtype=torch.float64)
    dist = Categorical(logits=logits)
    rule, scheme, baseline = estimate.rule, estimate.scheme, estimate.baseline
    return exact_moments(rule, scheme, lambda x: costs[x], dist, k, [logits], baseline=baseline)


def theorems(folder: Path) -> html.Section:
    """Return the section, and its finding."""
    rows = html.read_csv(folder / "rules.csv")
    ks = list(dict.fromkeys(row["k"] for row in rows))
    variance = {(row["rule"], row["k"]): float(row["variance"]) for row in rows}
    bias: dict[str, float] = {}
    for row in rows:
        bias[row["rule"]] = max(float(row["bias"]), bias.get(row["rule"], 0.0))
    lines = [[n, f"{bias[n]:.1e}", *(f"{variance[n, k]:.3g}" for k in ks)] for n in bias]
    content = html.section(
        "rules",
        "Theorems: every rule on five outcomes",
        html.paragraph(TEXT),
        html.chart(
            "rules",
            [bars(variance, bias, k) for k in ks],
            x="variance",
            slider=True,
            views="Samples",
            caption="Exact variance of each rule. A variance of zero or infinity has no bar.",
            alternative="Bar chart: exact variance of each rule. The values are in the table below.",
        ),
        html.table(
            "Largest bias over k, and variance by k",
            ["rule", "bias", *(f"k = {k}" for k in ks)],
            lines,
        ),
    )
    return content, [unbiasedness(rows)]


def bars(
    variance: Mapping[tuple[str, str], float], bias: Mapping[str, float], k: str
) -> html.Trace:
    """Return a bar per rule, the lowest variance at the top."""
    order = sorted(bias, key=lambda name: -variance[name, k])
    return html.Trace(
        "variance",
        html.ACCENT,
        order,
        [html.on_log_axis(variance[name, k]) for name in order],
        view=f"k = {k}",
        kind="bar",
        text=[f"bias {bias[name]:.1e}" for name in order],
    )


def unbiasedness(rows: html.Rows) -> html.Finding:
    """Check the rules that should be unbiased."""
    unbiased = [row for row in rows if row["unbiased"] == "True"]
    largest = max(float(row["bias"]) for row in unbiased)
    return html.Finding(
        "Theorems",
        "The unordered set estimator and the estimators that it improves on are unbiased.",
        f"The largest bias of {len({row['rule'] for row in unbiased})} unbiased rules is "
        f"{largest:.0e}, by enumeration of all samples.",
        largest < 1e-9,
    )
