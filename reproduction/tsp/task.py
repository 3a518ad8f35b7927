"""The training task: the Attention Model, trained by one of the estimators of Figure 3."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

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
from swor.estimators.baselines import BaselineInputs, Greedy
from swor.estimators.score_function import ScoreFunctionEstimator
from swor.types import Sample, Scheme

AT_ONCE = 500  # validation instances that are sampled at the same time


def registered(name: str) -> ScoreFunctionEstimator:
    """Return the score-function estimator of a name in ``swor.ESTIMATORS``."""
    function = swor.ESTIMATORS[name].function
    assert isinstance(function, ScoreFunctionEstimator)
    return function


TOUR_ESTIMATORS: dict[str, ScoreFunctionEstimator] = {
    # The greedy tour is that of the best model so far.
    "reinforce_rollout": ScoreFunctionEstimator(swor.rloo, Scheme.WITH_REPLACEMENT, Greedy()),
    "reinforce_batch_mean": registered("reinforce_batch_mean"),
    "rloo": registered("rloo"),
    "sum_and_sample_shared_sampled_baseline": registered("sum_and_sample_shared_sampled_baseline"),
    "unordered_set": registered("unordered_set"),
    "normalized_importance_weighted": registered("normalized_importance_weighted"),
    "risk": registered("risk"),
    "risk_beam_search": ScoreFunctionEstimator(swor.risk, Scheme.BEAM_SEARCH),
}
"""The estimators of Figure 3: those of the library under their names, and two of this experiment."""


def draw(scheme: Scheme, policy: TourPolicy, k: int, generator: torch.Generator) -> Sample:
    """Draw k tours of every instance; those of a beam search are not random."""
    if scheme == Scheme.BEAM_SEARCH:
        return swor.beam_search(policy, k)
    if scheme == Scheme.WITH_REPLACEMENT:
        return swor.ancestral_sample(policy, k, generator=generator)
    return swor.stochastic_beam_search(policy, k, generator=generator)


class SampledTours(NamedTuple):
    """Tours that a policy has drawn."""

    policy: TourPolicy
    instances: Tensor  # (batch, nodes, 2)
    sample: Sample
    cost: Tensor  # the lengths of the tours, (batch, k)


def tour_loss(
    estimator: ScoreFunctionEstimator,
    tours: SampledTours,
    generator: torch.Generator,
    greedy: Callable[[], Tensor],
) -> Tensor:
    """Return the loss of each instance, (batch,): its gradient is that of the estimator.

    The generator is that of a baseline that is sampled; ``greedy`` returns the lengths of greedy tours,
    (batch, 1), for a baseline that needs them.
    """
    policy, instances, sample, cost = tours

    def sampled(n: int) -> Tensor:
        return tour_length(instances, swor.ancestral_sample(policy, n, generator=generator).value)

    group = distributed.group.WORLD
    inputs = BaselineInputs(cost, sampled=sampled, greedy=greedy, group=group)
    return estimator.rule(sample).loss(cost, baseline=estimator.baseline(inputs))


def gap_of(lengths: Tensor, optimal: Tensor) -> dict[str, float]:
    """Return the mean of lengths, (n,), and of their gap to the shortest ones, in percent."""
    lengths = lengths.double().cpu()
    gap = 100 * (lengths / optimal - 1)
    error = float(gap.std() / len(gap) ** 0.5)
    return {"length": float(lengths.mean()), "gap": float(gap.mean()), "gap_standard_error": error}


class TourTask(Task[Tensor]):
    """Minimise the expected length of the tours of random instances."""

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
        self.rollout: RolloutBaseline | None = None
        if isinstance(self.estimator.baseline, Greedy):
            sizes = {"nodes": settings.nodes, "size": settings.rollout_size}
            trained = settings.start_from is not None
            self.rollout = RolloutBaseline(self.model, **sizes, seed=settings.seed, trained=trained)
        self.valid = validation_instances(settings.validation_size, settings.nodes)
        self.optimal = optimal_lengths(self.valid, progress=True)

    def batch(self, place: Place) -> Tensor:
        """Draw new instances, (instances, nodes, 2)."""
        generator = seeded(place.seed, "instances", place.epoch, place.step)
        everyone = random_instances(self.examples, self.settings.nodes, generator=generator)
        return place.share(everyone).to(self.device)

    def loss(self, batch: Tensor, generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss of the estimator, and the mean length and log-probability of its tours."""
        policy = self.model(batch)
        sample = draw(self.estimator.scheme, policy, self.settings.samples, generator)
        cost = tour_length(batch, sample.value)
        if self.settings.best_of is not None:
            loss = best_of_loss(sample, cost, self.settings.best_of, largest=False)
        else:
            tours = SampledTours(policy, batch, sample, cost)
            loss = tour_loss(self.estimator, tours, generator, lambda: self._greedy(batch, cost))
        return loss.mean(), {"length": cost.mean(), "log_p": sample.log_p.detach().mean()}

    def _greedy(self, instances: Tensor, cost: Tensor) -> Tensor:
        assert self.rollout is not None  # an estimator that asks for greedy tours has one
        lengths: Tensor = self.rollout(instances, cost)
        return lengths

    def end_epoch(self, epoch: int, generator: torch.Generator) -> dict[str, float]:
        """Replace the model of the rollout baseline if the trained model is better."""
        return {} if self.rollout is None else self.rollout.end_epoch(self.model)

    def validate(self, generator: torch.Generator) -> dict[str, float]:
        """Return the mean length of greedy tours of fixed instances, and their gap to the shortest ones."""
        greedy = greedy_lengths(self.model, self.valid.to(self.device))
        return gap_of(greedy, self.optimal) | self._validate_samples(generator)

    def _validate_samples(self, generator: torch.Generator) -> dict[str, float]:
        """Return the mean gaps of sampled tours and of the shortest of several, if the settings say so."""
        m = self.settings.validate_best_of or self.settings.best_of
        if m is None:
            return {}
        parts = self.valid.to(self.device).split(AT_ONCE)
        tours = [swor.ancestral_sample(self.model(x), m, generator=generator).value for x in parts]
        lengths = torch.cat([tour_length(x, t) for x, t in zip(parts, tours, strict=True)])
        gap = 100 * (lengths.double().cpu() / self.optimal.unsqueeze(-1) - 1)
        return {"sampled_gap": float(gap.mean()), "best_of_gap": float(gap.amin(-1).mean())}

    def state(self) -> dict[str, Any]:
        """Return the state of the rollout baseline, if there is one."""
        return {} if self.rollout is None else self.rollout.state_dict()

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from :meth:`state`."""
        if self.rollout is not None:
            self.rollout.load_state_dict(state)
