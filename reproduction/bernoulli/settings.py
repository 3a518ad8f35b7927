"""The settings of the Bernoulli experiment."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from reproduction.harness.errors import UserError, check_at_least, check_positive, check_seed


@dataclass(frozen=True, kw_only=True)
class BernoulliSettings:
    """Figure 1: exact variances of gradient estimates on the Bernoulli toy problem.

    Writes variances.csv, monte_carlo.csv, figure1.png and .svg, trajectory.csv, trajectory.png and
    .svg, and settings.json into a new folder.

    Attributes:
        eta: logits of the bits; the figure has one panel for each.
        repeats: number of gradients behind each number of the Monte Carlo check; 0 for no check.
        runs: number of runs of the optimisation that are averaged.
        steps: number of steps of the optimisation.
        learning_rate: of plain gradient descent.
        start: where the optimisation starts.
        k: number of samples of an estimate in the optimisation.
        seed: seed of the Monte Carlo check and of the optimisation.
        out: folder to write to; by default a new one in runs/.
    """

    eta: tuple[float, ...] = (0.0, -4.0)
    repeats: int = 10_000
    runs: int = 20
    steps: int = 1000
    learning_rate: float = 1.0
    start: float = -4.0
    k: int = 3
    seed: int = 0
    out: Path | None = None

    def __post_init__(self) -> None:
        check_seed(self.seed)
        check_at_least(self, 2, "runs")
        check_at_least(self, 1, "steps")
        check_positive(self, "learning_rate")
        if not self.eta or not all(math.isfinite(x) and abs(x) <= 15.0 for x in self.eta):
            raise UserError(
                f"eta is {self.eta}; expected some numbers from -15 to 15, such as 0 -4."
            )
        if len(set(self.eta)) < len(self.eta):
            raise UserError(f"eta is {self.eta}; expected each number once.")
        if self.repeats < 0 or self.repeats == 1:
            raise UserError(f"repeats is {self.repeats}; expected 0, or at least 2.")
        if not 1 <= self.k <= 8:
            raise UserError(f"k is {self.k}; expected 1 to 8, since there are 8 outcomes.")
        if not math.isfinite(self.start) or self.learning_rate == math.inf:
            raise UserError(
                f"start is {self.start} and learning_rate {self.learning_rate}; expected finite "
                "numbers."
            )
