r"""$L(\eta) = E\bigl[\sum_{i=1}^3 (x_i - p_i)^2\bigr]$, $x_i \sim \text{Bernoulli}(\sigma(\eta))$.

A problem of one parameter (Liu et al. 2019), and the estimators that Figure 1 compares on it. Three
independent bits are one variable of eight outcomes. Their log-probabilities are computed from the
number of ones, so that ties are exact, and the likeliest outcomes are then chosen by index.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributions import Categorical

from swor.diagnostics.enumeration import Baseline
from swor.estimators.importance import importance_weighted
from swor.estimators.registry import Rule
from swor.estimators.single import reinforce
from swor.estimators.sums import deterministic_sum_and_sample, sum_and_sample
from swor.estimators.unordered import unordered_set
from swor.types import Scheme

TARGET = (0.6, 0.51, 0.48)

_BIT = torch.tensor([0.0, 1.0], dtype=torch.float64)
OUTCOMES = torch.cartesian_prod(_BIT, _BIT, _BIT)  # (8, 3)
COSTS = (OUTCOMES - torch.tensor(TARGET, dtype=torch.float64)).square().sum(-1)  # (8,)


def distribution(eta: Tensor) -> Categorical:
    """The eight outcomes, for every element of eta (*batch,)."""
    ones = OUTCOMES.sum(-1)
    eta = eta.unsqueeze(-1)
    return Categorical(logits=ones * F.logsigmoid(eta) + (3.0 - ones) * F.logsigmoid(-eta))


def cost(index: Tensor) -> Tensor:
    """The squared distance from the target, of outcomes by their index.

    >>> cost(torch.tensor(7))  # all bits 1
    tensor(0.6705, dtype=torch.float64)
    """
    return COSTS[index]


@dataclass(frozen=True)
class Curve:
    """An estimator of the figure.

    Attributes:
        name: in ESTIMATORS.
        rule: what makes the estimate.
        scheme: how its samples are drawn.
        baseline: as in :func:`swor.diagnostics.enumeration.exact_moments`.
        ordered: whether the rule depends on the order of the sample.
        kappa: whether it depends on the threshold.
    """

    name: str
    rule: Rule
    scheme: Scheme
    baseline: Baseline
    ordered: bool = False
    kappa: bool = False

    def evaluations(self, k: int) -> int:
        """The number of evaluations of f, including those for the baseline."""
        return 2 * k if self.baseline == "sampled" else k


_WITH, _WITHOUT, _TOP = (
    Scheme.WITH_REPLACEMENT,
    Scheme.WITHOUT_REPLACEMENT,
    Scheme.TOP_K_AND_SAMPLE,
)
_DETERMINISTIC = deterministic_sum_and_sample

CURVES = (
    Curve("reinforce_no_baseline", reinforce, _WITH, 0.0),
    Curve("reinforce_sampled_baseline", reinforce, _WITH, "sampled"),
    Curve("reinforce", reinforce, _WITH, "built-in"),
    Curve("deterministic_sum_and_sample", _DETERMINISTIC, _TOP, 0.0),
    Curve("deterministic_sum_and_sample_sampled_baseline", _DETERMINISTIC, _TOP, "sampled"),
    Curve("sum_and_sample", sum_and_sample, _WITHOUT, 0.0, ordered=True),
    Curve("sum_and_sample_sampled_baseline", sum_and_sample, _WITHOUT, "sampled", ordered=True),
    Curve("importance_weighted", importance_weighted, _WITHOUT, "built-in", kappa=True),
    Curve("unordered_set_no_baseline", unordered_set, _WITHOUT, 0.0),
    Curve("unordered_set", unordered_set, _WITHOUT, "built-in"),
)
