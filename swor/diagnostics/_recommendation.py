"""A recommendation from a comparison of estimators, in sentences."""

from __future__ import annotations

import math
from collections.abc import Sequence

from swor.diagnostics._performance import ComparedEstimator, Performance


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
