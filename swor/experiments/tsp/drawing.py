"""Figures of tours, and of what more samples find."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from torch import Tensor

from swor.experiments.folder import RunFolder

COLORS = {
    "greedy": "#7f7f7f",
    "without replacement": "#0072b2",
    "independent": "#d55e00",
    "beam search": "#009e73",
}
SHOWN = 4  # instances that are drawn


def draw_growth(
    folder: RunFolder, rows: Sequence[Mapping[str, Any]], optimal: float | None
) -> None:
    """Draw the mean length of the best of k tours against k, ``growth.png``."""
    figure, axes = plt.subplots(figsize=(5, 3.6), layout="constrained")
    methods = list(dict.fromkeys(row["method"] for row in rows))
    for method, marker in zip(methods, "osD", strict=True):
        points = [(row["k"], row["length"]) for row in rows if row["method"] == method]
        axes.plot(*zip(*points, strict=True), marker=marker, color=COLORS[method], label=method)
    if optimal is not None:
        axes.axhline(optimal, color="black", linewidth=0.8, linestyle="--", label="optimal")
    ks = sorted({row["k"] for row in rows})
    axes.set_xscale("log", base=2)
    axes.set_xticks(ks, [str(k) for k in ks])
    axes.set(xlabel="number of tours k", ylabel="mean length of the best of k tours")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    save(folder, figure, "growth.png")


def draw_tours(
    folder: RunFolder, instances: Tensor, best: Mapping[str, tuple[Tensor, Tensor]]
) -> None:
    """Draw the best tours of the first instances, a column per method, ``tours.png``."""
    count = min(SHOWN, len(instances))
    figure, grid = plt.subplots(
        count,
        len(best),
        figsize=(2.4 * len(best), 2.5 * count),
        squeeze=False,
        layout="constrained",
    )
    for column, (method, (tours, length)) in enumerate(best.items()):
        for row in range(count):
            axes = grid[row, column]
            x, y = instances[row, tours[row].tolist() + tours[row, :1].tolist()].T
            axes.plot(x, y, "-", color=COLORS[method], linewidth=1.5)
            axes.plot(x, y, "o", color="black", markersize=3)
            title = f"{method}\n" if row == 0 else ""
            axes.set_title(f"{title}{float(length[row]):.3f}", fontsize=9)
            axes.set(aspect="equal", xticks=[], yticks=[])
    save(folder, figure, "tours.png")


def save(folder: RunFolder, figure: Any, name: str) -> None:
    """Write a figure, whole, and close it."""
    with folder.replacing(name) as draft:
        figure.savefig(draft, dpi=150)
    plt.close(figure)
