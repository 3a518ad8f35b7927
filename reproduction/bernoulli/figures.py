"""The figures of the Bernoulli experiment."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, LogLocator, NullLocator

from reproduction.bernoulli.task import SAMPLES
from reproduction.harness.appearance import appearance, in_order
from reproduction.harness.drawing import legend_below, panels

MARKERS: dict[str, Any] = {"markersize": 5.5}


def variance_figure(points: pd.DataFrame) -> Figure:
    """Draw Figure 1: variance against evaluations on a log scale, one panel for each η.

    Variances of 0 and of infinity are in bands of their own, below and above the scale.
    """
    etas = points["eta"].unique()
    figure, axes = panels(max(5.2 * len(etas), 8.5), 6.2, columns=len(etas))
    for eta, ax in zip(etas, axes[0], strict=True):
        _variance_panel(ax, points[points["eta"] == eta])
        ax.set_title(rf"$\eta = {eta:g}$")
        ax.set_xlabel("evaluations of $f$, including those for baselines")
    axes[0, 0].set_ylabel(r"variance of the estimate of $\partial L / \partial \eta$")
    legend_below(figure, axes[0, 0])
    return figure


def _variance_panel(ax: Axes, points: pd.DataFrame) -> None:
    logs = points["log_variance"] / math.log(10.0)
    finite = points[logs.abs() < math.inf]
    low, high = math.floor(logs[finite.index].min()), math.ceil(logs[finite.index].max())
    gap = 0.06 * (high - low)
    zero, infinite = 10.0 ** (low - gap), 10.0 ** (high + gap)
    ax.set_yscale("log")
    for name in in_order(points["estimator"]):
        mine, look = finite[finite["estimator"] == name], appearance(name)
        style = look.line_style | look.point_style | MARKERS
        ax.plot(mine["evaluations"], mine["variance"], label=look.label, linewidth=1.4, **style)
        beyond = points[(points["estimator"] == name) & (points["variance"] == math.inf)]
        height = [infinite] * len(beyond)
        ax.plot(beyond["evaluations"], height, linestyle="none", **look.point_style, **MARKERS)
    _draw_whole_domain(ax, points[points["variance"] == 0.0], zero)
    _label_decades(ax, low, high, zero, infinite)
    for edge, end in ((low, low - 2 * gap), (high, high + 2 * gap)):
        ax.axhspan(10.0**edge, 10.0**end, color="0.93", zorder=0)
    ax.set_ylim(10.0 ** (low - 2 * gap), 10.0 ** (high + 2 * gap))
    _write(ax, "infinite for k ≤ 3", 3.6, infinite)
    ax.set_xticks(range(1, 17))


def _label_decades(ax: Axes, low: int, high: int, zero: float, infinite: float) -> None:
    decades = LogLocator(numticks=8).tick_values(10.0**low, 10.0**high)
    decades = [y for y in decades if 10.0**low <= y <= 10.0**high]
    labels = [f"$10^{{{round(math.log10(y))}}}$" for y in decades]
    ax.yaxis.set_major_locator(FixedLocator([zero, *decades, infinite]))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.set_yticklabels(["0", *labels, "∞"])


def _draw_whole_domain(ax: Axes, points: pd.DataFrame, zero: float) -> None:
    """Draw the points of variance 0 side by side, since they would coincide."""
    for i, point in enumerate(points.itertuples()):
        x = point.evaluations + 0.36 * (i - 0.5 * (len(points) - 1))
        style = appearance(point.estimator).point_style
        ax.plot(x, zero, linestyle="none", **style, **MARKERS)
    _write(ax, "none at k = 8, the whole domain", 9.3, zero)


def _write(ax: Axes, text: str, x: float, y: float) -> None:
    ax.annotate(text, (x, y), va="center", fontsize="x-small", color="0.35")


def trajectory_figure(path: pd.DataFrame) -> Figure:
    """Draw the loss during optimisation: its mean over the runs, and the 10th to the 90th percentile."""
    figure, axes = panels(6.4, 4.2)
    ax = axes[0, 0]
    for name in reversed(path["estimator"].unique()):
        mine, look = path[path["estimator"] == name], appearance(name)
        band = (mine["loss_10"], mine["loss_90"])
        ax.fill_between(mine["step"], *band, color=look.colour, alpha=0.2, linewidth=0)
        ax.plot(mine["step"], mine["loss_mean"], label=look.label, **look.line_style)
    title = (
        f"Gradient descent with k = {SAMPLES} samples: mean, 10th to 90th percentile of the runs"
    )
    ax.set_title(title, fontsize="medium")
    ax.set(xlabel="step", ylabel=r"loss $L(\eta)$")
    ax.legend(frameon=False)
    return figure
