"""The plot of a comparison."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from swor.diagnostics.measurement import Measurement, Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLUE, ORANGE = "#0072B2", "#D55E00"  # distinguishable for colour-blind readers


def plot(rows: Sequence[Row], k: int, evaluations: int, ax: Axes) -> Axes:
    """Plot the log-variance of every estimator: hollow at equal k, solid at equal evaluations."""
    rows = sorted(rows, key=lambda row: row.at_k.log_variance, reverse=True)
    measured = [m for row in rows for m in (row.at_k, row.at_evaluations) if m is not None]
    finite = [m.log_variance for m in measured if math.isfinite(m.log_variance)]
    floor = min(finite, default=0.0) - 1.0
    labels = {False: f"at k = {k}", True: f"at {evaluations} evaluations"}
    for y, row in enumerate(rows):
        colour = ORANGE if row.looks_biased else BLUE
        _dot(ax, row.at_k, y + 0.15, floor, colour, solid=False)
        if row.at_evaluations is not None:
            _dot(ax, row.at_evaluations, y - 0.15, floor, colour, solid=True)
    for solid, label in labels.items():
        ax.plot([], [], "o", color=BLUE, mfc=BLUE if solid else "none", label=label)
    if any(row.looks_biased for row in rows):
        ax.plot([], [], "o", color=ORANGE, label="biased")
    ax.set_yticks(range(len(rows)), [row.name for row in rows])
    ax.set_xlabel("log-variance of the gradient (◂: none at all)")
    ax.grid(axis="x", alpha=0.3)
    ax.legend(frameon=False)
    return ax


def _dot(ax: Axes, m: Measurement, y: float, floor: float, colour: str, *, solid: bool) -> None:
    none = m.log_variance == -math.inf
    ax.errorbar(
        floor if none else m.log_variance,
        y,
        xerr=None if none else 2.0 * m.log_variance_error,
        fmt="<" if none else "o",
        color=colour,
        mfc=colour if solid else "white",
        capsize=2,
    )
