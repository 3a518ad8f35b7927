"""The best of m draws as what is trained for, in the place of the mean."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

import swor
from reproduction.harness.errors import UserError, check_positive

RULES = {"unordered_set": "distinct", "rloo": "independent"}
"""Estimators whose samples the best of m can be estimated from."""


class BestOfSettings(Protocol):
    """The settings that the best of m depends on."""

    @property
    def estimator(self) -> str:
        """The estimator, which decides how samples are drawn."""
        ...

    @property
    def best_of(self) -> int | None:
        """The number of draws of which the best counts."""
        ...


def check_best_of(settings: BestOfSettings, k: int) -> None:
    """Refuse an estimator that has no best of m, and an m above k."""
    check_positive(settings, "best_of")
    if settings.best_of is None:
        return
    if settings.estimator not in RULES:
        raise UserError(
            f"best_of is {settings.best_of} and the estimator {settings.estimator}; expected "
            f"{' or '.join(RULES)}. Change the estimator, or leave out best_of."
        )
    if settings.best_of > k:
        raise UserError(
            f"best_of is {settings.best_of} and k {k}; expected at most k, since the best of m is "
            "estimated from m samples or more. Raise k, or lower best_of."
        )


def best_of_loss(sample: swor.Sample, f: Tensor, m: int, *, largest: bool) -> Tensor:
    """The surrogate of the expected best of m draws, from distinct or from independent samples."""
    if sample.scheme == swor.Scheme.WITHOUT_REPLACEMENT:
        return swor.best_of(sample, m, largest=largest).loss(f)
    return swor.best_of_independent(sample, m, largest=largest).loss(f)
