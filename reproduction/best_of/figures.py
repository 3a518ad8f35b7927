"""The mean and the best of m during training, for each objective that was trained for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pandas as pd

from reproduction.harness.best_of import RULES
from reproduction.harness.errors import UserError
from reproduction.harness.metrics import read_records
from reproduction.harness.settings import stored_settings
from reproduction.harness.tables import markdown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Metrics(NamedTuple):
    """What an experiment validates: the mean of sampled outcomes, and the best of m of them."""

    mean: str
    best: str
    unit: str
    log_scale: bool


EXPERIMENTS = (
    Metrics("sampled_gap", "best_of_gap", "optimality gap (%)", log_scale=True),
    Metrics("sampled_solved", "best_of_solved", "share of prompts solved", log_scale=False),
)

LOOKS = {"mean": "#008a64", "independent": "#444444", "distinct": "#0072b2"}
"""A colour for every objective."""


def read_run(run: Path) -> pd.DataFrame:
    """Read the validations of a run: objective, seed, steps, m, and the mean and the best of m."""
    settings = stored_settings(run)
    m = settings.get("best_of") or settings.get("validate_best_of")
    records = list(read_records(run, "valid"))
    metrics = next((x for x in EXPERIMENTS if records and x.best in records[0]), None)
    if m is None or metrics is None:
        raise UserError(
            f"{run} was not validated with the best of m; expected a run of the command tsp or lm "
            "with --best-of or --validate-best-of. Train it anew with one of them."
        )
    objective = "mean" if settings.get("best_of") is None else RULES[settings["estimator"]]
    rows = [
        {"objective": objective, "seed": settings["seed"], "steps": record["step"], "m": m}
        | {name: record[name] for name in metrics[:2]}
        for record in records
    ]
    return pd.DataFrame(rows)


def measured(curves: pd.DataFrame) -> Metrics:
    """Return what the runs were validated by."""
    found = [x for x in EXPERIMENTS if x.best in curves]
    if len(found) != 1 or curves["m"].nunique() != 1 or curves[found[0].best].isna().any():
        raise UserError(
            "the runs are of different experiments, or of different m; expected the same. Compare "
            "them apart."
        )
    return found[0]


def table(curves: pd.DataFrame) -> pd.DataFrame:
    """Average over the last third of the validations: for each objective, the seeds and their mean."""
    metrics = measured(curves)
    late = curves[curves["steps"] > curves["steps"].max() * 2 / 3]
    parts = []
    for name in metrics[:2]:
        part = late.groupby(["objective", "seed"])[name].mean().unstack()
        part.columns = [f"{name}, seed {seed}" for seed in part.columns]
        part.insert(0, name, part.mean(axis=1))
        parts.append(part)
    order = [name for name in LOOKS if name in parts[0].index]
    return pd.concat(parts, axis=1).loc[order].round(4).reset_index()


def markdown_table(summary: pd.DataFrame, curves: pd.DataFrame) -> str:
    """Return the table of :func:`table` in Markdown, with all seeds of the best of m."""
    metrics, m = measured(curves), int(curves["m"].iloc[0])
    seeds = [name for name in summary.columns if name.startswith(f"{metrics.best}, seed ")]
    numbers = ", ".join(name.rpartition(" ")[-1] for name in seeds)
    lines = []
    for row in summary.to_dict("records"):
        by_seed = ", ".join(f"{row[seed]:.2f}" for seed in seeds)
        means = (f"{row[name]:.2f}" for name in metrics[:2])
        lines.append([labels(m)[row["objective"]], *means, by_seed])
    header = ["trained for", "one sample", f"best of {m}", f"best of {m}, seeds {numbers}"]
    return markdown(header, lines)


def labels(m: int) -> dict[str, str]:
    """Say what each objective is, and which samples estimate it."""
    return {
        "mean": "the mean, distinct samples",
        "independent": f"the best of {m}, independent samples",
        "distinct": f"the best of {m}, distinct samples",
    }


def figure(curves: pd.DataFrame) -> Figure:
    """Plot both metrics against the steps: a thin line for each run, a thick one for their mean."""
    from matplotlib.figure import Figure

    metrics, m = measured(curves), int(curves["m"].iloc[0])
    drawn = Figure(figsize=(10, 4), layout="constrained")
    left, right = drawn.subplots(1, 2)
    _panel(left, curves, metrics, metrics.mean, m)
    _panel(right, curves, metrics, metrics.best, m)
    left.set_title("One sample: the mean")
    right.set_title(f"The best of {m} samples")
    drawn.legend(
        *left.get_legend_handles_labels(), title="trained for", loc="outside lower center", ncols=3
    )
    return drawn


def _panel(ax: Axes, curves: pd.DataFrame, metrics: Metrics, name: str, m: int) -> None:
    for objective, colour in LOOKS.items():
        runs = curves[(curves["objective"] == objective) & (curves["steps"] > 0)]
        if runs.empty:
            continue
        by_seed = runs.pivot(index="steps", columns="seed", values=name)
        ax.plot(by_seed.index, by_seed, color=colour, alpha=0.4, linewidth=0.8)
        ax.plot(by_seed.mean(axis=1), color=colour, linewidth=2, label=labels(m)[objective])
    if metrics.log_scale:
        ax.set_yscale("log")
        ax.yaxis.set_major_formatter("{x:g}")
        ax.yaxis.set_minor_formatter("{x:g}")
    ax.set(xlabel="training steps", ylabel=metrics.unit)
    ax.grid(alpha=0.25)
    ax.spines[["top", "right"]].set_visible(False)
