"""The figures of the experiment with pronunciations: what was measured, and training."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reproduction.harness.appearance import Appearance
from reproduction.harness.drawing import draw_errors, draw_runs, panels
from reproduction.pronunciation.tables import METHODS, METRICS, gains

INDEPENDENT = Appearance("independent", "#444444", "-", "s")
DISTINCT = Appearance("distinct", "#0072b2", "-", "o")
DUPLICATES = Appearance("duplicates among independent", "#b37700", "-", "^")
COLOURS = {"mean": "#0072b2", "best_of": "#008a64", "log_success": "#d55e00"}
TICKS = [1, 2, 5, 10, 20]


def measured_figure(
    groups: pd.DataFrame,
    variance: pd.DataFrame,
    passes: pd.DataFrame,
    curve: pd.DataFrame | None = None,
) -> Figure:
    """Plot duplicates and signal against k, gains against duplicates, and standard errors of pass@m.

    The curve is the table of the page "When does it pay?", for single categorical variables.
    """
    figure, axes = panels(10.5, 3.9, columns=3)
    _groups_panel(axes[0, 0], groups.sort_values("k"))
    _gain_panel(axes[0, 1], gains(variance), curve)
    _pass_panel(axes[0, 2], passes)
    return figure


def _groups_panel(ax: Axes, groups: pd.DataFrame) -> None:
    looks = {"duplicates": DUPLICATES, "no_signal_independent": INDEPENDENT}
    for column, look in (looks | {"no_signal_distinct": DISTINCT}).items():
        title = look.label if column == "duplicates" else f"no signal, {look.label} samples"
        named = look._replace(label=title)
        draw_errors(ax, groups["k"], groups[column], groups[f"{column}_error"], named)
    ax.set_xscale("log", base=2)
    ax.set_xticks(groups["k"], [str(k) for k in groups["k"]])
    ax.set(xlabel="samples of a word, k", ylabel="share of samples or of words (%)", ylim=(0, 100))
    ax.set_title("What k samples of a word waste", fontsize=10)
    ax.legend(frameon=False, fontsize=8)


def _gain_panel(ax: Axes, gain: pd.DataFrame, curve: pd.DataFrame | None) -> None:
    draw_errors(ax, gain["duplicates"], gain["gain"], gain["gain_error"], DISTINCT)
    for k, row in gain.iterrows():
        _name(ax, f"k = {k}", (row["duplicates"], row["gain"]), (6, -11), "black")
    if curve is not None:
        for _, mine in curve.groupby("k"):
            ax.plot(100 * mine["duplicates"], mine["gain_50"], "--", color="#999999", linewidth=1.0)
        _name(
            ax,
            'dashed: medians of\nsingle variables,\n"When does it pay?"',
            (3, 16),
            (0, 0),
            "#777777",
        )
    ax.set(
        xlabel="duplicates among independent samples (%)",
        yscale="log",
        xlim=(0, 90),
        ylim=(0.9, 30),
    )
    ax.set_ylabel("variance of RLOO ÷ unordered set")
    ax.set_yticks(TICKS, [str(tick) for tick in TICKS])
    ax.minorticks_off()
    ax.set_title("Gradient of all parameters", fontsize=10)


def _name(
    ax: Axes, text: str, at: tuple[float, float], beside: tuple[int, int], colour: str
) -> None:
    ax.annotate(text, at, beside, textcoords="offset points", fontsize=8, color=colour)


def _pass_panel(ax: Axes, passes: pd.DataFrame) -> None:
    (k,) = passes["k"].unique()
    for name, look in (("rloo", INDEPENDENT), ("unordered_set", DISTINCT)):
        rows = passes[passes["samples"] == name].sort_values("m")
        style = look.line_style | look.point_style
        ax.plot(rows["m"], 100 * rows["spread"], label=f"{k} {look.label} samples", **style)
    orders = sorted(passes["m"].unique())
    ax.set_xscale("log", base=2)
    ax.set_xticks(orders, [str(m) for m in orders])
    ax.set(xlabel="m", ylabel="standard error of pass@m (points)", ylim=(0, None))
    words = passes["words"].iloc[0]
    ax.set_title(f"Evaluation of pass@m on {words} words", fontsize=10)
    ax.legend(frameon=False, fontsize=9)


def curves_figure(points: pd.DataFrame) -> Figure:
    """Plot the metrics of held-out words against the steps: thin lines for runs, thick ones for means.

    The legend is in the last of six panels.
    """
    figure, axes = panels(9.6, 5.6, rows=2, columns=3)
    *plots, last = axes.flat
    for ax, (metric, title) in zip(plots, METRICS.items(), strict=True):
        for name, label in METHODS.items():
            mine = points[points["method"] == name]
            if len(mine):
                percent = mine.assign(value=100 * mine[metric])
                draw_runs(ax, percent, "step", "value", _look(name, label))
        ax.set(xlabel="steps", ylabel="held-out words right (%)")
        ax.set_title(title, fontsize=10)
    last.axis("off")
    last.legend(*plots[0].get_legend_handles_labels(), loc="center", frameon=False)
    return figure


def _look(name: str, label: str) -> Appearance:
    """The colour says the objective; dashed lines are independent samples."""
    estimator, objective = name.split()
    if name == "rloo mean":
        return INDEPENDENT._replace(label=label)
    return Appearance(label, COLOURS[objective], "--" if estimator == "rloo" else "-", "o")
