"""The command ``best-of-figures``: runs that train for the best of m, beside runs that train for the mean."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from matplotlib.figure import Figure

from reproduction.harness.appearance import Appearance
from reproduction.harness.best_of import RULES
from reproduction.harness.drawing import SEEDS, draw_runs, legend_below, logarithmic, nested, panels
from reproduction.harness.errors import UserError, check_one_of_each
from reproduction.harness.folder import open_folder
from reproduction.harness.metrics import read_records
from reproduction.harness.settings import ComparisonSettings, stored_settings
from reproduction.harness.tables import markdown


@dataclass(frozen=True, kw_only=True)
class BestOfFigures(ComparisonSettings):
    """Compare runs that train for the best of m with runs that train for the mean.

    Every run must have been validated with the best of the same m: runs of the command tsp, or of the
    command lm, with --best-of m or with --validate-best-of m.
    """


def best_of_figures(settings: BestOfFigures) -> Path:
    """Write curves.csv, table.csv, table.md and curves.png, and return their folder."""
    runs = [read_run(path) for path in settings.runs]
    curves = pd.concat(runs, ignore_index=True)
    summary = table(curves)
    check_one_of_each((run["objective"][0], int(run["seed"][0])) for run in runs)
    folder = open_folder(settings, "best-of-figures", out=settings.out)
    folder.write_csv("curves.csv", curves.to_dict("records"))
    folder.write_csv("table.csv", summary.to_dict("records"))
    folder.write_text("table.md", markdown(*header_and_lines(summary, curves)))
    folder.write_figure("curves.png", curves_figure(curves))
    print(summary.to_string(index=False))
    print(f"The figures are in {folder.path}")
    return folder.path


class Metrics(NamedTuple):
    """The metrics of an experiment: the mean of sampled outcomes, and the best of m of them."""

    mean: str
    best: str
    unit: str
    log_scale: bool


EXPERIMENTS = (
    Metrics("sampled_gap", "best_of_gap", "optimality gap (%)", log_scale=True),
    Metrics("sampled_solved", "best_of_solved", "share of prompts solved", log_scale=False),
)

LOOKS = {
    "mean": Appearance("the mean, distinct samples", "#008a64", "-", "o"),
    "independent": Appearance("the best of {}, independent samples", "#444444", "-", "o"),
    "distinct": Appearance("the best of {}, distinct samples", "#0072b2", "-", "o"),
}
"""Every objective, and the samples that it is estimated from; m has a place in the label."""


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
    if records[-1]["step"] == 0:
        raise UserError(
            f"{run} has just begun; expected a run that has been validated after steps of training. Wait, "
            "resume it, or leave it out."
        )
    if settings.get("log_success") is not None:
        raise UserError(
            f"{run} was trained for the log of the probability of success; expected runs for the mean "
            "or for the best of m. Compare such runs by lm-figures."
        )
    objective = "mean" if settings.get("best_of") is None else RULES[settings["estimator"]]
    rows = [
        {"objective": objective, "seed": settings["seed"], "steps": record["step"], "m": m}
        | {name: record[name] for name in metrics[:2]}
        for record in records
    ]
    return pd.DataFrame(rows)


def measured(curves: pd.DataFrame) -> Metrics:
    """Return the metrics that the runs were validated by."""
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


def header_and_lines(
    summary: pd.DataFrame, curves: pd.DataFrame
) -> tuple[list[str], list[list[str]]]:
    """Return the cells of the table of :func:`table`, with all seeds of the best of m."""
    metrics, m = measured(curves), int(curves["m"].iloc[0])
    seeds = [name for name in summary.columns if name.startswith(f"{metrics.best}, seed ")]
    lines = []
    for row in summary.to_dict("records"):
        by_seed = ", ".join(f"{row[seed]:.2f}" for seed in seeds)
        means = (f"{row[name]:.2f}" for name in metrics[:2])
        lines.append([LOOKS[row["objective"]].label.format(m), *means, by_seed])
    return ["trained for", "one sample", f"best of {m}", f"best of {m}, each seed"], lines


def curves_figure(curves: pd.DataFrame) -> Figure:
    """Plot both metrics against the steps: a thin line for each run, a thick one for their mean."""
    metrics, m = measured(curves), int(curves["m"].iloc[0])
    figure, axes = panels(8.4, 4.6, columns=2)
    titles = {metrics.mean: "One sample: the mean", metrics.best: f"The best of {m} samples"}
    trained = curves[curves["steps"] > 0]
    for ax, (metric, title) in zip(axes[0], titles.items(), strict=True):
        for objective, width in nested(list(LOOKS)):
            mine, look = trained[trained["objective"] == objective], LOOKS[objective]
            look = look._replace(label=f"trained for {look.label.format(m)}")
            draw_runs(ax, mine, "steps", metric, look, width=width)
        if metrics.log_scale:
            logarithmic(ax, trained[metric])
        ax.set(title=title, xlabel="training steps", ylabel=metrics.unit)
    legend_below(figure, axes[0, 0], title=SEEDS)
    return figure
