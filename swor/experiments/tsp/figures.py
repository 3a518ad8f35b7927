"""Figures of the optimality gap of runs (Figure 3), and of tours that a model found."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pandas as pd
from torch import Tensor

from swor.experiments.runs.appearance import appearance
from swor.experiments.runs.metrics import read_records
from swor.experiments.runs.settings import read_settings
from swor.experiments.runs.tables import LEVEL, markdown, mean_and_interval
from swor.experiments.tsp.settings import Name, TSPSettings

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
COMPARED = "unordered_set"  # the estimator that a ranking compares the others with


def read_gaps(run: Path) -> pd.DataFrame:
    """Read the gaps of a run, one row for each validation."""
    settings = read_settings(TSPSettings, run)
    rows = [
        {
            "nodes": settings.nodes,
            "estimator": settings.estimator,
            "seed": settings.seed,
            "steps": record["step"],
            "trained": record["step"] > 0 or settings.start_from is not None,
            "instances": record["step"] * settings.instances,
            "length": record["length"],
            "gap": record["gap"],
            "gap_standard_error": record["gap_standard_error"],
        }
        for record in read_records(run, "valid")
    ]
    return pd.DataFrame(rows)


def ranking(gaps: pd.DataFrame) -> pd.DataFrame:
    """Rank the estimators by their gap, the best first, with the gaps of their seeds.

    At equal steps: the mean over the last quarter of the steps that all runs have taken, since single
    validations vary more than estimators differ. The spread is the standard deviation over the seeds.
    """
    runs = gaps.groupby(["estimator", "seed"])
    common = runs["steps"].max().min()
    late = gaps[(gaps["steps"] > 0.75 * common) & (gaps["steps"] <= common)]
    seeds = late.groupby(["estimator", "seed"])["gap"].mean().unstack().add_prefix("seed ")
    table = seeds.copy()
    table.insert(0, "spread", seeds.std(axis=1))
    table.insert(0, "gap", seeds.mean(axis=1))
    table.insert(0, "steps", common)
    return table.sort_values("gap").round(4).reset_index()


def ranking_table(ranked: pd.DataFrame) -> str:
    """Return a ranking in Markdown, with the mean differences of runs with the same seeds."""
    seeds = [name for name in ranked.columns if name.startswith("seed ")]
    gaps = ranked.set_index("estimator")[seeds]
    lines = []
    for row in ranked.to_dict("records"):
        spread = "" if math.isnan(row["spread"]) else f" ± {row['spread']:.2f}"
        cells = ["–" if math.isnan(row[seed]) else f"{row[seed]:.2f}" for seed in seeds]
        difference = _difference(gaps, row["estimator"])
        name = appearance(row["estimator"]).label
        lines.append([name, f"{row['gap']:.2f}{spread}", *cells, difference])
    compared = f"minus {appearance(COMPARED).label} ({LEVEL:.0%} interval)"
    return markdown(["estimator", "mean gap (%)", *seeds, compared], lines)


def _difference(gaps: pd.DataFrame, estimator: str) -> str:
    """The mean over shared seeds of the gap minus that of the unordered set estimator."""
    if estimator == COMPARED or COMPARED not in gaps.index:
        return "–"
    found = (gaps.loc[estimator] - gaps.loc[COMPARED]).dropna().tolist()
    return mean_and_interval(found, 2) if found else "–"


def gap_figure(gaps: pd.DataFrame, axis: str, smooth: int) -> Figure:
    """Plot the mean over seeds against ``axis``, which is steps or instances, in a band of all seeds."""
    from matplotlib.figure import Figure

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
    ax.set(xlabel=f"training {axis}", ylabel="optimality gap (%)")
    ax.grid(alpha=0.25)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def _gap_axis(ax: Axes, gaps: pd.Series[float]) -> None:
    """A logarithmic axis with ticks at 1, 2 and 5, unless it would have few of them."""
    from matplotlib.ticker import LogLocator, NullFormatter

    if gaps.max() > 5.0 * gaps.min() > 0.0:
        ax.set_yscale("log")
        ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
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
