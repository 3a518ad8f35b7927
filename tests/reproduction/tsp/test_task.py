"""What the Attention Model is trained by: batches, losses with their baselines, progress."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import swor
from reproduction.harness.task import Place
from reproduction.tsp.problem import random_instances, tour_length
from reproduction.tsp.settings import SINGLE, ModelSettings, TSPSettings
from reproduction.tsp.task import TOUR_ESTIMATORS, TourTask

TINY = TSPSettings(
    nodes=5,
    batch_size=16,
    validate_every=2,
    steps=4,
    validation_size=20,
    rollout_size=20,
    model=ModelSettings(width=16, heads=2, layers=1, hidden=16),
)


def tiny_task(estimator: str = "unordered_set", **changes) -> TourTask:
    return TourTask(replace(TINY, estimator=estimator, **changes))


def test_batches_are_fresh_and_depend_on_the_seed() -> None:
    task = tiny_task()
    a, b, c = (task.batch(Place(seed=s, epoch=0, step=t)) for s, t in [(0, 0), (0, 1), (1, 0)])
    assert a.shape == (16, 5, 2)
    assert not torch.equal(a, b)
    assert not torch.equal(a, c)
    torch.testing.assert_close(task.batch(Place(seed=0, epoch=0, step=0)), a)


@pytest.mark.parametrize("name", TOUR_ESTIMATORS)
def test_the_loss_is_the_rule_with_its_baseline(name: str) -> None:
    task = tiny_task(name)
    task.model.eval()
    x = random_instances(16, 5, generator=torch.Generator().manual_seed(1))
    loss, found = task.loss(x, torch.Generator().manual_seed(2))
    noise = torch.Generator().manual_seed(2)
    policy = task.model(x)
    k = task.settings.samples
    if name in (*SINGLE, "rloo"):
        sample = swor.ancestral_sample(policy, k, generator=noise)
    elif name == "risk_beam_search":
        sample = swor.beam_search(policy, k)
    else:
        sample = swor.stochastic_beam_search(policy, k, generator=noise)
    cost = tour_length(x, sample.value)
    baseline: object = "built-in"
    if name == "reinforce_batch_mean":
        baseline = torch.stack([torch.cat([cost[:i], cost[i + 1 :]]).mean() for i in range(16)])[
            :, None
        ]
    if name == "reinforce_rollout":
        baseline = 0.0  # the moving average starts there
    if name == "sum_and_sample_shared_sampled_baseline":
        baseline = tour_length(x, swor.ancestral_sample(policy, 1, generator=noise).value)
    expected = TOUR_ESTIMATORS[name].rule(sample).loss(cost, baseline=baseline).mean()
    parameters = list(task.model.parameters())
    torch.testing.assert_close(found["length"], cost.mean())
    torch.testing.assert_close(
        torch.autograd.grad(loss, parameters), torch.autograd.grad(expected, parameters)
    )


def test_training_shortens_the_tours() -> None:
    task = tiny_task(learning_rate=1e-2, validation_size=50)
    before = task.validate(torch.Generator())["gap"]
    noise = torch.Generator().manual_seed(0)
    for _ in range(80):
        task.optimizer.zero_grad()
        task.loss(random_instances(32, 5, generator=noise), noise)[0].backward()
        task.optimizer.step()
    task.model.eval()
    assert task.validate(torch.Generator())["gap"] < 0.5 * before
