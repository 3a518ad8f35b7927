"""``swor tsp-figures``: the gap against training steps and instances, as in Figure 3."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import tyro
from matplotlib.ticker import LogLocator, NullFormatter

from swor.experiments.errors import UserError
from swor.experiments.folder import create, unused
from swor.experiments.records import read_records
from swor.experiments.tsp.command import read_settings
from swor.experiments.tsp.drawing import save
from swor.experiments.tsp.estimators import TOUR_ESTIMATORS

COLORS = dict(
    zip(
        TOUR_ESTIMATORS,
        ("#56b4e9", "#7f7f7f", "#d55e00", "#cc79a7", "#0072b2", "#f0c000", "#009e73", "#000000"),
        strict=True,
    )
)


@dataclass(frozen=True, kw_only=True)
class TspFigures:
    """Draw the optimality gap of runs against training steps and against instances."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """folders of runs of `swor tsp`, all with the same number of nodes"""
    smooth: int = 3
    """validations that a point of a dark curve averages; 1 for none"""
    out: Path | None = None
    """the folder to write to; a new one in runs/"""


def tsp_figures(command: TspFigures) -> Path:
    """Write gaps.csv, ranking.csv and the figures, and return their folder.

    Args:
        command: what to do.
    """
    if not command.runs or command.smooth < 1:
        raise UserError(
            f"there are {len(command.runs)} runs and smooth is {command.smooth}; expected at least "
            "one run, and to smooth over at least one validation."
        )
    gaps = pd.concat([read_run(run) for run in command.runs], ignore_index=True)
    if gaps["nodes"].nunique() > 1:
        raise UserError(
            f"the runs have {sorted(gaps['nodes'].unique())} nodes; expected the same number. Draw "
            "a figure for each."
        )
    folder = create(command.out or unused(Path("runs"), "tsp-figures"))
    folder.write_settings(command)
    folder.write_csv("gaps.csv", gaps.to_dict("records"))
    folder.write_csv("ranking.csv", ranking(gaps).to_dict("records"))
    for axis in ("steps", "instances"):
        save(folder, draw(gaps, axis, command.smooth), f"gap-{axis}.png")
    print(ranking(gaps).to_string(index=False))
    print(f"The figures are in {folder.path}")
    return folder.path


def read_run(run: Path) -> pd.DataFrame:
    """The validation gaps of a run, a row per validation."""
    settings = read_settings(run)
    rows = [
        {
            "nodes": settings.nodes,
            "estimator": settings.estimator,
            "seed": settings.seed,
            "steps": record["step"],
            "instances": record["step"] * settings.batch_size,
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
    single validations go up and down more than estimators differ.
    """
    runs = gaps.groupby(["estimator", "seed"])
    common = runs["steps"].max().min()
    late = gaps[(gaps["steps"] > common / 2) & (gaps["steps"] <= common)]
    table = late.groupby(["estimator", "seed"])["gap"].median().unstack().add_prefix("seed ")
    table.insert(0, "gap", table.mean(axis=1))
    table.insert(0, "steps", common)
    return table.sort_values("gap").round(4).reset_index()


def draw(gaps: pd.DataFrame, axis: str, smooth: int) -> Any:
    """Light raw and dark smoothed curves; dotted where the estimator is biased."""
    figure, axes = plt.subplots(figsize=(7.2, 4.2), layout="constrained")
    for name, estimator in TOUR_ESTIMATORS.items():
        runs = gaps[(gaps["estimator"] == name) & (gaps["steps"] > 0)]
        if runs.empty:
            continue
        color, style = COLORS[name], "-" if estimator.unbiased else ":"
        raw = runs.pivot(index=axis, columns="seed", values="gap")
        axes.plot(raw.index, raw, style, color=color, alpha=0.25, linewidth=1)
        dark = smoothed(raw, smooth).mean(axis=1)
        axes.plot(dark.index, dark, style, color=color, linewidth=2, label=estimator.label)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set(xlabel=f"training {axis}", ylabel="optimality gap (%)")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def smoothed(curves: pd.DataFrame, window: int) -> pd.DataFrame:
    """Geometric means over a window around every point, as the axis is logarithmic."""
    logs = np.log(curves).rolling(window, center=True, min_periods=1).mean()
    return np.exp(logs).where(curves.notna())
