"""Settings of the Bernoulli experiment."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Settings:
    """Figure 1: exact variances of gradient estimates on the Bernoulli toy problem.

    Writes variances.csv, monte_carlo.csv, figure1.png and .svg, trajectory.csv, trajectory.png and
    .svg, and settings.json into a new folder.
    """

    eta: tuple[float, ...] = (0.0, -4.0)
    """Logits of the bits: one panel of the figure for each."""

    out: Path | None = None
    """A new folder for the results; by default the first free runs/bernoulli-N."""

    repeats: int = 10_000
    """Gradients behind each number of the Monte Carlo check; 0 leaves the check out."""

    runs: int = 20
    """Runs of the optimisation that are averaged."""

    steps: int = 1000
    """Steps of the optimisation."""

    learning_rate: float = 1.0
    """Of plain gradient descent."""

    start: float = -4.0
    """Where the optimisation starts."""

    k: int = 3
    """Samples of an estimate in the optimisation."""

    seed: int = 0
    """Of the Monte Carlo check and of the optimisation."""

    def __post_init__(self) -> None:
        if not self.eta or not all(math.isfinite(x) and abs(x) <= 15.0 for x in self.eta):
            raise ValueError(
                f"eta is {self.eta}; expected some numbers from -15 to 15, such as 0 -4."
            )
        if len(set(self.eta)) < len(self.eta):
            raise ValueError(f"eta is {self.eta}; expected each number once.")
        if self.repeats < 0 or self.repeats == 1:
            raise ValueError(f"repeats is {self.repeats}; expected 0, or at least 2.")
        if self.runs < 2 or self.steps < 1:
            raise ValueError(
                f"runs is {self.runs} and steps {self.steps}; expected at least 2 runs, 1 step."
            )
        if not 1 <= self.k <= 8:
            raise ValueError(f"k is {self.k}; expected 1 to 8, as there are 8 outcomes.")
        if not (math.isfinite(self.start) and 0.0 < self.learning_rate < math.inf):
            raise ValueError(
                f"start is {self.start} and learning_rate {self.learning_rate}; expected a number, "
                "and a positive one."
            )
