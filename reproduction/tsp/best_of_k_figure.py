"""The picture of the best of k tours: two lines with their names beside them, and what they mean."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reproduction.harness.appearance import appearance
from reproduction.harness.drawing import panels

SHORTEST = {"optimal": "the shortest tour", "best found": "the best tour found"}


class Line(NamedTuple):
    """How a method is drawn: its name, at the point of some k, so many points beside it."""

    name: str
    k: int
    beside: tuple[int, int]


INDEPENDENT = Line("independent tours", 16, (4, 7))
APART = {"sampling": INDEPENDENT, "distinct": Line("distinct tours", 128, (-1, 8))}
CLOSE = {"sampling": INDEPENDENT, "distinct": Line("distinct tours", 8, (-4, -16))}
"""Where lines have their names: there is room between them, or only below both."""


def best_of_k_figure(*tables: pd.DataFrame) -> Figure:
    """Plot the gap of the best of k tours against k, from ``best_of_k.csv``, in a panel for each table."""
    figure, axes = panels(6.4 if len(tables) == 1 else 4.4 * len(tables), 3.8, columns=len(tables))
    for ax, table in zip(axes[0], tables, strict=True):
        _panel(ax, table)
        (nodes,), ks = table["nodes"].unique(), sorted(table["k"].unique())
        ax.set_xscale("log", base=2)
        ax.set_xticks(ks, [str(k) for k in ks])
        ax.set(ylim=(0.0, None), xlabel="k, tours drawn for each instance")
        ax.set_title(f"trained policy, travelling salesman, {nodes} nodes", fontsize=10)
        (reference,) = table["reference"].unique()
        ax.set_ylabel(f"best of k tours: % longer than {SHORTEST[reference]}", fontsize=9)
    return figure


def _panel(ax: Axes, table: pd.DataFrame) -> None:
    gaps = gaps_of(table)
    ratio = gaps["distinct"].iloc[-1] / gaps["sampling"].iloc[-1]
    for method, line in (APART if ratio < 1 / 4 else CLOSE).items():
        look, gap = appearance(method), gaps[method]
        size = {"linewidth": 2.4, "markersize": 5.5}
        ax.plot(gap.index, gap, **(look.line_style | look.point_style | size))
        k = min(line.k, gap.index.max())
        _write(ax, line.name, (k, gap[k]), line.beside, look.colour, 11)
    below = 0.25 * gaps["distinct"].iloc[-1] if ratio > 1 / 2 else None
    _mark_equal(ax, table, below)


def gaps_of(table: pd.DataFrame) -> dict[str, pd.Series[float]]:
    """Return the gap by k of every method."""
    return {str(name): part.set_index("k")["gap"] for name, part in table.groupby("method")}


def marked(table: pd.DataFrame) -> int:
    """Return the largest number of distinct tours that is worth a number of independent ones of the table."""
    gaps = gaps_of(table)
    worth = {k: equal_number(gap, gaps["sampling"]) for k, gap in gaps["distinct"].items()}
    return max((int(k) for k, many in worth.items() if np.isfinite(many)), default=1)


def _write(
    ax: Axes, text: str, at: tuple[float, float], beside: tuple[int, int], colour: str, font: int
) -> None:
    side = "center" if beside[0] == 0 else "right" if beside[0] < 0 else "left"
    style: dict[str, Any] = {"textcoords": "offset points", "color": colour, "fontsize": font}
    ax.annotate(text, at, beside, ha=side, **style)


def _mark_equal(ax: Axes, table: pd.DataFrame, below: float | None) -> None:
    """Draw a line from distinct tours to the independent ones that are as good, if they are more.

    The text, at a height below both curves or below the line, says so, or has the share of duplicates.
    """
    gaps, few, most = gaps_of(table), marked(table), int(table["k"].max())
    gap = gaps["distinct"][few]
    many = equal_number(gap, gaps["sampling"])
    rows = table[table["method"] == "sampling"].set_index("k")
    text = f"{rows['duplicates'][most]:.0f} % of {most} independent tours\nare duplicates"
    if many > few:
        ax.plot([few, min(many, most)], [gap, gap], ":", color="#222222", linewidth=1.4)
        text = (
            f"{few} distinct tours are as good\nas {number_text(many, rows.index)} independent ones"
        )
    at, beside = (gap, (-1, -27)) if below is None else (below, (-1, 0))
    _write(ax, text, (most, at), beside, "#222222", 9)


def number_text(many: float, ks: Iterable[int]) -> str:
    """Return the numbers of independent tours of the curve between which a number is.

    >>> (
    ...     number_text(97.0, (32, 64, 128)),
    ...     number_text(64.0, (32, 64)),
    ...     number_text(float("inf"), (32, 64)),
    ... )
    ('64 to 128', '64', 'more than 64')
    """
    below, above = ([k for k in ks if k <= many], [k for k in ks if k >= many])
    if not above:
        return f"more than {max(below)}"
    ends = dict.fromkeys((max(below, default=min(above)), min(above)))
    return " to ".join(map(str, ends))


def equal_number(gap: float, independent: pd.Series[float]) -> float:
    """Return the k with a gap by the curve of independent tours, linear in log k; infinity beyond its end.

    >>> equal_number(0.3, pd.Series({1: 0.5, 4: 0.1})), equal_number(0.05, pd.Series({1: 0.5}))
    (2.0, inf)
    """
    gaps = np.minimum.accumulate(independent.to_numpy())
    if gap < gaps[-1]:
        return float("inf")
    ks = np.log2(independent.index.to_numpy())
    return float(2.0 ** np.interp(-gap, -gaps, ks))
