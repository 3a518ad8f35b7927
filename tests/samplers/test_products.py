"""Products of categoricals: all ways through them have the same law."""

from __future__ import annotations

import math
from itertools import product

import pytest
import torch
from problems import log_probabilities, seeded
from sampling_laws import DRAWS, check_order_and_sets

import swor
from swor.samplers import products
from swor.samplers._beams import search_beams


@pytest.mark.parametrize("way", ["_from_table", "_from_stream", "_from_search"])
def test_all_ways_through_a_product_have_the_same_law(way):
    log_probs = log_probabilities(2, 3, scale=1.5)
    model = swor.Factorized(log_probs.expand(DRAWS, 2, 3))
    found = getattr(model, way)(2, seeded())
    law = {x: log_probs[0, x[0]] + log_probs[1, x[1]] for x in product(range(3), repeat=2)}
    check_order_and_sets(found.value, law, 2)
    total = torch.logaddexp(found.log_p.logsumexp(-1), found.log_rest)
    assert total.abs().max() <= 1e-12


def test_a_stream_goes_on_where_its_draws_repeat():
    """Nearly all mass on one outcome: every stream falls short, and the search completes it."""
    log_probs = torch.tensor([[0.0, -20.0, -25.0], [0.0, -21.0, -22.0]]).double().log_softmax(-1)
    found = swor.Factorized(log_probs.expand(5000, 2, 3))._from_stream(3, seeded())
    law = {x: log_probs[0, x[0]] + log_probs[1, x[1]] for x in product(range(3), repeat=2)}
    check_order_and_sets(found.value, law, 3)
    for row, rest in zip(found.value[:5].tolist(), found.log_rest[:5], strict=True):
        others = [law[x] for x in law if list(x) not in row]
        assert torch.allclose(rest, torch.stack(others).logsumexp(0), rtol=0, atol=1e-12)


def test_mass_outside_a_sample_of_a_product_does_not_cancel():
    log_probs = (torch.tensor([[0.0, -30.0], [0.0, -35.0], [0.0, -60.0]]).double()).log_softmax(-1)
    value = torch.tensor([[[0, 0, 0], [1, 0, 0]]])
    outside = products.log_mass_outside_product(log_probs[None], value)
    expected = [x for x in product(range(2), repeat=3) if list(x) not in value[0].tolist()]
    exact = swor.Factorized(log_probs).log_prob(torch.tensor(expected)).logsumexp(-1)
    assert torch.allclose(outside, exact, rtol=1e-12)


def test_twenty_variables_of_ten_categories():
    log_probs = torch.full((50, 20, 10), 0.1).log()
    sample = swor.stochastic_beam_search(swor.Factorized(log_probs), 4, generator=seeded())
    assert torch.allclose(sample.log_p, torch.tensor(-20 * math.log(10)), atol=1e-4)
    weights = swor.unordered_set(sample)
    assert torch.allclose(weights.weight, torch.tensor(0.25), atol=1e-5)


def test_a_search_over_many_categories_that_all_beams_share():
    log_probs = log_probabilities(2, 3, 300, scale=2.0)
    found, _ = search_beams(swor.Factorized(log_probs), 5, generator=seeded())
    drawn = {tuple(x) for x in found.value[0].tolist()}
    assert len(drawn) == 5
    log_p = log_probs.gather(-1, found.value.mT).sum(-2)
    assert torch.allclose(found.log_p, log_p, rtol=0, atol=1e-12)
    total = found.log_p.exp().sum(-1) + found.log_rest.exp()
    assert torch.allclose(total, torch.ones_like(total), rtol=0, atol=1e-12)


@pytest.mark.parametrize("k", [3, 5, 40])
def test_a_masked_product_with_fewer_than_k_outcomes_is_refused(k):
    """Two of 4096 outcomes are possible, so no stream and no search can find more."""
    log_probs = torch.zeros(4, 12, 2)
    log_probs[:, 1:, 1] = -torch.inf
    with pytest.raises(ValueError, match="outcomes of positive probability"):
        swor.stochastic_beam_search(swor.Factorized(log_probs.log_softmax(-1)), k)


@pytest.mark.parametrize("scale, way", [(0.5, "_from_stream"), (30.0, "_from_search")])
def test_draws_that_would_often_repeat_themselves_come_from_a_search(scale, way, monkeypatch):
    """Of a stream, nearly all draws would be wasted, and the mass outside takes k² · n numbers."""
    used = []
    for name in ("_from_stream", "_from_search"):
        method = getattr(swor.Factorized, name)

        def recorded(self, *args, name=name, method=method, **options):
            used.append(name)
            return method(self, *args, **options)

        monkeypatch.setattr(swor.Factorized, name, recorded)
    product = swor.Factorized((scale * log_probabilities(4, 20, 2)).log_softmax(-1))
    sample = swor.stochastic_beam_search(product, 50, generator=seeded())
    assert used == [way]
    assert all(len({tuple(x) for x in row}) == 50 for row in sample.value.tolist())
    total = sample.log_p.exp().sum(-1) + sample.log_rest.exp()
    assert torch.allclose(total, torch.ones_like(total), rtol=1e-12, atol=0)
