"""The command ``bernoulli``: Figure 1, its Monte Carlo check, and the optimisation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import torch

from reproduction.bernoulli.figures import trajectory_figure, variance_figure
from reproduction.bernoulli.task import exact_variances, monte_carlo, trajectories
from reproduction.harness.errors import UserError, check_at_least, check_seed
from reproduction.harness.folder import open_folder


@dataclass(frozen=True, kw_only=True)
class BernoulliSettings:
    """Figure 1: exact variances of gradient estimates on the Bernoulli toy problem.

    Writes variances.csv, monte_carlo.csv, figure1.png and .svg, trajectory.csv, trajectory.png and
    .svg, and settings.json into a new folder.

    Attributes:
        repeats: number of gradients behind each number of the Monte Carlo check; 0 for no check.
        runs: number of runs of the optimisation that are averaged.
        steps: number of steps of the optimisation.
        seed: seed of the Monte Carlo check and of the optimisation.
        out: folder to write to; by default a new one in runs/.
    """

    repeats: int = 10_000
    runs: int = 20
    steps: int = 1000
    seed: int = 0
    out: Path | None = None

    def __post_init__(self) -> None:
        check_seed(self.seed)
        check_at_least(self, 2, "runs")
        check_at_least(self, 1, "steps")
        if self.repeats < 0 or self.repeats == 1:
            raise UserError(f"repeats is {self.repeats}; expected 0, or at least 2.")


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
