"""Exact bias and variance of every rule on five outcomes, by going through all samples."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.distributions import Categorical

from swor.baselines import Baseline
from swor.diagnostics.enumeration import ExactMoments, exact_moments
from swor.estimators.registry import ESTIMATORS
from swor.estimators.score_function import Rule
from swor.types import Scheme

K = range(1, 5)
PROBABILITIES = (0.4, 0.25, 0.2, 0.1, 0.05)
COSTS = (1.0, -0.5, 2.0, 0.3, 4.0)


def rule_rows() -> list[dict[str, object]]:
    """A row for each rule and k: the norm of the bias of the gradient, and its total variance."""
    return [
        {
            "rule": name,
            "unbiased": ESTIMATORS[name].unbiased,
            "k": k,
            "bias": float(moments.gradient_bias.norm()),
            "variance": float(moments.total_variance),
        }
        for name, rule, scheme in rules()
        for k in K
        for moments in (small_domain(rule, scheme, k),)
    ]


def rules() -> Iterator[tuple[str, Rule, Scheme]]:
    """Every entry of ESTIMATORS that is a rule with the baseline that is built in to it."""
    for name, entry in ESTIMATORS.items():
        built_in = entry.baseline == Baseline.BUILT_IN
        if built_in and entry.rule is not None and entry.scheme is not None:
            yield name, entry.rule, entry.scheme


def small_domain(rule: Rule, scheme: Scheme, k: int) -> ExactMoments:
    """The moments of a rule on five outcomes, by the logits.

    >>> import swor
    >>> moments = small_domain(swor.unordered_set, Scheme.WITHOUT_REPLACEMENT, 2)
    >>> bool(moments.gradient_bias.norm() < 1e-12)
    True
    """
    logits = torch.tensor(PROBABILITIES, dtype=torch.float64).log().requires_grad_()
    costs = torch.tensor(COSTS, dtype=torch.float64)
    return exact_moments(rule, scheme, lambda x: costs[x], Categorical(logits=logits), k, [logits])
