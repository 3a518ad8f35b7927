"""The command ``bernoulli``: Figure 1, its Monte Carlo check, and the optimisation."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import torch

from reproduction.bernoulli.figures import trajectory_figure, variance_figure
from reproduction.bernoulli.settings import BernoulliSettings
from reproduction.bernoulli.task import exact_variances, monte_carlo, trajectories
from reproduction.harness.folder import open_folder


def bernoulli(settings: BernoulliSettings) -> Path:
    """Compute everything, and return the new folder that it was written to."""
    folder = open_folder(settings, "bernoulli", out=settings.out)
    points = exact_variances()
    folder.write_csv("variances.csv", [point._asdict() for point in points])
    if settings.repeats:
        generator = torch.Generator().manual_seed(settings.seed)
        checks = [monte_carlo(point, settings.repeats, generator) for point in points]
        folder.write_csv("monte_carlo.csv", [check._asdict() for check in checks])
    path = trajectories(settings.runs, settings.steps, settings.seed)
    folder.write_csv("trajectory.csv", path.to_dict("records"))
    for suffix in (".png", ".svg"):  # to look at, and to print
        folder.write_figure(f"figure1{suffix}", variance_figure(pd.DataFrame(points)))
        folder.write_figure(f"trajectory{suffix}", trajectory_figure(path))
    print(f"Figure 1 is {folder.path / 'figure1.png'}, its table {folder.path / 'variances.csv'}")
    return folder.path
