"""The figure that compares the estimators of language model runs."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from reproduction.harness.appearance import appearance, in_order
from reproduction.harness.drawing import draw_runs, legend_below, panels
from reproduction.harness.metrics import read_records
from reproduction.harness.settings import read_settings
from reproduction.lm.settings import LMSettings

PANELS = {
    ("train", "reward"): "Mean reward in training",
    ("valid", "solved"): "Share of prompts solved, greedy",
    ("train", "duplicates"): "Share of duplicate completions",
    ("train", "no_signal"): "Share of groups without signal",
    ("train", "effective_sample_size"): "Effective sample size of a group",
    ("train", "mass_covered"): "Probability mass covered by a group",
}
"""The title of the panel of every metric of a split."""


def read_points(run: Path) -> list[dict[str, object]]:
    """Read the logged metrics of a run that the panels show, as rows of ``curves.csv``."""
    trained = read_settings(LMSettings, run)
    about = {"estimator": trained.estimator, "seed": trained.seed}
    return [
        about | {"split": split, "metric": metric, "step": record["step"], "value": record[metric]}
        for split, metric in PANELS
        for record in read_records(run, split)
        if metric in record
    ]


def curves_figure(points: pd.DataFrame) -> Figure:
    """Plot each metric in a panel of its own: a thin line for each run, a thick one for their mean."""
    figure, axes = panels(12.0, 6.8, 2, 3)
    for ax, ((split, metric), title) in zip(axes.flat, PANELS.items(), strict=True):
        shown = points[(points["split"] == split) & (points["metric"] == metric)]
        for name in in_order(shown["estimator"]):
            draw_runs(ax, shown[shown["estimator"] == name], "step", "value", appearance(name))
        ax.set(title=title, xlabel="steps")
    legend_below(figure, axes[0, 0])
    return figure
