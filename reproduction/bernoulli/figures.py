"""The figures of the Bernoulli experiment."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from reproduction.bernoulli.problem import CURVES
from reproduction.bernoulli.task import GRADIENTS, Point, Variance
from reproduction.harness.appearance import appearance

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def variance_figure(points: Sequence[Variance]) -> Figure:
    """Draw Figure 1: variance against evaluations on a log scale, one panel for each η.

    Variances of 0 and of infinity are in bands of their own, below and above the scale.
    """
    from matplotlib.figure import Figure

    etas = list(dict.fromkeys(point.eta for point in points))
    figure = Figure(figsize=(max(5.2 * len(etas), 8.5), 6.2), layout="constrained")
    panels = figure.subplots(1, len(etas), squeeze=False)[0]
    for eta, ax in zip(etas, panels, strict=True):
        _panel(ax, [point for point in points if point.eta == eta])
        ax.set_title(rf"$\eta = {eta:g}$")
        ax.set_xlabel("evaluations of $f$, including those for baselines")
    panels[0].set_ylabel(r"variance of the estimate of $\partial L / \partial \eta$")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)
    return figure


def _panel(ax: Axes, points: Sequence[Variance]) -> None:
    from matplotlib.ticker import FixedLocator, LogLocator, NullLocator

    logs = [p.log_variance / math.log(10.0) for p in points if math.isfinite(p.log_variance)]
    low, high = math.floor(min(logs)), math.ceil(max(logs))
    gap = 0.06 * (high - low)
    zero, infinite = 10.0 ** (low - gap), 10.0 ** (high + gap)
    ax.set_yscale("log")
    for curve in CURVES:
        _draw(
            ax, curve.name, [point for point in points if point.estimator == curve.name], infinite
        )
    _whole_domain(ax, [point for point in points if point.variance == 0.0], zero)
    decades = LogLocator(numticks=8).tick_values(10.0**low, 10.0**high)
    decades = [y for y in decades if 10.0**low <= y <= 10.0**high]
    labels = [f"$10^{{{round(math.log10(y))}}}$" for y in decades]
    ax.yaxis.set_major_locator(FixedLocator([zero, *decades, infinite]))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.set_yticklabels(["0", *labels, "∞"])
    for edge, end in ((low, low - 2 * gap), (high, high + 2 * gap)):
        ax.axhspan(10.0**edge, 10.0**end, color="0.93", zorder=0)
    ax.set_ylim(10.0 ** (low - 2 * gap), 10.0 ** (high + 2 * gap))
    _note(ax, "infinite for k ≤ 3", 3.6, infinite)
    ax.set_xticks(range(1, 17))
    ax.grid(alpha=0.25)


def _draw(ax: Axes, name: str, points: Sequence[Variance], infinite: float) -> None:
    finite = [point for point in points if math.isfinite(point.log_variance)]
    look = appearance(name)
    ax.plot(
        [point.evaluations for point in finite],
        [point.variance for point in finite],
        label=look.label,
        linestyle=look.line,
        linewidth=1.4,
        **_points(name),
    )
    beyond = [point.evaluations for point in points if point.variance == math.inf]
    ax.plot(beyond, [infinite] * len(beyond), linestyle="none", **_points(name))


def _whole_domain(ax: Axes, points: Sequence[Variance], zero: float) -> None:
    """Draw the points of variance 0 side by side, since they would coincide."""
    for i, point in enumerate(points):
        aside = 0.36 * (i - 0.5 * (len(points) - 1))
        ax.plot(point.evaluations + aside, zero, linestyle="none", **_points(point.estimator))
    _note(ax, "none at k = 8, the whole domain", 9.3, zero)


def _points(name: str) -> dict[str, Any]:
    look = appearance(name)
    return {
        "color": look.colour,
        "marker": look.marker,
        "markerfacecolor": look.face,
        "markersize": 5.5,
    }


def _note(ax: Axes, text: str, x: float, y: float) -> None:
    ax.annotate(text, (x, y), va="center", fontsize="x-small", color="0.35")


def trajectory_figure(path: Sequence[Point], k: int) -> Figure:
    """Draw the loss during optimisation: its mean over the runs, and the 10th to the 90th percentile."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    ax = figure.subplots()
    for name in reversed(GRADIENTS):
        mine, look = [point for point in path if point.estimator == name], appearance(name)
        step = [point.step for point in mine]
        low, high = [p.loss_10 for p in mine], [p.loss_90 for p in mine]
        ax.fill_between(step, low, high, color=look.colour, alpha=0.2, linewidth=0)
        mean = [p.loss_mean for p in mine]
        ax.plot(step, mean, color=look.colour, linestyle=look.line, label=look.label)
    ax.set_title(
        f"Gradient descent with k = {k} samples: mean, 10th to 90th percentile of the runs",
        fontsize="medium",
    )
    ax.set_xlabel("step")
    ax.set_ylabel(r"loss $L(\eta)$")
    ax.legend(frameon=False)
    ax.grid(alpha=0.25)
    return figure
