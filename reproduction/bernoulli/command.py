"""The command ``bernoulli``: Figure 1, its Monte Carlo check, and the optimisation."""

from __future__ import annotations

import time
from pathlib import Path

import pandas as pd
import torch

from reproduction.bernoulli.figures import trajectory_figure, variance_figure
from reproduction.bernoulli.settings import BernoulliSettings
from reproduction.bernoulli.task import exact_variances, monte_carlo, trajectories
from reproduction.harness.folder import open_folder


def bernoulli(settings: BernoulliSettings) -> Path:
    """Compute everything, and return the new folder that it was written to.

    Args:
        settings: of the command.
    """
    began = time.perf_counter()
    folder = open_folder(settings, "bernoulli", out=settings.out)
    points = exact_variances(settings.eta)
    folder.write_csv("variances.csv", [point._asdict() for point in points])
    if settings.repeats:
        generator = torch.Generator().manual_seed(settings.seed)
        checks = [monte_carlo(point, settings.repeats, generator) for point in points]
        folder.write_csv("monte_carlo.csv", [check._asdict() for check in checks])
    path = trajectories(settings)
    folder.write_csv("trajectory.csv", [point._asdict() for point in path])
    figures = {
        "figure1": variance_figure(pd.DataFrame(points)),
        "trajectory": trajectory_figure(pd.DataFrame(path), settings.k),
    }
    for name, figure in figures.items():
        for suffix in (".png", ".svg"):  # to look at, and to print
            folder.write_figure(name + suffix, figure)
    seconds = time.perf_counter() - began
    print(f"{folder.path}: figure1.png, variances.csv and more, {seconds:.0f} s")
    return folder.path
