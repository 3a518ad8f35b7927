"""The training task: the Attention Model, trained by one of the estimators of Figure 3."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, distributed

import swor
from reproduction.harness.best_of import best_of_loss
from reproduction.harness.models import load_model
from reproduction.harness.task import Place, Task, seeded
from reproduction.tsp.model import AttentionModel
from reproduction.tsp.optimal import optimal_lengths
from reproduction.tsp.policy import TourPolicy
from reproduction.tsp.problem import random_instances, tour_length, validation_instances
from reproduction.tsp.rollout import RolloutBaseline, greedy_lengths
from reproduction.tsp.settings import TSPSettings
from swor.estimators.baselines import batch_mean
from swor.types import Sample, Weights


def independent(policy: TourPolicy, k: int, generator: torch.Generator) -> Sample:
    """Draw k independent tours of every instance."""
    return swor.ancestral_sample(policy, k, generator=generator)


def distinct(policy: TourPolicy, k: int, generator: torch.Generator) -> Sample:
    """Draw k different tours of every instance, without replacement."""
    return swor.stochastic_beam_search(policy, k, generator=generator)


def likeliest(policy: TourPolicy, k: int, generator: torch.Generator) -> Sample:
    """Return the k likeliest tours that a beam search finds, which are not random."""
    return swor.beam_search(policy, k)


@dataclass(frozen=True)
class TourEstimator:
    """An estimator of the gradient of the expected tour length.

    Attributes:
        draw: the sampler.
        rule: the rule for its samples.
        baseline: "built-in" to the rule; one more "sampled" tour of the same instance; the "batch
            mean" of the other instances; or the greedy "rollout" of the best model so far.
        unbiased: whether its gradient is unbiased.
    """

    draw: Callable[[TourPolicy, int, torch.Generator], Sample]
    rule: Callable[[Sample], Weights]
    baseline: Literal["built-in", "sampled", "batch mean", "rollout"] = "built-in"
    unbiased: bool = True


TOUR_ESTIMATORS: dict[str, TourEstimator] = {
    "reinforce_rollout": TourEstimator(independent, swor.single_sample, "rollout"),
    "reinforce_batch_mean": TourEstimator(independent, swor.single_sample, "batch mean"),
    "rloo": TourEstimator(independent, swor.rloo),
    "sum_and_sample": TourEstimator(distinct, swor.sum_and_sample, "sampled"),
    "unordered_set": TourEstimator(distinct, swor.unordered_set),
    "normalized_importance_weighted": TourEstimator(
        distinct, swor.normalized_importance_weighted, unbiased=False
    ),
    "risk": TourEstimator(distinct, swor.risk, unbiased=False),
    "risk_beam_search": TourEstimator(likeliest, swor.risk, unbiased=False),
}


class Draws(NamedTuple):
    """Tours that a policy has drawn."""

    policy: TourPolicy
    instances: Tensor  # (batch, nodes, 2)
    sample: Sample
    cost: Tensor  # the lengths of the tours, (batch, k)


def surrogate(
    estimator: TourEstimator,
    draws: Draws,
    generator: torch.Generator,
    rollout: Callable[[Tensor, Tensor], Tensor] | None,
) -> Tensor:
    """Return the surrogate of each instance, (batch,): its gradient is that of the estimator.

    Args:
        estimator: whose rule and baseline are used.
        draws: the tours.
        generator: of a baseline that is sampled.
        rollout: from instances and lengths to the baseline (batch, 1), for an estimator that has one.
    """
    baseline = _baseline(estimator, draws, generator, rollout)
    return estimator.rule(draws.sample).loss(draws.cost, baseline=baseline)


def _baseline(
    estimator: TourEstimator,
    draws: Draws,
    generator: torch.Generator,
    rollout: Callable[[Tensor, Tensor], Tensor] | None,
) -> Tensor | Literal["built-in"]:
    policy, instances, _, cost = draws
    if rollout is not None:
        return rollout(instances, cost)
    if estimator.baseline == "sampled":
        with torch.no_grad():
            return tour_length(instances, independent(policy, 1, generator).value)
    if estimator.baseline == "batch mean":  # of all other tours, also where k > 1
        others = batch_mean(cost.reshape(-1, 1), group=distributed.group.WORLD)
        return others.view_as(cost)
    return "built-in"


AT_ONCE = 500  # validation instances that are sampled at the same time


class TourTask(Task[Tensor]):
    """Minimise the expected length of the tours of random instances.

    Args:
        settings: of the run.
    """

    def __init__(self, settings: TSPSettings) -> None:
        self.settings, self.model_settings = settings, settings.model
        self.estimator = TOUR_ESTIMATORS[settings.estimator]
        self.steps, self.examples = settings.epoch_steps, settings.instances
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(settings.seed)
            self.model: AttentionModel = AttentionModel(settings.model)
        if settings.start_from is not None:
            load_model(settings.start_from, self.model)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=settings.learning_rate)
        self.rollout = self._rollout() if self.estimator.baseline == "rollout" else None
        self.valid = validation_instances(settings.validation_size, settings.nodes)
        self.optimal = optimal_lengths(self.valid, progress=True)

    def _rollout(self) -> RolloutBaseline:
        settings = self.settings
        return RolloutBaseline(
            self.model,
            nodes=settings.nodes,
            size=settings.rollout_size,
            seed=settings.seed,
            trained=settings.start_from is not None,
        )

    def batch(self, place: Place) -> Tensor:
        """Draw new instances, (instances, nodes, 2)."""
        generator = seeded(place.seed, "instances", place.epoch, place.step)
        everyone = random_instances(self.examples, self.settings.nodes, generator=generator)
        return place.share(everyone).to(self._device)

    def loss(self, batch: Tensor, generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the surrogate of the estimator, and the mean length and log-probability of its tours."""
        policy = self.model(batch)
        sample = self.estimator.draw(policy, self.settings.samples, generator)
        cost = tour_length(batch, sample.value)
        if self.settings.best_of is not None:
            loss = best_of_loss(sample, cost, self.settings.best_of, largest=False)
        else:
            draws = Draws(policy, batch, sample, cost)
            loss = surrogate(self.estimator, draws, generator, self.rollout)
        return loss.mean(), {"length": cost.mean(), "log_p": sample.log_p.detach().mean()}

    def end_epoch(self, epoch: int, generator: torch.Generator) -> dict[str, float]:
        """Replace the model of the rollout baseline if the trained model is better."""
        return {} if self.rollout is None else self.rollout.end_epoch(self.model)

    def validate(self, generator: torch.Generator) -> dict[str, float]:
        """Return the mean length of greedy tours of fixed instances, and their gap to the shortest ones."""
        greedy = greedy_lengths(self.model, self.valid.to(self._device)).double().cpu()
        gap = 100 * (greedy / self.optimal - 1)
        return {
            "length": float(greedy.mean()),
            "gap": float(gap.mean()),
            "gap_standard_error": float(gap.std() / len(gap) ** 0.5),
            **self._validate_samples(generator),
        }

    def _validate_samples(self, generator: torch.Generator) -> dict[str, float]:
        """The mean gap of sampled tours, and that of the shortest of some, if that is asked for."""
        m = self.settings.validate_best_of or self.settings.best_of
        if m is None:
            return {}
        lengths = torch.cat(
            [
                tour_length(part, independent(self.model(part), m, generator).value)
                for part in self.valid.to(self._device).split(AT_ONCE)
            ]
        )
        gap = 100 * (lengths.double().cpu() / self.optimal.unsqueeze(-1) - 1)
        return {"sampled_gap": float(gap.mean()), "best_of_gap": float(gap.amin(-1).mean())}

    def state(self) -> dict[str, Any]:
        """Return the state of the rollout baseline, if there is one."""
        return {} if self.rollout is None else self.rollout.state()

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from :meth:`state`."""
        if self.rollout is not None:
            self.rollout.load_state(state)

    @property
    def _device(self) -> torch.device:
        return next(self.model.parameters()).device
