"""Figure 3, the optimality gap of runs; and drawings of tours that a model found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pandas as pd
from torch import Tensor

from swor.experiments.runs.appearance import appearance
from swor.experiments.runs.metrics import read_records
from swor.experiments.runs.settings import read_settings
from swor.experiments.tsp.settings import Name, TSPSettings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METHODS = {
    "greedy": "#7F7F7F",
    "without replacement": "#0072B2",
    "independent": "#D55E00",
    "beam search": "#008A64",
}
"""Colours of the ways to find tours."""

SHOWN = 4  # instances that are drawn


def read_gaps(run: Path) -> pd.DataFrame:
    """The gaps of a run, a row per validation."""
    settings = read_settings(TSPSettings, run)
    rows = [
        {
            "nodes": settings.nodes,
            "estimator": settings.estimator,
            "seed": settings.seed,
            "steps": record["step"],
            "instances": record["step"] * settings.instances,
            "length": record["length"],
            "gap": record["gap"],
            "gap_standard_error": record["gap_standard_error"],
        }
        for record in read_records(run, "valid")
    ]
    return pd.DataFrame(rows)


def ranking(gaps: pd.DataFrame) -> pd.DataFrame:
    """The gap of every estimator, best first, and of each of its seeds.

    At equal steps: the median over the second half of the steps that all runs have taken, since
    single validations vary more than estimators differ.
    """
    runs = gaps.groupby(["estimator", "seed"])
    common = runs["steps"].max().min()
    late = gaps[(gaps["steps"] > common / 2) & (gaps["steps"] <= common)]
    table = late.groupby(["estimator", "seed"])["gap"].median().unstack().add_prefix("seed ")
    table.insert(0, "gap", table.mean(axis=1))
    table.insert(0, "steps", common)
    return table.sort_values("gap").round(4).reset_index()


def gap_figure(gaps: pd.DataFrame, axis: str, smooth: int) -> Figure:
    """Light raw and dark smoothed curves against ``axis``, steps or instances."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullFormatter

    figure = Figure(figsize=(7.2, 4.2), layout="constrained")
    ax = figure.subplots()
    for name in get_args(Name):
        runs = gaps[(gaps["estimator"] == name) & (gaps["steps"] > 0)]
        if runs.empty:
            continue
        look = appearance(name)
        raw = runs.pivot(index=axis, columns="seed", values="gap")
        ax.plot(raw.index, raw, look.line, color=look.colour, alpha=0.25, linewidth=1)
        dark = smoothed(raw, smooth).mean(axis=1)
        ax.plot(dark.index, dark, look.line, color=look.colour, linewidth=2, label=look.label)
    ax.set_yscale("log")
    ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    ax.yaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_minor_formatter(NullFormatter())
    ax.set(xlabel=f"training {axis}", ylabel="optimality gap (%)")
    ax.grid(alpha=0.25)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def smoothed(curves: pd.DataFrame, window: int) -> pd.DataFrame:
    """Geometric means over a window around every point, as the axis is logarithmic."""
    logs = np.log(curves).rolling(window, center=True, min_periods=1).mean()
    return np.exp(logs).where(curves.notna())


def growth_figure(rows: Sequence[Mapping[str, Any]], optimal: float | None) -> Figure:
    """The mean length of the best of k tours against k."""
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
    """The best tours of the first instances, a column per method."""
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
