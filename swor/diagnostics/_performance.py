"""The measurements of estimators, and a recommendation based on them, in sentences."""

from __future__ import annotations

import math
from collections.abc import Sequence
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
        if math.isinf(self.log_variance):
            return 0.0
        return float(self.moments.trace_error / self.moments.trace)


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


def recommend(rows: Sequence[ComparedEstimator], evaluations: int) -> str:
    """Name the unbiased estimator of least variance at equal evaluations, and say why others are not."""
    reasons = {row.name: why_not(row, evaluations) for row in rows}
    fair = {
        row.name: row.at_evaluations
        for row in rows
        if row.at_evaluations is not None and reasons[row.name] is None
    }
    left_out = _left_out({name: why for name, why in reasons.items() if why is not None})
    if not fair:
        return " ".join(["No estimator can be recommended from this comparison.", *left_out])
    order = sorted(fair, key=lambda name: fair[name].log_variance)
    best = next(row for row in rows if row.name == order[0])
    return " ".join([_first(best, fair[order[0]]), *_others(order, fair), *left_out])


def why_not(row: ComparedEstimator, evaluations: int) -> str | None:
    """Return the reason why an estimator is not considered, or None if it is."""
    equal = row.at_evaluations
    if row.unbiased is False:
        return "biased by definition"
    if row.looks_biased:
        return "a bias was measured"
    if equal is None:
        return f"more than {evaluations} evaluations even at k = 1"
    if equal.infinite:
        return "its variance is infinite"
    if not equal.reliable:
        return "too few draws decide the variance; increase repeats"
    if not row.proven and math.isnan(equal.squared_bias.estimate):
        return "bias not tested; compare with unordered_set as well"
    return None


def _left_out(reasons: dict[str, str]) -> list[str]:
    """Return a sentence that names the estimators that are not considered, by reason."""
    by_reason: dict[str, list[str]] = {}
    for name, why in reasons.items():
        by_reason.setdefault(why, []).append(name)
    said = [f"{_and(names)} ({why})" for why, names in by_reason.items()]
    return [f"Not considered: {'; '.join(said)}."] if said else []


def _first(row: ComparedEstimator, best: Performance) -> str:
    bias = "proven to be unbiased" if row.proven else "no bias found"
    none = best.log_variance == -math.inf
    variance = "a variance below rounding" if none else f"log variance {log_variance(best)}"
    return (
        f"Use {row.name} with k = {best.k}: {bias}, {variance} at {best.evaluations} evaluations."
    )


def _others(order: Sequence[str], fair: dict[str, Performance]) -> list[str]:
    """Name the estimators that are as good within the error, and by how much the next one is worse."""
    best, names = fair[order[0]], order[1:]
    close = [name for name in names if _gap(fair[name], best) <= 2.0 * _error(fair[name], best)]
    behind = [name for name in names if name not in close]
    said = []
    if close:
        said.append(f"{_and(close)} {'is' if len(close) == 1 else 'are'} as good within the error.")
    if behind:
        gap = _gap(fair[behind[0]], best)
        by = "" if gap == math.inf else f", with {math.exp(gap):.3g} times the variance"
        said.append(f"{behind[0]} comes next{by}.")
    return said


def _gap(other: Performance, best: Performance) -> float:
    same = other.log_variance == best.log_variance  # also where both are −inf
    return 0.0 if same else other.log_variance - best.log_variance


def _error(other: Performance, best: Performance) -> float:
    return math.hypot(other.log_variance_error, best.log_variance_error)


def _and(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def log_variance(m: Performance) -> str:
    """Return the log of a variance with its standard error as text; "-inf" has no error."""
    error = "" if m.log_variance == -math.inf else f" ±{m.log_variance_error:.2f}"
    return f"{m.log_variance:.2f}{error}"
