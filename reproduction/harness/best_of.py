"""Training for the best of m draws, or for the log of the probability of success, instead of the mean."""

from __future__ import annotations

from torch import Tensor

import swor
from reproduction.harness.errors import UserError

RULES = {"unordered_set": "distinct", "rloo": "independent"}
"""Estimators whose samples the best of m can be estimated from."""


def check_best_of(best_of: int | None, estimator: str, k: int) -> None:
    """Refuse an estimator that has no best of m, and an m that k samples do not tell."""
    if best_of is not None and estimator not in RULES:
        raise UserError(
            f"best_of is {best_of} and the estimator {estimator}; expected {' or '.join(RULES)}. "
            "Change the estimator, or leave out best_of."
        )
    if best_of is not None and not 1 <= best_of <= k:
        raise UserError(
            f"best_of is {best_of} and k {k}; expected from 1 to k, since the best of m is estimated "
            "from m samples or more. Raise k, or change best_of."
        )


def best_of_loss(sample: swor.Sample, f: Tensor, m: int, *, largest: bool) -> Tensor:
    """Return the surrogate of the expected best of m draws, from distinct or independent samples."""
    if sample.scheme == swor.Scheme.WITHOUT_REPLACEMENT:
        return swor.best_of(sample, m, largest=largest).loss(f)
    return swor.best_of_independent(sample, m, largest=largest).loss(f)


def log_success_loss(sample: swor.Sample, success: Tensor, order: int) -> Tensor:
    """Return the surrogate of the log of the probability of success; from independent samples, MaxRL."""
    if sample.scheme == swor.Scheme.WITHOUT_REPLACEMENT:
        return swor.log_success(sample, order).loss(success)
    return swor.log_success_independent(sample, success)
