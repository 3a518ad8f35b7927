"""Figures of the travelling salesman: gaps of runs (Figure 3), variances during training, and tours."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter
from torch import Tensor

from reproduction.harness.appearance import appearance, in_order
from reproduction.harness.drawing import (
    FEWEST,
    draw_errors,
    draw_runs,
    legend_below,
    legend_beside,
    logarithmic,
    panels,
    smoothed,
)
from reproduction.tsp.variance_tables import USUAL

SHOWN = 4  # instances that are drawn
RATIOS = {
    "relative_variance": f"variance / variance of {USUAL}",
    "relative_squared_bias": f"squared bias / variance of {USUAL}",
}


def gap_figure(gaps: pd.DataFrame, axis: str, window: int = 3) -> Figure:
    """Plot the gaps of ``gaps.csv`` against steps or instances: a thin line for each run, a thick mean.

    A point averages a window of validations if every run has ten or more.
    """
    figure, axes = panels(9.0, 4.4)
    ax, trained = axes[0, 0], gaps[gaps["trained"]].sort_values("steps")
    runs = trained.groupby(["estimator", "seed"])["gap"]
    window = window if runs.size().min() >= FEWEST else 1
    smooth = trained.assign(gap=runs.transform(lambda gap: smoothed(gap.tolist(), window)))
    for name in in_order(smooth["estimator"]):
        draw_runs(ax, smooth[smooth["estimator"] == name], axis, "gap", appearance(name))
    logarithmic(ax, trained["gap"])
    if axis == "instances":
        ax.xaxis.set_major_formatter(EngFormatter())  # 500 k, 1 M
    ax.set(xlabel=f"training {axis}", ylabel="optimality gap (%)")
    averaged = f"means of {window} validations" if window > 1 else None
    legend_beside(ax, (1.0, 0.5), "center left", averaged)
    return figure


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


def growth_figure(growth: pd.DataFrame) -> Figure:
    """Plot the mean length of the best of k tours against k, from ``growth.csv``."""
    figure, axes = panels(5.0, 3.6)
    ax, ks = axes[0, 0], sorted(growth["k"].unique())
    for method in in_order(growth["method"]):
        rows, look = growth[growth["method"] == method], appearance(method)
        style = look.line_style | look.point_style
        ax.plot(rows["k"], rows["length"], label=look.label, **style)
    ax.set_xscale("log", base=2)
    ax.set_xticks(ks, [str(k) for k in ks])
    ax.set(xlabel="number of tours k", ylabel="mean length of the best of k tours")
    ax.legend(frameon=False)
    return figure


def tours_figure(instances: Tensor, best: Mapping[str, tuple[Tensor, Tensor]]) -> Figure:
    """Draw the best tours of the first instances, one column for each method."""
    count = min(SHOWN, len(instances))
    figure, axes = panels(2.4 * len(best), 2.5 * count, count, len(best))
    for column, (method, (tours, length)) in zip(axes.T, best.items(), strict=True):
        look = appearance(method)
        for row, ax in enumerate(column):
            x, y = instances[row, tours[row].tolist() + tours[row, :1].tolist()].T
            ax.plot(x, y, "-", color=look.colour, linewidth=1.5)
            ax.plot(x, y, "o", color="black", markersize=3)
            title = f"{look.label}\n" if row == 0 else ""
            ax.set_title(f"{title}{float(length[row]):.3f}", fontsize=9)
            ax.set(aspect="equal", xticks=[], yticks=[])
    return figure
