"""``swor bernoulli``: Figure 1, its Monte Carlo check, and the optimisation."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from swor.experiments.bernoulli.figures import figure1, trajectory_figure
from swor.experiments.bernoulli.settings import Settings
from swor.experiments.bernoulli.trajectory import trajectories
from swor.experiments.bernoulli.variances import Variance, exact_variances, monte_carlo
from swor.experiments.folder import RunFolder, create, unused

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def bernoulli(settings: Settings) -> None:
    """Compute everything, and write it into a new folder."""
    began = time.perf_counter()
    folder = create(settings.out or unused(Path("runs"), "bernoulli"))
    folder.write_settings(settings)
    points = exact_variances(settings.eta)
    folder.write_csv("variances.csv", [point._asdict() for point in points])
    save(folder, "figure1", figure1(points))
    if settings.repeats:
        check(folder, points, settings)
    path = trajectories(settings)
    folder.write_csv("trajectory.csv", [point._asdict() for point in path])
    save(folder, "trajectory", trajectory_figure(path, settings.k))
    print(
        f"{folder.path}: figure1.png, variances.csv and more, {time.perf_counter() - began:.0f} s"
    )


def check(folder: RunFolder, points: Iterable[Variance], settings: Settings) -> None:
    """Sample gradients, and set their variance beside the exact one."""
    generator = torch.Generator().manual_seed(settings.seed)
    checks = [monte_carlo(point, settings.repeats, generator) for point in points]
    folder.write_csv("monte_carlo.csv", [check._asdict() for check in checks])


def save(folder: RunFolder, name: str, figure: Figure) -> None:
    """As PNG to look at and as SVG to print."""
    for suffix in (".png", ".svg"):
        with folder.replacing(name + suffix) as draft:
            figure.savefig(draft, dpi=200)
