"""The curves of Figure 1: which rule, from which samples, with which baseline."""

from __future__ import annotations

from dataclasses import dataclass

from swor.diagnostics.enumeration import Baseline
from swor.estimators.importance import importance_weighted
from swor.estimators.registry import Rule
from swor.estimators.single import reinforce
from swor.estimators.sums import deterministic_sum_and_sample, sum_and_sample
from swor.estimators.unordered import unordered_set
from swor.types import Scheme


@dataclass(frozen=True)
class Curve:
    """A curve of the figure.

    Attributes:
        name: in the tables.
        label: in the figure.
        entry: the same estimator in ESTIMATORS, for the Monte Carlo check.
        rule: what makes the estimate.
        scheme: how its samples are drawn.
        baseline: as in :func:`swor.diagnostics.enumeration.exact_moments`.
        ordered: whether the rule looks at the order of the sample.
        kappa: whether it looks at the threshold.
    """

    name: str
    label: str
    entry: str
    rule: Rule
    scheme: Scheme
    baseline: Baseline
    ordered: bool = False
    kappa: bool = False

    def evaluations(self, k: int) -> int:
        """Of f, those for the baseline included."""
        return 2 * k if self.baseline == "sampled" else k


_WITH, _WITHOUT, _TOP = (
    Scheme.WITH_REPLACEMENT,
    Scheme.WITHOUT_REPLACEMENT,
    Scheme.TOP_K_AND_SAMPLE,
)

CURVES = (
    Curve(
        "reinforce_no_baseline",
        "REINFORCE",
        "reinforce_no_baseline",
        reinforce,
        _WITH,
        0.0,
    ),
    Curve(
        "reinforce_sampled_baseline",
        "REINFORCE, sampled baseline",
        "reinforce_sampled_baseline",
        reinforce,
        _WITH,
        "sampled",
    ),
    Curve(
        "reinforce",
        "REINFORCE, built-in baseline",
        "reinforce",
        reinforce,
        _WITH,
        "built-in",
    ),
    Curve(
        "deterministic_sum_and_sample",
        "Deterministic sum-and-sample",
        "deterministic_sum_and_sample",
        deterministic_sum_and_sample,
        _TOP,
        0.0,
    ),
    Curve(
        "deterministic_sum_and_sample_sampled_baseline",
        "Deterministic sum-and-sample, sampled baseline",
        "deterministic_sum_and_sample_sampled_baseline",
        deterministic_sum_and_sample,
        _TOP,
        "sampled",
    ),
    Curve(
        "sum_and_sample",
        "Stochastic sum-and-sample",
        "sum_and_sample",
        sum_and_sample,
        _WITHOUT,
        0.0,
        ordered=True,
    ),
    Curve(
        "sum_and_sample_sampled_baseline",
        "Stochastic sum-and-sample, sampled baseline",
        "sum_and_sample_sampled_baseline",
        sum_and_sample,
        _WITHOUT,
        "sampled",
        ordered=True,
    ),
    Curve(
        "importance_weighted",
        "Importance-weighted, built-in baseline",
        "importance_weighted",
        importance_weighted,
        _WITHOUT,
        "built-in",
        kappa=True,
    ),
    Curve(
        "unordered_set_no_baseline",
        "Unordered set",
        "unordered_set_no_baseline",
        unordered_set,
        _WITHOUT,
        0.0,
    ),
    Curve(
        "unordered_set",
        "Unordered set, built-in baseline",
        "unordered_set",
        unordered_set,
        _WITHOUT,
        "built-in",
    ),
)
