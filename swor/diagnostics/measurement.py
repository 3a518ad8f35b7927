"""What was measured of an estimator: its bias, its variance and its cost."""

from __future__ import annotations

import math
from dataclasses import dataclass

from swor.diagnostics.variance import GradientMoments

BIASED_FROM = 6.0  # see swor.diagnostics.bias


@dataclass(frozen=True)
class Measurement:
    """An estimator at one k.

    Attributes:
        k: the number of samples.
        evaluations: of f, for one estimate.
        z: the z-score of its bias; NaN where there was nothing to compare with.
        moments: of its gradient.
        seconds: for one estimate and its gradient.
        eps: rounding of the gradients.
    """

    k: int
    evaluations: int
    z: float
    moments: GradientMoments
    seconds: float
    eps: float

    @property
    def log_variance(self) -> float:
        """Of the trace of the covariance of the gradient; −inf if that is below rounding."""
        m = self.moments
        rounding = (256 * self.eps) ** 2 * float((m.mean.square() + m.variance).sum())
        trace = float(m.trace)
        return -math.inf if trace <= rounding else math.log(trace)

    @property
    def log_variance_error(self) -> float:
        """Its standard error."""
        constant = self.log_variance == -math.inf
        return 0.0 if constant else float(self.moments.trace_error / self.moments.trace)


@dataclass(frozen=True)
class Row:
    """An estimator.

    Attributes:
        name: of the estimator.
        unbiased: as registered; None if that is not known.
        at_k: measured at equal k.
        at_evaluations: measured at equal evaluations; None if even the smallest k takes more.
    """

    name: str
    unbiased: bool | None
    at_k: Measurement
    at_evaluations: Measurement | None

    @property
    def looks_biased(self) -> bool:
        """Whether it is registered as biased, or was measured to be."""
        return self.unbiased is False or self.at_k.z > BIASED_FROM
