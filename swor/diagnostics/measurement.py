"""What was measured of an estimator: its bias, its variance and its cost."""

from __future__ import annotations

import math
from dataclasses import dataclass

from swor.diagnostics.variance import GradientMoments

BIASED_FROM = 6.0  # see swor.diagnostics.bias


@dataclass(frozen=True)
class Measurement:
    """The measurements of an estimator at one k.

    Attributes:
        k: the number of samples.
        evaluations: the number of evaluations of f for one estimate.
        z: the z-score of its bias; NaN if there was no gradient to compare with.
        moments: of its gradient.
        seconds: the time of one estimate and its gradient.
        eps: the rounding error of the gradients.
    """

    k: int
    evaluations: int
    z: float
    moments: GradientMoments
    seconds: float
    eps: float

    @property
    def log_variance(self) -> float:
        """The log of the trace of the covariance of the gradient; −inf if the trace is rounding error."""
        m = self.moments
        rounding = (256 * self.eps) ** 2 * float((m.mean.square() + m.variance).sum())
        trace = float(m.trace)
        return -math.inf if trace <= rounding else math.log(trace)

    @property
    def log_variance_error(self) -> float:
        """The standard error of ``log_variance``."""
        constant = self.log_variance == -math.inf
        return 0.0 if constant else float(self.moments.trace_error / self.moments.trace)


@dataclass(frozen=True)
class Row:
    """An estimator, measured at equal k and at equal evaluations.

    Attributes:
        name: of the estimator.
        unbiased: as registered; None if it is not registered.
        at_k: measured at equal k.
        at_evaluations: measured at equal evaluations; None if even the smallest k needs more.
    """

    name: str
    unbiased: bool | None
    at_k: Measurement
    at_evaluations: Measurement | None

    @property
    def looks_biased(self) -> bool:
        """Whether it is registered as biased, or a bias was measured."""
        return self.unbiased is False or self.at_k.z > BIASED_FROM
