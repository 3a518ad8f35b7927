"""Figures of the optimality gap of runs (Figure 3), and of tours that a model found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pandas as pd
from torch import Tensor

from reproduction.harness.appearance import appearance
from reproduction.tsp.settings import Name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

METHODS = {
    "greedy": "#7F7F7F",
    "without replacement": "#0072B2",
    "independent": "#D55E00",
    "beam search": "#008A64",
}
"""Colours of the ways to find tours."""

SHOWN = 4  # instances that are drawn


def gap_figure(gaps: pd.DataFrame, axis: str, smooth: int) -> Figure:
    """Plot the mean over seeds against ``axis``, which is steps or instances, in a band of all seeds."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter

    figure = Figure(figsize=(7.2, 4.2), layout="constrained")
    ax, trained = figure.subplots(), gaps[gaps["trained"]]
    for name in get_args(Name):
        runs = trained[trained["estimator"] == name]
        if runs.empty:
            continue
        look = appearance(name)
        seeds = smoothed(runs.pivot(index=axis, columns="seed", values="gap"), smooth)
        low, high = seeds.min(axis=1), seeds.max(axis=1)
        ax.fill_between(seeds.index, low, high, color=look.colour, alpha=0.15, linewidth=0)
        ax.plot(seeds.mean(axis=1), look.line, color=look.colour, linewidth=1.8, label=look.label)
    _gap_axis(ax, trained["gap"])
    if axis == "instances":
        ax.xaxis.set_major_formatter(EngFormatter())  # 500 k, 1 M
    ax.set(xlabel=f"training {axis}", ylabel="optimality gap (%)")
    ax.grid(alpha=0.25)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def _gap_axis(ax: Axes, gaps: pd.Series[float]) -> None:
    """A logarithmic axis with ticks at 1, 2, 3 and 5, unless it would have few of them."""
    from matplotlib.ticker import LogLocator, NullFormatter

    if gaps.max() > 5.0 * gaps.min() > 0.0:
        ax.set_yscale("log")
        ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 3.0, 5.0)))
        ax.yaxis.set_major_formatter("{x:g}")
        ax.yaxis.set_minor_formatter(NullFormatter())


def smoothed(curves: pd.DataFrame, window: int) -> pd.DataFrame:
    """Return geometric means over a window around every point but the start, which all runs share."""
    later = curves[curves.index > 0]
    logs = np.log(later).rolling(window, center=True, min_periods=1).mean()
    return pd.concat([curves[curves.index == 0], np.exp(logs).where(later.notna())])


def growth_figure(rows: Sequence[Mapping[str, Any]], optimal: float | None) -> Figure:
    """Plot the mean length of the best of k tours against k."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 3.6), layout="constrained")
    ax = figure.subplots()
    methods = list(dict.fromkeys(row["method"] for row in rows))
    for method, marker in zip(methods, "osD", strict=True):
        points = [(row["k"], row["length"]) for row in rows if row["method"] == method]
        ax.plot(*zip(*points, strict=True), marker=marker, color=METHODS[method], label=method)
    if optimal is not None:
        ax.axhline(optimal, color="black", linewidth=0.8, linestyle="--", label="optimal")
    ks = sorted({row["k"] for row in rows})
    ax.set_xscale("log", base=2)
    ax.set_xticks(ks, [str(k) for k in ks])
    ax.set(xlabel="number of tours k", ylabel="mean length of the best of k tours")
    ax.grid(alpha=0.25)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False)
    return figure


def tours_figure(instances: Tensor, best: Mapping[str, tuple[Tensor, Tensor]]) -> Figure:
    """Draw the best tours of the first instances, one column for each method."""
    from matplotlib.figure import Figure

    count = min(SHOWN, len(instances))
    figure = Figure(figsize=(2.4 * len(best), 2.5 * count), layout="constrained")
    grid = figure.subplots(count, len(best), squeeze=False)
    for column, (method, (tours, length)) in enumerate(best.items()):
        for row in range(count):
            ax = grid[row, column]
            x, y = instances[row, tours[row].tolist() + tours[row, :1].tolist()].T
            ax.plot(x, y, "-", color=METHODS[method], linewidth=1.5)
            ax.plot(x, y, "o", color="black", markersize=3)
            title = f"{method}\n" if row == 0 else ""
            ax.set_title(f"{title}{float(length[row]):.3f}", fontsize=9)
            ax.set(aspect="equal", xticks=[], yticks=[])
    return figure
