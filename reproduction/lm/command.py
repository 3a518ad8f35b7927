"""The commands ``lm`` and ``lm-figures``: train a small language model by a reward, and plot the runs."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from reproduction.harness.errors import check_one_of_each
from reproduction.harness.folder import open_folder
from reproduction.harness.training import run
from reproduction.lm.figures import (
    curves_figure,
    read_points,
    read_reached,
    steps_table,
    summary_table,
)
from reproduction.lm.settings import LMFigures, LMSettings


def lm(settings: LMSettings) -> Path:
    """Train the language model, and return the folder of the run."""
    from reproduction.lm.task import SortingTask  # needs transformers, which the figures do not

    name = f"lm-{settings.estimator}"
    return run(lambda: SortingTask(settings), settings, command="lm", name=name)


def lm_figures(settings: LMFigures) -> Path:
    """Plot runs, and return the folder with curves.csv, curves.png, steps.csv, steps.md and summary.md."""
    metric = "solved" if settings.measure == "greedy" else "right"
    reached = [read_reached(path, settings.target, metric) for path in settings.runs]
    check_one_of_each((each.estimator, each.seed) for each in reached)
    points = [point for path in settings.runs for point in read_points(path)]
    folder = open_folder(settings, "lm-figures", out=settings.out)
    folder.write_csv("steps.csv", [each._asdict() for each in reached])
    folder.write_text("steps.md", steps_table(reached, settings.target, settings.measure))
    folder.write_text("summary.md", summary_table(settings.runs))
    folder.write_csv("curves.csv", points)
    folder.write_figure("curves.png", curves_figure(pd.DataFrame(points)))
    print(f"The figures are in {folder.path}")
    return folder.path
