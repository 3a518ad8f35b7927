"""Samplers of sequences: stochastic beam search, beam search, ancestral sampling."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from problems import chi_square, log_probabilities, seeded
from sampling_laws import DRAWS, check_order_and_sets, tuples
from two_level_sequences import two_levels

import swor


@pytest.mark.parametrize("k", [1, 2, 3])
def test_stochastic_beam_search_over_sequences_of_different_lengths(k):
    model = two_levels((DRAWS,))
    sample = swor.stochastic_beam_search(model, k, generator=seeded())
    law = {key: p.detach() for key, p in two_levels().sequences().items()}
    check_order_and_sets(sample.value, law, k)
    exact = [[law[x].item() for x in row] for row in tuples(sample.value[:500])]
    exact = torch.tensor(exact, dtype=torch.float64)
    assert torch.allclose(sample.log_p[:500], exact, rtol=0, atol=1e-12)
    total = torch.logaddexp(sample.log_p.logsumexp(-1), sample.log_rest)
    assert total.abs().max() <= 1e-12


def test_sequences_carry_gradient():
    model = two_levels((4,))
    sample = swor.stochastic_beam_search(model, 2, generator=seeded())
    (gradient,) = torch.autograd.grad(sample.log_p.sum(), model.first)
    expected = torch.zeros(3).double()
    for row in tuples(sample.value):
        for x in row:
            expected[x[0]] += 1
    assert torch.equal(gradient, expected)


def test_ancestral_sampling_of_sequences():
    model = two_levels((DRAWS,))
    sample = swor.ancestral_sample(model, 1, generator=seeded())
    law = {key: p.exp().item() for key, p in two_levels().sequences().items()}
    observed = Counter(row[0] for row in tuples(sample.value))
    assert chi_square(observed, law, DRAWS) > 1e-3
    assert sample.log_rest is None and sample.kappa is None
    many = swor.ancestral_sample(two_levels((3,)), 5, generator=seeded())
    assert many.value.shape == (3, 5, 2) and many.log_p.shape == (3, 5)


def test_beam_search_finds_the_likeliest():
    model = two_levels((1,))
    sample = swor.beam_search(model, 7)
    assert (sample.log_p.diff(dim=-1) <= 0).all()
    assert sample.kappa is None and (sample.log_rest == -torch.inf).all()
    likeliest = max(two_levels().sequences().items(), key=lambda item: item[1])[0]
    assert tuple(sample.value[0, 0].tolist()) == likeliest


def test_masked_symbols_are_never_taken():
    log_probs = log_probabilities(4, 5, 3)
    log_probs[..., 1:, 2] = -torch.inf
    log_probs = log_probs.log_softmax(-1)
    for k in (1, 5, 3 * 2**4):
        value = swor.stochastic_beam_search(swor.Factorized(log_probs), k).value
        assert (value[..., 1:] < 2).all()


@pytest.mark.parametrize("draw", [swor.stochastic_beam_search, swor.beam_search])
def test_half_precision_does_not_depend_on_whether_gradients_are_enabled(draw):
    for seed in range(12):
        table = (2 * torch.randn(3, 8, generator=seeded(seed))).bfloat16().log_softmax(-1)
        model = Table(table)
        random = draw is swor.stochastic_beam_search
        both = [{"generator": seeded(seed)} if random else {} for _ in range(2)]
        with_gradient = draw(model, 3, **both[0])
        with torch.no_grad():
            found = draw(model, 3, **both[1])
        assert found.log_p.dtype == with_gradient.log_p.dtype == torch.bfloat16
        assert found.log_rest.dtype == torch.bfloat16
        assert torch.equal(found.value, with_gradient.value)
        assert torch.equal(found.log_p, with_gradient.log_p)


@pytest.mark.parametrize("gradients", [True, False])
@pytest.mark.parametrize(
    "draw", [swor.stochastic_beam_search, swor.beam_search, swor.ancestral_sample]
)
def test_log_probabilities_in_half_precision_are_rounded_once(draw, gradients):
    table = torch.tensor([0.9, 0.1]).log().bfloat16().expand(200, 2)
    options = {} if draw is swor.beam_search else {"generator": seeded()}
    with torch.set_grad_enabled(gradients):
        sample = draw(Table(table), 4, **options)
    symbols = torch.arange(200).expand(4, 200)
    exact = table.double()[symbols, sample.value].sum(-1)  # about −58; in bfloat16 it would be −50
    assert torch.allclose(sample.log_p.double(), exact, rtol=2**-8, atol=0.0)
    assert sample.log_p.dtype == torch.bfloat16


@pytest.mark.parametrize(
    "draw", [swor.stochastic_beam_search, swor.beam_search, swor.ancestral_sample]
)
@pytest.mark.parametrize("end", [None, 1])
def test_a_model_may_return_a_single_row_for_all_beams(draw, end):
    class OneRow(Table):
        def step(self, state):
            return [self.table[state[0]].unsqueeze(0), state]  # a list is a pair, too

    OneRow.end = end
    table = log_probabilities(3, 2)
    for seed in range(4):
        options = {} if draw is swor.beam_search else {"generator": seeded(seed)}
        sample = draw(OneRow(table), 4, **options)
        steps = table[torch.arange(3), sample.value]
        if end is not None:  # what follows the end is certain
            ended = (sample.value == end).cumsum(-1) - (sample.value == end).long() > 0
            steps = steps.masked_fill(ended, 0.0)
        assert sample.value.shape == (4, 3)
        assert torch.allclose(sample.log_p, steps.sum(-1), rtol=0, atol=1e-12)


class Table:
    """Independent symbols, whose log-probabilities are the rows of a table."""

    end = None

    def __init__(self, table):
        self.table, self.length = table, len(table)

    def start(self):
        return (0, 1)

    def step(self, state):
        return self.table[state[0]].expand(state[1], -1), state

    def select(self, state, parents, symbols):
        return (state[0] + 1, parents.shape[-1])
