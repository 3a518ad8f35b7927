"""The limits at which drawing stops."""

from __future__ import annotations

import math
from dataclasses import dataclass

from swor.checks import check_count


@dataclass(frozen=True)
class Limits:
    """The limits at which drawing stops; the first that is reached counts, and None means no limit.

    Attributes:
        coverage: the probability mass of all draws.
        standard_error: of the estimated expected cost.
        at_least: the number of runs before a standard error is computed.
        at_most: the number of runs.
    """

    coverage: float | None
    standard_error: float | None
    at_least: int
    at_most: int | None

    def __post_init__(self) -> None:
        if self.coverage is None and self.standard_error is None and self.at_most is None:
            raise ValueError(
                "draw_until was given no limit; expected coverage, standard_error or at_most."
            )
        if self.coverage is not None and not 0.0 < self.coverage <= 1.0:
            raise ValueError(
                f"coverage is {self.coverage}; expected a probability mass, above 0 and at most 1."
            )
        if self.standard_error is not None and not self.standard_error > 0.0:
            raise ValueError(f"standard_error is {self.standard_error}; expected more than 0.")
        check_count("at_least", self.at_least)
        if self.at_least < 2:
            raise ValueError("at_least is 1; expected 2 or more runs, to tell a standard error.")
        if self.at_most is not None:
            check_count("at_most", self.at_most)

    def allow(self, k: int, log_rest: float) -> bool:
        """Return whether to continue, given the number of runs and the log of the mass that is left.

        The result is False if no mass is left.
        """
        if self.at_most is not None and k >= self.at_most:
            return False
        if self.coverage is None or self.coverage == 1.0:
            return log_rest > -math.inf
        return log_rest > math.log1p(-self.coverage)

    def next_check(self, k: int) -> int:
        """Return the number of runs at which to compute the next standard error.

        Its computation takes a time that is quadratic in the number of runs, so the interval grows with it.
        """
        return k + 1 + k // 16
