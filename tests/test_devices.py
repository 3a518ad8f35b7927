"""Tensors are made on the device of the data, whatever the default device is, and modules on the latter."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from problems import log_probabilities, seeded
from torch.distributions import Bernoulli, Categorical, Independent
from two_level_sequences import two_levels

import swor
from swor.integrations.transformers.catalogue import Catalogue

LOG_PROBS = log_probabilities(2, 40)
MANY, VERY_MANY = log_probabilities(2, 600), log_probabilities(2, 5000)
LEVELS = two_levels((2,))
COINS = swor.Factorized(log_probabilities(2, 12, 2))
COST = torch.ones(2, 4, dtype=torch.float64)
RNG = seeded()


@pytest.fixture(autouse=True)
def another_default_device() -> Iterator[None]:
    """Tensors on ``meta`` have no values, so that one of them among the data is an error."""
    with torch.device("meta"):
        yield


def some_at_a_time(model: object) -> swor.Sample:
    sequences = swor.DistinctSequences(model, generator=RNG)
    assert sequences.log_rest.exp() == 1.0
    sequences.draw(3)
    sequences.draw(1)
    return sequences.sample()


def program() -> swor.Sample:
    row = LOG_PROBS[0]
    runs = swor.DistinctRuns(lambda choose: choose(row) + choose(row), generator=RNG)
    runs.draw(4)
    assert runs.costs().device.type == "cpu"
    assert runs.standard_error() >= 0
    return runs.sample()


def sharded() -> swor.Sample:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        return swor.gumbel_top_k_sharded(LOG_PROBS, 4, generator=RNG)
    finally:
        dist.destroy_process_group()


SAMPLERS = {
    "gumbel_top_k": lambda: swor.gumbel_top_k(LOG_PROBS, 4, generator=RNG),
    "a stream": lambda: swor.gumbel_top_k(MANY, 4, generator=RNG),
    "blocks": lambda: swor.gumbel_top_k(MANY, 60, generator=RNG),
    "fewer": lambda: swor.gumbel_top_k(LOG_PROBS, 60, allow_fewer=True, generator=RNG),
    "with_replacement": lambda: swor.with_replacement(LOG_PROBS, 4, generator=RNG),
    "many": lambda: swor.with_replacement(VERY_MANY, 4, generator=RNG),
    "top_k_and_sample": lambda: swor.top_k_and_sample(LOG_PROBS, 4, m="auto", generator=RNG),
    "stratified": lambda: swor.stratified_sample(LOG_PROBS, 4, generator=RNG),
    "systematic": lambda: swor.systematic_sample(LOG_PROBS, 4, generator=RNG),
    "a product": lambda: swor.stochastic_beam_search(COINS, 4, generator=RNG),
    "sequences": lambda: swor.stochastic_beam_search(LEVELS, 4, generator=RNG),
    "beam_search": lambda: swor.beam_search(LEVELS, 4),
    "ancestral_sample": lambda: swor.ancestral_sample(LEVELS, 4, generator=RNG),
    "DistinctSequences": lambda: some_at_a_time(LEVELS),
    "DistinctSequences of a product": lambda: some_at_a_time(COINS),
    "DistinctRuns": program,
    "distinct_from_stream": lambda: swor.distinct_from_stream(
        iter([("a", -1.0), ("b", torch.tensor(-2.0, device="cpu"))]), 2, generator=RNG
    )[1],
    "sample": lambda: swor.sample(Categorical(logits=LOG_PROBS), 4, generator=RNG),
    "sample of bits": lambda: swor.sample(
        Independent(Bernoulli(logits=LOG_PROBS), 1), 4, generator=RNG
    ),
    "sharded": sharded,
}


@pytest.mark.parametrize("draw", SAMPLERS.values(), ids=SAMPLERS)
def test_samplers(draw) -> None:
    drawn = draw()
    parts = (drawn.value, drawn.log_p, drawn.log_rest, drawn.kappa, drawn.log_q)
    assert {part.device.type for part in parts if part is not None} == {"cpu"}


DISTINCT = [
    swor.unordered_set,
    swor.sum_and_sample,
    swor.raj,
    swor.importance_weighted,
    swor.normalized_importance_weighted,
    swor.risk,
    swor.single_sample,
]


@pytest.mark.parametrize("k", [4, 12])
def test_rules_for_distinct_samples(k: int) -> None:
    sample, cost = swor.gumbel_top_k(LOG_PROBS, k, generator=RNG), COST[:, :1].expand(2, k)
    losses = [rule(sample).loss(cost, baseline=1.0) for rule in DISTINCT]
    losses += [swor.unordered_set(sample).loss(cost, log_p=sample.log_p)]
    losses += [swor.best_of(sample, 2).loss(cost), swor.best_of(sample, 2).variance(cost)]
    losses += [swor.log_success(sample, 2).loss(cost), swor.murthy_variance(sample, cost)]
    losses += [swor.advantages(sample.log_p, cost, objective="best_of", m=2)]
    losses += [swor.log_prob_set(sample.log_p, method="orderings")] if k < 9 else []
    assert {loss.device.type for loss in losses} == {"cpu"}


def test_rules_for_other_samples() -> None:
    independent = swor.with_replacement(LOG_PROBS, 4, generator=RNG)
    losses = [
        swor.rloo(independent).loss(COST),
        swor.best_of_independent(independent, 2, baseline="centred").loss(COST),
        swor.log_success_independent(independent, COST),
        swor.stratified(swor.stratified_sample(LOG_PROBS, 4, generator=RNG)).loss(COST),
        swor.systematic(swor.systematic_sample(LOG_PROBS, 4, generator=RNG)).loss(COST),
        swor.deterministic_sum_and_sample(swor.top_k_and_sample(LOG_PROBS, 4, generator=RNG)).loss(
            COST
        ),
    ]
    assert {loss.device.type for loss in losses} == {"cpu"}


def test_modules_are_made_as_a_whole_on_the_default_device() -> None:
    for module in (swor.AdditiveTable(2, 3), swor.ControlVariate(2, 3), swor.TangentSurrogate()):
        assert {tensor.device.type for tensor in module.state_dict().values()} == {"meta"}


def test_catalogues() -> None:
    catalogue = Catalogue([[5, 1], [5, 2], [7]])
    value = torch.tensor([[5, 2], [7, 0]], device="cpu")
    assert catalogue.index(value).tolist() == [1, 2]
    assert catalogue.allowed(value[:, :1], 9, 0).sum() == 3
