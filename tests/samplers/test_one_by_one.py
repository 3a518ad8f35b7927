"""Drawing one by one: the law of a sample without replacement, without a look at a value."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from problems import chi_square, log_probabilities, seeded
from sampling_laws import DRAWS, check_order_and_sets

import swor
from swor.samplers._distinct import draw_one_by_one


@pytest.mark.parametrize("size", [1, 2, 4])  # of a block; the last one may not be full
@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("n", [5, 7])
def test_the_law_is_that_of_drawing_without_replacement(n, k, size, monkeypatch):
    monkeypatch.setattr("swor.samplers._distinct.near_root", lambda n: size)
    log_probs = log_probabilities(n, scale=2.0)
    found = draw_one_by_one(log_probs.expand(DRAWS, n), k, seeded())
    check_order_and_sets(found.value, dict(enumerate(log_probs)), k)


def test_what_follows_a_dominant_outcome_keeps_its_law():
    log_probs = torch.tensor([-40.0, 0.0, -41.0, -42.0, -39.0]).log_softmax(-1)
    found = draw_one_by_one(log_probs.expand(DRAWS, 5), 2, seeded())
    assert (found.value[:, 0] == 1).all()
    law = dict(enumerate(log_probs.index_fill(0, torch.tensor(1), -torch.inf).softmax(-1).tolist()))
    assert chi_square(Counter(found.value[:, 1].tolist()), law, DRAWS) > 1e-3


@pytest.mark.parametrize("n, k", [(7, 3), (500, 7), (5, 5), (1, 1), (30, 29)])
def test_what_is_not_drawn_makes_up_the_rest(n, k):
    log_probs = log_probabilities(2, 3, n, scale=3.0)
    found = draw_one_by_one(log_probs, k, seeded())
    assert found.value.shape == (2, 3, k)
    assert (found.value.sort(-1).values.diff(dim=-1) > 0).all()
    assert torch.equal(found.log_p, log_probs.gather(-1, found.value))
    outside = log_probs.scatter(-1, found.value, -torch.inf).logsumexp(-1)
    assert torch.allclose(found.log_rest, outside, rtol=0, atol=1e-12)
    assert (found.kappa == -torch.inf).all() if k == n else found.kappa.isfinite().all()


def test_impossible_outcomes_have_no_mass():
    log_probs = torch.full((43,), -torch.inf)
    log_probs[[3, 42]] = torch.tensor([0.25, 0.75]).log()
    found = draw_one_by_one(log_probs.expand(50, 43), 5, seeded())
    assert (found.value[:, :2].sort(-1).values == torch.tensor([3, 42])).all()
    assert (found.log_p[:, 2:] == -torch.inf).all()
    assert (found.log_rest == -torch.inf).all() and (found.kappa == -torch.inf).all()


def test_compiled_code_draws_one_by_one_and_stays_one_graph(monkeypatch):
    log_probs = log_probabilities(64, 300).float()
    monkeypatch.setattr("swor.samplers._distinct.top_k_outcomes", None)  # the race is not used

    def draw(log_probs):
        sample = swor.gumbel_top_k(log_probs, 3)
        return sample.value, sample.log_p, sample.log_rest

    value, log_p, log_rest = torch.compile(draw, fullgraph=True, backend="aot_eager")(log_probs)
    assert (value.sort(-1).values.diff(dim=-1) > 0).all()
    assert torch.equal(log_p, log_probs.gather(-1, value))
    assert torch.allclose(log_p.exp().sum(-1) + log_rest.exp(), torch.ones(64), atol=1e-5)


@pytest.mark.parametrize("dynamic", [None, True])
def test_compiled_code_takes_any_number_of_outcomes(dynamic):
    def estimate(log_probs, cost):
        sample = swor.gumbel_top_k(log_probs, 3)
        drawn = swor.with_replacement(log_probs, 2).value
        return swor.unordered_set(sample).loss(cost.gather(-1, sample.value)), drawn

    compiled = torch.compile(estimate, fullgraph=True, dynamic=dynamic, backend="eager")
    for n in (10, 20, 3, 33, 5000, 6001):  # the number becomes symbolic when it changes
        loss, drawn = compiled(log_probabilities(4, n), torch.ones(4, n).double())
        assert torch.allclose(loss, torch.ones(4).double())
        assert ((drawn >= 0) & (drawn < n)).all()
    torch._dynamo.reset()
