"""The figures of the Bernoulli experiment."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from swor.experiments.bernoulli.curves import CURVES, Curve
from swor.experiments.bernoulli.trajectory import Point
from swor.experiments.bernoulli.variances import Variance

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Style(NamedTuple):
    """Colour and marker say the family, line and fill the baseline."""

    colour: str  # of Okabe and Ito (2008), which colour-blind readers can tell apart
    marker: str


STYLES = {
    "reinforce": Style("#000000", "s"),
    "deterministic_sum_and_sample": Style("#E69F00", "^"),
    "sum_and_sample": Style("#009E73", "v"),
    "importance_weighted": Style("#CC79A7", "D"),
    "unordered_set": Style("#0072B2", "o"),
}
LINES = {"none": (0, (4, 2)), "sampled": (0, (1, 1.2)), "built-in": "-"}


def figure1(points: Sequence[Variance]) -> Figure:
    """Variance against evaluations on a log scale, one panel for each η.

    A variance of 0 or of infinity is in a band of its own, below or above the scale.
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
    none, infinite = 10.0 ** (low - gap), 10.0 ** (high + gap)
    ax.set_yscale("log")
    for curve in CURVES:
        _draw(ax, curve, [point for point in points if point.estimator == curve.name], infinite)
    _whole_domain(ax, [point for point in points if point.variance == 0.0], none)
    decades = LogLocator(numticks=8).tick_values(10.0**low, 10.0**high)
    decades = [y for y in decades if 10.0**low <= y <= 10.0**high]
    labels = [f"$10^{{{round(math.log10(y))}}}$" for y in decades]
    ax.yaxis.set_major_locator(FixedLocator([none, *decades, infinite]))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.set_yticklabels(["0", *labels, "∞"])
    for edge, end in ((low, low - 2 * gap), (high, high + 2 * gap)):
        ax.axhspan(10.0**edge, 10.0**end, color="0.93", zorder=0)
    ax.set_ylim(10.0 ** (low - 2 * gap), 10.0 ** (high + 2 * gap))
    ax.annotate(
        "infinite for k ≤ 3", (3.6, infinite), va="center", fontsize="x-small", color="0.35"
    )
    ax.set_xticks(range(1, 17))
    ax.grid(alpha=0.25)


def _draw(ax: Axes, curve: Curve, points: Sequence[Variance], infinite: float) -> None:
    usual = [point for point in points if math.isfinite(point.log_variance)]
    ax.plot(
        [point.evaluations for point in usual],
        [point.variance for point in usual],
        label=curve.label,
        linestyle=LINES[curve.baseline],
        linewidth=1.4,
        **_look(curve),
    )
    beyond = [point.evaluations for point in points if point.variance == math.inf]
    ax.plot(beyond, [infinite] * len(beyond), linestyle="none", **_look(curve))


def _whole_domain(ax: Axes, points: Sequence[Variance], none: float) -> None:
    """Points of variance 0, side by side: they would all coincide."""
    for i, point in enumerate(points):
        aside = 0.36 * (i - 0.5 * (len(points) - 1))
        curve = next(curve for curve in CURVES if curve.name == point.estimator)
        ax.plot(point.evaluations + aside, none, linestyle="none", **_look(curve))
    note = "none at k = 8, the whole domain"
    ax.annotate(note, (9.3, none), va="center", fontsize="x-small", color="0.35")


def _look(curve: Curve) -> dict[str, Any]:
    style = next(style for family, style in STYLES.items() if curve.name.startswith(family))
    filled = style.colour if curve.baseline == "built-in" else "white"
    return {
        "color": style.colour,
        "marker": style.marker,
        "markerfacecolor": filled,
        "markersize": 5.5,
    }


LABELS = {
    "reinforce": ("REINFORCE, built-in baseline", "#D55E00", "-"),
    "unordered_set": ("Unordered set, built-in baseline", "#0072B2", "-"),
    "exact": ("Exact gradient", "#000000", (0, (4, 3))),
}


def trajectory_figure(path: Sequence[Point], k: int) -> Figure:
    """The loss during optimisation: its mean over the runs, and the band that 8 of 10 runs are in."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    ax = figure.subplots()
    for name, (label, colour, line) in LABELS.items():
        mine = [point for point in path if point.estimator == name]
        step = [point.step for point in mine]
        ax.fill_between(
            step,
            [point.loss_10 for point in mine],
            [point.loss_90 for point in mine],
            color=colour,
            alpha=0.2,
            linewidth=0,
        )
        ax.plot(step, [p.loss_mean for p in mine], color=colour, linestyle=line, label=label)
    ax.set_title(
        f"Gradient descent with k = {k} samples: mean, 10th to 90th percentile of the runs"
    )
    ax.title.set_fontsize("medium")
    ax.set_xlabel("step")
    ax.set_ylabel(r"loss $L(\eta)$")
    ax.legend(frameon=False)
    ax.grid(alpha=0.25)
    return figure
