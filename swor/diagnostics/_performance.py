"""What was measured of an estimator: its bias, its variance, its evaluations and its time."""

from __future__ import annotations

import math
from dataclasses import dataclass

from swor.diagnostics._bias import SquaredBias
from swor.diagnostics._streaming import GradientMoments


@dataclass(frozen=True)
class Performance:
    """The bias, the variance, the evaluations and the time of an estimator at one k.

    Attributes:
        k: the number of samples.
        evaluations: the number of evaluations of f for one estimate.
        squared_bias: of its gradient, with its standard error; NaN if it was not tested.
        moments: of its gradient.
        seconds: the time of one estimate and its gradient.
        rounding: the variance that rounding alone may cause.
        reliable: whether enough draws decide the variance; if not, neither it nor the bias is known.
        infinite: whether the variance is known to be infinite, so that no number of draws is enough.
    """

    k: int
    evaluations: int
    squared_bias: SquaredBias
    moments: GradientMoments
    seconds: float
    rounding: float
    reliable: bool
    infinite: bool

    @property
    def known(self) -> bool:
        """Whether the variance is known, be it infinite."""
        return self.reliable or self.infinite

    @property
    def bias_found(self) -> bool:
        """Whether a bias was measured, beyond its standard error and beyond rounding."""
        return self.squared_bias.exceeds(self.rounding)

    @property
    def log_variance(self) -> float:
        """The log of the trace of the covariance of the gradient; −inf if the trace is below rounding."""
        if self.infinite:
            return math.inf
        trace = float(self.moments.trace)
        return -math.inf if trace <= self.rounding else math.log(trace)

    @property
    def log_variance_error(self) -> float:
        """The standard error of ``log_variance``; 0 if it is infinite."""
        return (
            0.0
            if math.isinf(self.log_variance)
            else float(self.moments.trace_error / self.moments.trace)
        )


@dataclass(frozen=True)
class ComparedEstimator:
    """An estimator, measured at equal k and at equal evaluations.

    Attributes:
        name: of the estimator.
        unbiased: as declared; None if nothing is declared.
        proven: whether it is an entry of ESTIMATORS, so that the tests of the library prove what it declares.
        at_k: measured at equal k.
        at_evaluations: measured at equal evaluations; None if even k = 1 needs more.
    """

    name: str
    unbiased: bool | None
    proven: bool
    at_k: Performance
    at_evaluations: Performance | None

    @property
    def looks_biased(self) -> bool:
        """Whether it is declared to be biased, or a bias was measured. A proof is not overruled."""
        if self.unbiased is False:
            return True
        measured = [m for m in (self.at_k, self.at_evaluations) if m is not None]
        return not self.proven and any(m.bias_found for m in measured)
