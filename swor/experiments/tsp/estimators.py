"""The estimators of Figure 3: how tours are drawn, weighted, and compared with a baseline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

import swor
from swor.experiments.tsp.policy import TourPolicy
from swor.experiments.tsp.problem import tour_length
from swor.types import Sample, Weights

Generator = torch.Generator | None


def independent(policy: TourPolicy, k: int, generator: Generator) -> Sample:
    """K independent tours of every instance."""
    return swor.ancestral_sample(policy, k, generator=generator)


def distinct(policy: TourPolicy, k: int, generator: Generator) -> Sample:
    """K different tours of every instance, sampled without replacement."""
    return swor.stochastic_beam_search(policy, k, generator=generator)


def likeliest(policy: TourPolicy, k: int, generator: Generator) -> Sample:
    """The K likeliest tours that a beam search finds; not random."""
    return swor.beam_search(policy, k)


Baseline = Literal["built-in", "sampled", "batch mean", "rollout"]


@dataclass(frozen=True)
class TourEstimator:
    """An estimator of the gradient of the expected tour length.

    Attributes:
        label: its name in figures.
        draw: the sampler.
        rule: the rule for its samples.
        baseline: "built-in" to the rule; one more "sampled" tour of the same instance; the "batch
            mean" of the other instances; or the greedy "rollout" of the best model so far.
        unbiased: whether its gradient is unbiased.
    """

    label: str
    draw: Callable[[TourPolicy, int, Generator], Sample]
    rule: Callable[[Sample], Weights]
    baseline: Baseline = "built-in"
    unbiased: bool = True

    @property
    def single(self) -> bool:
        """Whether it draws one tour per instance, and compares it with other instances or models."""
        return self.baseline in ("batch mean", "rollout")


TOUR_ESTIMATORS: dict[str, TourEstimator] = {
    "reinforce_rollout": TourEstimator(
        "REINFORCE, greedy rollout", independent, swor.single_sample, "rollout"
    ),
    "reinforce_batch_mean": TourEstimator(
        "REINFORCE, batch average", independent, swor.single_sample, "batch mean"
    ),
    "reinforce": TourEstimator("REINFORCE w.r.", independent, swor.reinforce),
    "sum_and_sample": TourEstimator(
        "Stochastic sum-and-sample", distinct, swor.sum_and_sample, "sampled"
    ),
    "unordered_set": TourEstimator("Unordered set", distinct, swor.unordered_set),
    "normalized_importance_weighted": TourEstimator(
        "Normalised importance-weighted",
        distinct,
        swor.normalized_importance_weighted,
        unbiased=False,
    ),
    "risk": TourEstimator("RISK, stochastic beams", distinct, swor.risk, unbiased=False),
    "risk_beam_search": TourEstimator(
        "RISK, deterministic beams", likeliest, swor.risk, unbiased=False
    ),
}


@torch.no_grad()
def sampled_length(policy: TourPolicy, instances: Tensor, generator: Generator) -> Tensor:
    """The length of one more tour of every instance, (batch, 1): a baseline."""
    tours = swor.ancestral_sample(policy, 1, generator=generator).value
    return tour_length(instances, tours)


@torch.no_grad()
def greedy_length(policy: TourPolicy, instances: Tensor) -> Tensor:
    """The length of the tour that always goes to the likeliest node, (batch,)."""
    return tour_length(instances, swor.beam_search(policy, 1).value).squeeze(-1)
