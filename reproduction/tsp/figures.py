"""Figures of the travelling salesman: gaps of runs (Figure 3), variances in training, best of k."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from reproduction.harness.appearance import appearance, in_order
from reproduction.harness.drawing import (
    FEWEST,
    SEEDS,
    draw_errors,
    draw_runs,
    legend_below,
    logarithmic,
    nested,
    panels,
)
from reproduction.tsp.best_of_k import SHORTEST, equal_number, gaps_of, marked, number_text
from reproduction.tsp.variance_tables import USUAL

RELEASED = "the authors' policy"
NAMES = {"sampling": "independent tours", "distinct": "distinct tours"}
RATIOS = {
    "gain": f"variance of {USUAL} ÷ variance of the estimator",
    "relative_squared_bias": f"squared bias ÷ variance of {USUAL}",
}


def gap_figure(gaps: pd.DataFrame, axis: str, window: int = 3) -> Figure:
    """Plot the gaps of ``gaps.csv`` against steps or instances: a thin line for each run, a thick mean.

    A point of the mean averages a window of validations if every run has ten or more.
    """
    figure, axes = panels(8.0, 6.0)
    ax, trained = axes[0, 0], gaps[gaps["trained"]].sort_values("steps")
    shortest = trained.groupby(["estimator", "seed"]).size().min()
    window = window if shortest >= FEWEST else 1
    for name, width in nested(in_order(trained["estimator"])):
        mine = trained[trained["estimator"] == name]
        draw_runs(ax, mine, axis, "gap", appearance(name), width=width, window=window)
    logarithmic(ax, trained["gap"])
    if axis == "instances":
        ax.xaxis.set_major_formatter(EngFormatter())  # 500 k, 1 M
    ax.set(xlabel=f"training {axis}", ylabel="optimality gap (%)")
    averaged = f" (means of {window} validations)" if window > 1 else ""
    legend_below(figure, ax, title=SEEDS + averaged)
    return figure


def variance_figure(
    measured: pd.DataFrame,
    policies: pd.DataFrame,
    released: pd.DataFrame | None = None,
    released_policies: pd.DataFrame | None = None,
    *,
    trained_with: str,
) -> Figure:
    """Plot the variance of RLOO over those of the estimators, squared biases, and the policies.

    Error bars are two standard errors. Numbers that are not above 0 by as much have no place on a
    logarithmic axis. The tables of a released policy, if given, are points beside the lines.
    """
    figure, axes = panels(8.0, 9.6, rows=3, sharex=True)
    *ratio_axes, last = axes[:, 0]
    for ax, (column, title) in zip(ratio_axes, RATIOS.items(), strict=True):
        _ratio_panel(ax, measured.sort_values("step"), column)
        if released is not None:
            _ratio_panel(ax, released, column, label="_{}")  # a label that legends leave out
        ax.set(title=title, yscale="log")
    steps = sorted(policies["step"])
    labels = {step: f"{step}" for step in steps}
    if released_policies is not None:
        (beyond,) = released_policies["step"]
        labels[beyond] = f"{RELEASED}\n{beyond}"
        policies = pd.concat([policies, released_policies])
    _policy_panel(last, policies.sort_values("step"), most=max(steps))
    last.set_xscale("symlog", linthresh=min((s for s in steps if s), default=1), linscale=0.5)
    last.set_xticks(list(labels), list(labels.values()))
    last.set_xticks([], minor=True)
    last.set_xlabel(f"steps of training with {trained_with}")
    absent = "no point: no variance at all, or not above 0 by two standard errors"
    legend_below(figure, ratio_axes[0], title=absent)
    return figure


def _ratio_panel(ax: Axes, measured: pd.DataFrame, column: str, *, label: str = "{}") -> None:
    for name, width in nested(in_order(measured["estimator"])):
        look = appearance(name)
        if column == "relative_squared_bias" and look.line != "-.":  # it is unbiased
            continue
        error = f"{column}_error"
        mine = measured[(measured["estimator"] == name) & (measured[column] > 2 * measured[error])]
        look = look._replace(label=label.format(look.label))
        draw_errors(ax, mine["step"], mine[column], mine[error], look, width=width)


def _policy_panel(ax: Axes, policies: pd.DataFrame, most: int) -> None:
    """Plot the policies: lines up to a number of steps, and points."""
    other, (black, brown) = ax.twinx(), ("#222222", "#8c564b")
    on_line = policies[policies["step"] <= most]
    ax.plot(on_line["step"], on_line["duplicates"], "-", color=black)
    ax.plot(policies["step"], policies["duplicates"], "o", color=black)
    ax.set_ylabel("share of duplicate tours", color=black)
    ax.set_ylim(0.0, 1.1 * policies["duplicates"].max() or 1.0)
    other.plot(on_line["step"], on_line["log_p"], "--", color=brown)
    other.plot(policies["step"], policies["log_p"], "s", color=brown)
    other.set_ylabel("mean log p of a tour", color=brown)
    other.spines["top"].set_visible(False)


def best_of_k_figure(*tables: pd.DataFrame) -> Figure:
    """Plot the gap of the best of k tours against k, from ``best_of_k.csv``, in a panel for each table."""
    figure, axes = panels(6.4 if len(tables) == 1 else 4.4 * len(tables), 3.8, columns=len(tables))
    for ax, table in zip(axes[0], tables, strict=True):
        _best_of_k_panel(ax, table)
        (nodes,), ks = table["nodes"].unique(), sorted(table["k"].unique())
        ax.set_xscale("log", base=2)
        ax.set_xticks(ks, [str(k) for k in ks])
        ax.set(ylim=(0.0, None), xlabel="k, tours drawn for each instance")
        ax.set_title(f"trained policy, travelling salesman, {nodes} nodes", fontsize=10)
        (reference,) = table["reference"].unique()
        ax.set_ylabel(f"best of k tours: % longer than {SHORTEST[reference]}", fontsize=9)
    return figure


def _best_of_k_panel(ax: Axes, table: pd.DataFrame) -> None:
    gaps = gaps_of(table)
    ratio = gaps["distinct"].iloc[-1] / gaps["sampling"].iloc[-1]
    # The name of the lower line is above its end, or below the line where there is no room between the two.
    lower = (128, (-1, 8)) if ratio < 1 / 4 else (8, (-4, -16))
    for method, (at, beside) in {"sampling": (16, (4, 7)), "distinct": lower}.items():
        look, gap = appearance(method), gaps[method]
        size = {"linewidth": 2.4, "markersize": 5.5}
        ax.plot(gap.index, gap, **(look.line_style | look.point_style | size))
        k = min(at, gap.index.max())
        _write(ax, NAMES[method], (k, gap[k]), beside, look.colour, 11)
    _mark_equal(ax, table)


def _write(
    ax: Axes, text: str, at: tuple[float, float], beside: tuple[int, int], colour: str, font: int
) -> None:
    side = "right" if beside[0] < 0 else "left"
    style: dict[str, Any] = {"textcoords": "offset points", "color": colour, "fontsize": font}
    ax.annotate(text, at, beside, ha=side, **style)


def _mark_equal(ax: Axes, table: pd.DataFrame) -> None:
    """Draw a line from distinct tours to the independent ones that are as good, if they are more.

    The text in the lower left corner, where no curve is, says so, or has the share of duplicates.
    """
    gaps, few, most = gaps_of(table), marked(table), int(table["k"].max())
    gap = gaps["distinct"][few]
    many = equal_number(gap, gaps["sampling"])
    rows = table[table["method"] == "sampling"].set_index("k")
    text = f"{rows['duplicates'][most]:.0f} % of {most} independent tours\nare duplicates"
    if many > few:
        ax.plot([few, min(many, most)], [gap, gap], ":", color="#222222", linewidth=1.4)
        worth = number_text(many, rows.index)
        text = f"{few} distinct tours\nare as good as {worth}\nindependent ones"
    _write(ax, text, (int(table["k"].min()), 0.0), (0, 8), "#222222", 9)
