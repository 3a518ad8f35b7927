"""The tables and the figure of the gradient variance during training."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reproduction.harness.appearance import appearance, in_order
from reproduction.harness.drawing import draw_errors, legend_below, panels
from reproduction.harness.tables import markdown
from reproduction.tsp.settings import TSPVariance

USUAL = appearance("rloo").label
RATIOS = {
    "relative_variance": f"variance / variance of {USUAL}",
    "relative_squared_bias": f"squared bias / variance of {USUAL}",
}
MISSING = "–"  # an estimator that was not measured on a model
POLICY = {
    "log_p": ("mean log p of a tour", "{:.3f} ± {:.1g}"),
    "duplicates": ("duplicates", "{:.1%} ± {:.1g}"),
    "length": ("mean length", "{:.3f}"),
    "greedy_length": ("mean length, greedy", "{:.3f}"),
    "variance": (f"variance of {USUAL}", "{:.3g} ± {:.1g}"),
    "squared_gradient": ("squared norm of the gradient", "{:.3g} ± {:.1g}"),
}
"""Columns of ``policies.csv`` and the variance of RLOO: how they are named and formatted."""


def with_ratios(measured: pd.DataFrame) -> pd.DataFrame:
    """Add variance and squared bias over the variance of RLOO on the same model, with standard errors."""
    rloo = measured["estimator"] == "rloo"
    usual = measured[rloo].set_index("step")
    variance, variance_error = (measured["step"].map(usual[f"variance{x}"]) for x in ("", "_error"))
    for name in ("variance", "squared_bias"):
        ratio = measured[name] / variance
        error = np.hypot(measured[f"{name}_error"], ratio * variance_error) / variance
        error = error.mask(rloo & (name == "variance"), 0.0)  # a number over itself
        measured = measured.assign(**{f"relative_{name}": ratio, f"relative_{name}_error": error})
    return measured


def variance_tables(settings: TSPVariance, measured: pd.DataFrame, policies: pd.DataFrame) -> str:
    """Return tables of the variance, the squared bias and the policies, with a column for every step."""
    usual = measured[measured["estimator"] == "rloo"][["step", "variance", "variance_error"]]
    policies = policies.merge(usual, on="step").sort_values("step")
    header = [f"step {step}" for step in policies["step"]]
    size = f"{settings.batch_size} instances, {settings.k} tours of each"
    parts = [
        f"## Variance, over that of {USUAL} ({size})\n",
        markdown(["estimator", *header], _ratios(settings, measured, "relative_variance")),
        f"## Squared bias, over the variance of {USUAL}\n",
        markdown(["estimator", *header], _ratios(settings, measured, "relative_squared_bias")),
        "## Policies\n",
        markdown(["independent tours", *header], _policies(policies)),
    ]
    return "\n".join(parts)


def _ratios(settings: TSPVariance, measured: pd.DataFrame, column: str) -> list[list[str]]:
    numbers = zip(measured[column], measured[f"{column}_error"], strict=True)
    cells = measured.assign(cell=[f"{ratio:.3g} ± {error:.1g}" for ratio, error in numbers])
    table = cells.pivot(index="estimator", columns="step", values="cell").fillna(MISSING)
    return [[appearance(name).label, *table.loc[name]] for name in settings.estimators]


def _policies(policies: pd.DataFrame) -> list[list[str]]:
    rows = policies.assign(duplicates_error=100.0 * policies["duplicates_error"])
    lines = []
    for column, (name, form) in POLICY.items():
        errors = rows.get(f"{column}_error", rows[column])  # unused where the form has one place
        lines.append([name, *map(form.format, rows[column], errors)])
    return lines


def variance_figure(measured: pd.DataFrame, policies: pd.DataFrame, trained_with: str) -> Figure:
    """Plot variances and squared biases over the variance of RLOO, and the policies.

    Error bars are two standard errors. Numbers that are not above 0 by as much have no place on a
    logarithmic axis.
    """
    figure, axes = panels(8.0, 9.6, rows=3, sharex=True)
    *ratio_axes, last = axes[:, 0]
    for ax, (column, title) in zip(ratio_axes, RATIOS.items(), strict=True):
        _ratio_panel(ax, measured.sort_values("step"), column)
        ax.set(title=title, yscale="log")
    _policy_panel(last, policies.sort_values("step"))
    steps = sorted(policies["step"])
    last.set_xscale("symlog", linthresh=min((s for s in steps if s), default=1), linscale=0.5)
    last.set_xticks(steps, [f"{step}" for step in steps])
    last.set_xticks([], minor=True)
    last.set_xlabel(f"steps of training with {trained_with}")
    legend_below(figure, ratio_axes[0])
    return figure


def _ratio_panel(ax: Axes, measured: pd.DataFrame, column: str) -> None:
    for name in in_order(measured["estimator"]):
        look = appearance(name)
        if column == "relative_squared_bias" and look.line != "-.":  # it is unbiased
            continue
        error = f"{column}_error"
        mine = measured[(measured["estimator"] == name) & (measured[column] > 2 * measured[error])]
        draw_errors(ax, mine["step"], mine[column], mine[error], look)


def _policy_panel(ax: Axes, policies: pd.DataFrame) -> None:
    other, (blue, red) = ax.twinx(), ("#0072b2", "#d55e00")
    ax.plot(policies["step"], policies["duplicates"], "o-", color=blue)
    ax.set_ylabel("share of duplicate tours", color=blue)
    ax.set_ylim(0.0, 1.1 * policies["duplicates"].max() or 1.0)
    other.plot(policies["step"], policies["log_p"], "s--", color=red)
    other.set_ylabel("mean log p of a tour", color=red)
    other.spines["top"].set_visible(False)
