"""Sequences drawn some at a time: an exact sample without replacement after every step."""

from __future__ import annotations

import math
from collections import Counter
from itertools import permutations, product

import pytest
import torch
from problems import chi_square, log_probabilities, seeded

import swor
from swor.samplers.distinct_sequences import Remaining
from swor.samplers.sequence_model import log_prob

BATCH, LENGTH, SYMBOLS, END = 3, 3, 3, 2


class Words:
    """Words of up to three symbols, whose next symbol depends on all before; 2 ends a word."""

    length, end = LENGTH, END

    def __init__(self, batch=(BATCH,), dtype=torch.float64, nonsense=torch.nan):
        mask = torch.zeros(13, SYMBOLS, dtype=torch.bool)
        mask[0, 1] = mask[4, 2] = True
        table = log_probabilities(13, SYMBOLS, seed=3).masked_fill(mask, -torch.inf).log_softmax(-1)
        table[[2, 7, 8, 9]] = nonsense  # what a model says of an impossible prefix does not matter
        self.table = table.to(dtype).requires_grad_()
        self.batch = batch

    def start(self):
        return torch.zeros(*self.batch, 1, dtype=torch.long)

    def step(self, state):
        return self.table[state], state

    def select(self, state, parents, symbols):
        return (3 * state.gather(-1, parents) + 1 + symbols).clamp(max=len(self.table) - 1)

    def law(self):
        """The log-probability of every possible word, filled up with the end."""
        law = {}
        for x in product(range(SYMBOLS), repeat=LENGTH):
            node, log_p = 0, 0.0
            for t, symbol in enumerate(x):
                log_p += self.table[node, symbol].item()
                node = min(3 * node + 1 + symbol, len(self.table) - 1)
                if symbol == END:
                    x = x[: t + 1] + (END,) * (LENGTH - t - 1)
                    break
            if x[0] != 1 and log_p > -math.inf:
                law[x] = log_p
        return law


def rows(value):
    return [[tuple(x) for x in sample] for sample in value.tolist()]


def ordered_law(law, k):
    out = {}
    for b in permutations(law, k):
        rest = [math.exp(p) for x, p in law.items() if x not in b]
        log_p = torch.tensor([law[x] for x in b], dtype=torch.float64)
        log_rest = torch.tensor(math.log(math.fsum(rest)) if rest else -math.inf).double()
        out[b] = swor.log_prob_ordered(log_p, log_rest).exp().item()
    return out


SIZES = [(1, 1, 1, 1, 1), (3, 2), (2, 1, 3), (6,)]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_what_is_left_has_exactly_the_law_of_what_was_not_drawn(sizes):
    model = Words()
    law = model.law()
    words = torch.tensor(list(law)).expand(BATCH, -1, -1)
    sequences = swor.DistinctSequences(model, generator=seeded(1))
    for n in sizes:
        sequences.draw(n)
        with torch.no_grad():
            sample = sequences.sample()
            log_p = log_prob(Remaining(model, sequences._drawn), words)
        for b, drawn in enumerate(rows(sample.value)):
            assert len(set(drawn)) == sequences.k and set(drawn) <= set(law)
            given = torch.tensor([law[x] for x in drawn], dtype=torch.float64)
            assert torch.allclose(sample.log_p[b], given, rtol=0, atol=1e-12)
            left = {x: -math.inf if x in drawn else p for x, p in law.items()}
            left = torch.tensor(list(left.values()), dtype=torch.float64)
            assert torch.allclose(sample.log_rest[b], left.logsumexp(0), rtol=0, atol=1e-12)
            assert torch.allclose(log_p[b], left.log_softmax(0), rtol=0, atol=1e-12)


@pytest.mark.parametrize("sizes", [(1, 1), (2,), (2, 1), (1, 2)], ids=str)
def test_frequencies_are_those_of_a_stochastic_beam_search(sizes):
    draws, k = 20_000, sum(sizes)
    model = Words(batch=(draws,))
    sequences = swor.DistinctSequences(model, generator=seeded())
    with torch.no_grad():
        for n in sizes:
            sequences.draw(n)
        beams = swor.stochastic_beam_search(model, k, generator=seeded(1))
    law = ordered_law(model.law(), k)
    for sample in (sequences.sample(), beams):
        observed = Counter(tuple(b) for b in rows(sample.value))
        assert chi_square(observed, law, draws) > 1e-3


def test_kappa_is_the_next_in_the_race():
    sequences = swor.DistinctSequences(Words(batch=(20_000,)), generator=seeded())
    sequences.draw()
    sequences.draw()
    with torch.no_grad():
        sample = sequences.sample()
        assert torch.equal(sample.kappa, sequences.sample().kappa)
    rest = sample.log_rest.exp()
    expected = 1.0 + 1.0 / (rest + sample.log_p[:, 1].exp()) + 1.0 / rest
    difference = torch.exp(-sample.kappa) - expected
    assert abs(difference.mean() / difference.std()) * math.sqrt(20_000) < 4


@pytest.mark.parametrize("categories", [4, 300])  # 300: the children race in blocks
@pytest.mark.parametrize("batch", [(), (2,), (2, 3), (0,)])
def test_products_of_categoricals(batch, categories):
    log_probs = log_probabilities(*batch, 3, categories, scale=2.0)
    sequences = swor.DistinctSequences(swor.Factorized(log_probs), generator=seeded())
    for n in (1, 4, 2):
        sequences.draw(n)
    sample = sequences.sample()
    assert sample.value.shape == (*batch, 7, 3)
    assert torch.equal(sample.log_p, log_probs.gather(-1, sample.value.mT).sum(-2))
    assert all(len(set(x)) == 7 for x in rows(sample.value.reshape(-1, 7, 3)))
    total = sample.log_p.exp().sum(-1) + sample.log_rest.exp()
    assert torch.allclose(total, torch.ones_like(total), rtol=0, atol=1e-12)


def test_what_is_left_does_not_cancel():
    """All of a thousand sequences but one, with probabilities from 1 to 1e-30."""
    steep = torch.linspace(0.0, -10.0 * math.log(10.0), 10, dtype=torch.float64).log_softmax(-1)
    sequences = swor.DistinctSequences(swor.Factorized(steep.expand(3, 10)), generator=seeded())
    for n in (1, 2, 96, 900):
        sequences.draw(n)
    drawn = {tuple(x) for x in sequences.sample().value.tolist()}
    (last,) = set(product(range(10), repeat=3)) - drawn
    expected = sum(steep[i].item() for i in last)
    assert abs(math.expm1(sequences.log_rest.item() - expected)) <= 1e-12
    sequences.draw()
    assert tuple(sequences.sample().value[-1].tolist()) == last
    assert sequences.log_rest == sequences.sample().kappa == -torch.inf


def test_log_probabilities_carry_gradient():
    model = Words(nonsense=0.0)
    sequences = swor.DistinctSequences(model, generator=seeded())
    sequences.draw(2)
    sequences.draw(2)
    sample = sequences.sample()
    weight = torch.arange(1.0, 13.0, dtype=torch.float64).view(BATCH, 4)
    (ours,) = torch.autograd.grad((sample.log_p * weight).sum(), model.table)
    expected = torch.zeros_like(ours)
    for words, factors in zip(rows(sample.value), weight, strict=True):
        for word, factor in zip(words, factors, strict=True):
            node = 0
            for symbol in word[: word.index(END) + 1] if END in word else word:
                expected[node, symbol] += factor
                node = 3 * node + 1 + symbol
    assert torch.equal(ours, expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_precision_follows_the_model(dtype):
    sequences = swor.DistinctSequences(Words(dtype=dtype), generator=seeded())
    sequences.draw(2)
    sequences.draw(1)
    sample = sequences.sample()
    assert sample.log_p.dtype == sample.log_rest.dtype == sample.kappa.dtype == dtype


def test_more_than_there_are_is_an_error():
    count = len(Words().law())
    sequences = swor.DistinctSequences(Words(), generator=seeded())
    with pytest.raises(ValueError, match="no sequence yet"):
        sequences.sample()
    sequences.draw(2)
    with pytest.raises(ValueError, match=f"n is 10, but .* only {count - 2} .* besides the 2"):
        sequences.draw(10)
    with pytest.raises(ValueError, match="only") as caught:
        sequences.draw(100)
    assert "2 sequences that were drawn before" in caught.value.__notes__[0]
    assert sequences.k == 2
    sequences.draw(count - 2)
    assert (sequences.log_rest == -torch.inf).all()
    with pytest.raises(ValueError, match=f"only 0 .* besides the {count}"):
        sequences.draw()


def test_a_model_that_is_not_normalized_is_refused():
    model = swor.Factorized(torch.zeros(3, 2))
    with pytest.raises(ValueError, match=r"sum to 4\.25; expected 1"):
        swor.DistinctSequences(model).draw(2)
