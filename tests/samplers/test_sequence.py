"""Samplers of sequences: stochastic beam search, beam search, ancestral sampling."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import combinations, permutations

import pytest
import torch
from problems import chi_square, log_probabilities, seeded

import swor

DRAWS = 40_000


@dataclass
class TwoLevels:
    """Sequences of one or two symbols over {a, b, end}: a, b, or end; then a, b, or end."""

    first: torch.Tensor  # (3,)
    second: torch.Tensor  # (3, 3), by the first symbol
    batch: tuple[int, ...] = ()
    length: int = 2
    end: int = 2

    def start(self):
        return None

    def step(self, state):
        if state is None:
            return self.first.expand(*self.batch, 1, 3), state
        return self.second[state], state

    def select(self, state, parents, symbols):
        return symbols

    def sequences(self):
        """Every sequence and its log-probability."""
        out = {(2, 2): self.first[2]}
        out |= {(i, j): self.first[i] + self.second[i, j] for i in (0, 1) for j in range(3)}
        return out


def two_levels(batch=(), dtype=torch.float64):
    return TwoLevels(
        log_probabilities(3, seed=1, dtype=dtype).requires_grad_(),
        log_probabilities(3, 3, seed=2, dtype=dtype),
        batch,
    )


def ordered_law(log_p: dict, k):
    """The probability of every ordered sample of k keys."""
    keys = list(log_p)
    law = {}
    for b in permutations(keys, k):
        values = torch.stack([log_p[key] for key in b]).detach()
        others = [log_p[key].detach() for key in keys if key not in b]
        rest = torch.stack(others).logsumexp(0) if others else torch.tensor(-torch.inf).double()
        law[b] = swor.log_prob_ordered(values, rest).exp().item()
    return law


def tuples(value):
    """Hashable samples from values (draws, k) or (draws, k, n)."""
    if value.dim() == 2:
        return [tuple(row) for row in value.tolist()]
    return [tuple(tuple(x) for x in row) for row in value.tolist()]


def check_order_and_sets(value, log_p: dict, k):
    observed = Counter(tuples(value))
    law = ordered_law(log_p, k)
    assert chi_square(observed, law, len(value)) > 1e-3
    sets = Counter(frozenset(b) for b in tuples(value))
    set_law = {}
    for s in combinations(log_p, k):
        values = torch.stack([log_p[key] for key in s]).detach()
        set_law[frozenset(s)] = swor.log_prob_set(values).exp().item()
    assert chi_square(sets, set_law, len(value)) > 1e-3


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
