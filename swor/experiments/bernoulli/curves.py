"""The curves of Figure 1: estimators of ESTIMATORS, and what their exact variance depends on."""

from __future__ import annotations

from typing import Literal, NamedTuple

from swor.estimators.registry import ESTIMATORS
from swor.estimators.score_function import ScoreFunctionEstimate


class Curve(NamedTuple):
    """A curve of the figure.

    Attributes:
        name: in ESTIMATORS, and in the tables.
        label: in the figure.
        baseline: how it is drawn: a rule may have none built in.
        ordered: whether the rule depends on the order of the sample.
        kappa: whether it depends on the threshold.
    """

    name: str
    label: str
    baseline: Literal["none", "sampled", "built-in"]
    ordered: bool = False
    kappa: bool = False

    @property
    def estimate(self) -> ScoreFunctionEstimate:
        """The rule, its scheme and its baseline."""
        estimate = ESTIMATORS[self.name].estimate
        assert isinstance(estimate, ScoreFunctionEstimate)
        return estimate


CURVES = (
    Curve("reinforce_no_baseline", "REINFORCE", "none"),
    Curve("reinforce_sampled_baseline", "REINFORCE, sampled baseline", "sampled"),
    Curve("reinforce", "REINFORCE, built-in baseline", "built-in"),
    Curve("deterministic_sum_and_sample", "Deterministic sum-and-sample", "none"),
    Curve(
        "deterministic_sum_and_sample_sampled_baseline",
        "Deterministic sum-and-sample, sampled baseline",
        "sampled",
    ),
    Curve("sum_and_sample", "Stochastic sum-and-sample", "none", ordered=True),
    Curve(
        "sum_and_sample_sampled_baseline",
        "Stochastic sum-and-sample, sampled baseline",
        "sampled",
        ordered=True,
    ),
    Curve("importance_weighted", "Importance-weighted, built-in baseline", "built-in", kappa=True),
    Curve("unordered_set_no_baseline", "Unordered set", "none"),
    Curve("unordered_set", "Unordered set, built-in baseline", "built-in"),
)
