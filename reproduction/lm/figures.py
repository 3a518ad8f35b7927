"""Figures that compare the estimators of language model runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, NamedTuple

from reproduction.harness.appearance import appearance
from reproduction.harness.metrics import read_records
from reproduction.harness.settings import read_settings
from reproduction.lm.settings import LMSettings

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANELS = {
    ("train", "reward"): "Mean reward in training",
    ("valid", "solved"): "Share of prompts solved, greedy",
    ("train", "duplicates"): "Share of duplicate completions",
    ("train", "no_signal"): "Share of groups without signal",
    ("train", "effective_sample_size"): "Effective sample size of a group",
    ("train", "mass_covered"): "Probability mass covered by a group",
}


class Point(NamedTuple):
    """A metric of a run at a step."""

    estimator: str
    seed: int
    split: str
    metric: str
    step: int
    value: float


def read_points(run: Path) -> list[Point]:
    """Read the logged metrics of a run that the panels show."""
    trained = read_settings(LMSettings, run)
    return [
        Point(trained.estimator, trained.seed, split, metric, record["step"], record[metric])
        for split, metric in PANELS
        for record in read_records(run, split)
        if metric in record
    ]


def curves_figure(points: Sequence[Point]) -> Figure:
    """Plot each metric in a panel of its own."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 6.5), layout="constrained")
    axes = figure.subplots(2, 3).flat
    for ax, ((split, metric), title) in zip(axes, PANELS.items(), strict=True):
        _panel(ax, [p for p in points if (p.split, p.metric) == (split, metric)])
        ax.set(title=title, xlabel="steps")
        ax.grid(alpha=0.3)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2)
    return figure


def _panel(ax: Axes, points: Sequence[Point]) -> None:
    """Plot the runs of every estimator, and their mean."""
    for estimator in sorted({p.estimator for p in points}, reverse=True):
        by_seed: dict[int, list[Point]] = defaultdict(list)
        by_step: dict[int, list[float]] = defaultdict(list)
        for p in points:
            if p.estimator == estimator:
                by_seed[p.seed].append(p)
                by_step[p.step].append(p.value)
        look = appearance(estimator)
        for run in by_seed.values():
            steps, values = [p.step for p in run], [p.value for p in run]
            ax.plot(steps, values, color=look.colour, lw=0.6, alpha=0.5)
        means = {step: mean(values) for step, values in sorted(by_step.items())}
        ax.plot(list(means), list(means.values()), color=look.colour, lw=2, label=look.label)
