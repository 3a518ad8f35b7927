"""A sentence that recommends an estimator, with the evidence."""

from __future__ import annotations

import math
from collections.abc import Sequence

from swor.diagnostics.measurement import Measurement, Row


def recommend(rows: Sequence[Row], evaluations: int) -> str:
    """Name the unbiased estimator of least variance at equal evaluations, and those that come close."""
    fair = {
        row.name: row.at_evaluations
        for row in rows
        if row.at_evaluations is not None and not row.looks_biased
    }
    if not fair:
        return (
            f"None of these is unbiased and fits into {evaluations} evaluations; allow "
            "more evaluations, or compare others, such as unordered_set."
        )
    order = sorted(fair, key=lambda name: fair[name].log_variance)
    best = fair[order[0]]
    return " ".join([_first(order[0], best), *_others(order[1:], fair, best)])


def _first(name: str, best: Measurement) -> str:
    variance = (
        "no variance at all"
        if best.log_variance == -math.inf
        else f"log-variance {best.log_variance:.2f} ± {best.log_variance_error:.2f}"
    )
    return f"Use {name} with k = {best.k}: no sign of bias, {variance} at {best.evaluations} evaluations."


def _others(names: list[str], fair: dict[str, Measurement], best: Measurement) -> list[str]:
    """Name the estimators that are as good within the error, and by how much the next one is worse."""
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


def _gap(other: Measurement, best: Measurement) -> float:
    same = other.log_variance == best.log_variance  # also where both are −inf
    return 0.0 if same else other.log_variance - best.log_variance


def _error(other: Measurement, best: Measurement) -> float:
    return math.hypot(other.log_variance_error, best.log_variance_error)


def _and(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
