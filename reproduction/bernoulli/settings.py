"""The settings of the Bernoulli experiment."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from reproduction.harness.errors import UserError, check_at_least, check_seed


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
        check_at_least(self, 0, "repeats")
        if self.repeats == 1:
            raise UserError(f"repeats is {self.repeats}; expected 0, or at least 2.")
