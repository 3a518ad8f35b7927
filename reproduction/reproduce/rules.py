"""The command ``rules``: the exact bias and variance of every rule on a domain of five outcomes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch.distributions import Categorical

from reproduction.harness.folder import open_folder
from swor.diagnostics.enumeration import ExactMoments, exact_moments
from swor.estimators.baselines import BuiltIn, NoBaseline
from swor.estimators.registry import ESTIMATORS
from swor.estimators.score_function import ScoreFunctionEstimator

K = range(1, 5)
PROBABILITIES = (0.4, 0.25, 0.2, 0.1, 0.05)
COSTS = (1.0, -0.5, 2.0, 0.3, 4.0)


@dataclass(frozen=True, kw_only=True)
class RulesSettings:
    """Theorems: the exact bias and variance of every rule on five outcomes.

    Attributes:
        out: folder to write to; by default a new one in runs/.
    """

    out: Path | None = None


def rules(settings: RulesSettings) -> None:
    """Write ``rules.csv`` into a new folder."""
    folder = open_folder(settings, "rules", out=settings.out)
    print(f"The table is {folder.write_csv('rules.csv', rule_rows())}")


def rule_rows() -> list[dict[str, object]]:
    """Return a row for each rule and k: the norm of the gradient's bias, and its total variance.

    A rule appears with its built-in baseline, and without it where that is an entry of its own.
    """
    rows: list[dict[str, object]] = []
    for name, entry in ESTIMATORS.items():
        estimator = entry.function
        if not isinstance(estimator, ScoreFunctionEstimator):
            continue
        if not isinstance(estimator.baseline, BuiltIn | NoBaseline):
            continue
        for k in K:
            moments = small_domain(estimator, k)
            bias, variance = float(moments.gradient_bias.norm()), float(moments.total_variance)
            first = {"rule": name, "unbiased": entry.unbiased, "k": k}
            rows.append(first | {"bias": bias, "variance": variance})
    return rows


def small_domain(estimator: ScoreFunctionEstimator, k: int) -> ExactMoments:
    """Return the moments of an estimator on five outcomes, with gradients by the logits.

    >>> import swor
    >>> moments = small_domain(swor.unordered_set_no_baseline, 2)
    >>> bool(moments.gradient_bias.norm() < 1e-12)
    True
    """
    logits = torch.tensor(PROBABILITIES, dtype=torch.float64).log().requires_grad_()
    costs = torch.tensor(COSTS, dtype=torch.float64)
    dist = Categorical(logits=logits)
    rule, scheme, baseline = estimator.rule, estimator.scheme, estimator.baseline
    return exact_moments(rule, scheme, lambda x: costs[x], dist, k, [logits], baseline=baseline)
