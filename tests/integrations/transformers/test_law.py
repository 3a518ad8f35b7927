"""Completions of tiny models are drawn from their law, proven against every sequence."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import pytest
import torch
from problems import chi_square, seeded
from tiny_models import DRAWS, LENGTH, NAMES, PAD, log_probs, many, masks, rows, sequences, tiny

import swor
from swor.integrations.transformers import (
    ancestral_completions,
    beam_completions,
    completion_log_probs,
    sample_completions,
)


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("name", NAMES)
def test_sets_of_completions_have_their_law(name, which):
    ids, mask = many(name, which)
    law = log_probs(name, which)
    with torch.no_grad():
        sample = sample_completions(
            tiny(name), ids, mask, k=2, max_new_tokens=LENGTH, generator=seeded()
        )
    observed = Counter(frozenset(rows(x)) for x in sample.value)
    pairs = list(combinations(law, 2))
    values = torch.stack([torch.stack([law[a], law[b]]) for a, b in pairs])
    expected = dict(
        zip(map(frozenset, pairs), swor.log_prob_set(values).exp().tolist(), strict=True)
    )
    assert chi_square(observed, expected, DRAWS) > 1e-3
    assert abs(sum(p.exp() for p in law.values()) - 1) < 1e-12


@pytest.mark.parametrize("small", [256, 1])  # 1: symbols race in blocks
@pytest.mark.parametrize("k", [1, 3, 40])
@pytest.mark.parametrize("name", NAMES)
def test_log_probabilities_and_the_mass_outside(name, k, small, monkeypatch):
    monkeypatch.setattr("swor.samplers._race.LARGEST_WITHOUT_BLOCKS", small)
    ids, mask = masks(name)
    with torch.no_grad():
        sample = sample_completions(
            tiny(name), ids, mask, k=k, max_new_tokens=LENGTH, generator=seeded()
        )
    assert sample.value.shape == (2, k, LENGTH) and sample.scheme == "without_replacement"
    for which in (0, 1):
        law = log_probs(name, which)
        drawn = rows(sample.value[which])
        assert len(set(drawn)) == k
        exact = torch.stack([law[x] for x in drawn])
        assert torch.allclose(sample.log_p[which], exact, rtol=0, atol=1e-12)
        others = torch.stack([p for x, p in law.items() if x not in drawn]).logsumexp(0)
        assert torch.allclose(sample.log_rest[which], others, rtol=0, atol=1e-10)


@pytest.mark.parametrize("small", [256, 1])
def test_order_and_kappa_have_their_law_also_in_blocks(small, monkeypatch):
    monkeypatch.setattr("swor.samplers._race.LARGEST_WITHOUT_BLOCKS", small)
    ids, mask = many("gpt2", 0)
    law = log_probs("gpt2", 0)
    with torch.no_grad():
        sample = sample_completions(
            tiny("gpt2"), ids, mask, k=2, max_new_tokens=LENGTH, generator=seeded(1)
        )
    first = Counter(rows(sample.value[:, 0]))
    assert chi_square(first, {x: float(p.exp()) for x, p in law.items()}, DRAWS) > 1e-3
    likeliest = max(law, key=law.get)
    second = Counter(b for a, b in map(rows, sample.value) if a == likeliest)
    rest = {x: float(p.exp() / -torch.expm1(law[likeliest])) for x, p in law.items()}
    del rest[likeliest]
    assert chi_square(second, rest, second.total()) > 1e-3
    remaining = 1 - sample.log_p[:, 0].exp()
    expected = (1 + 1 / remaining + torch.exp(-sample.log_rest)).mean()
    times = torch.exp(-sample.kappa)
    assert abs((times.mean() - expected) / (times.std() / DRAWS**0.5)) < 4


@pytest.mark.parametrize("name", NAMES)
def test_independent_completions(name):
    ids, mask = many(name, 1)
    with torch.no_grad():
        sample = ancestral_completions(
            tiny(name), ids, mask, k=2, max_new_tokens=LENGTH, generator=seeded()
        )
    law = {x: float(p.exp()) for x, p in log_probs(name, 1).items()}
    assert chi_square(Counter(rows(sample.value.flatten(0, 1))), law, 2 * DRAWS) > 1e-3
    assert swor.rloo(sample).weight.shape == (DRAWS, 2)


@pytest.mark.parametrize("name", NAMES)
def test_beam_search_over_all_completions_ranks_them(name):
    ids, mask = masks(name)
    sample = beam_completions(tiny(name), ids, mask, k=len(sequences(name)), max_new_tokens=LENGTH)
    for which in (0, 1):
        law = log_probs(name, which)
        assert rows(sample.value[which])[:9] == sorted(law, key=law.get, reverse=True)[:9]
    assert swor.risk(sample).weight.shape == sample.log_p.shape


def test_the_same_seed_gives_the_same_completions():
    def draw(seed):
        ids, mask = masks("llama")
        return sample_completions(
            tiny("llama"), ids, mask, k=4, max_new_tokens=LENGTH, generator=seeded(seed)
        ).value

    assert torch.equal(draw(0), draw(0)) and not torch.equal(draw(0), draw(1))


def test_completions_of_one_length_when_nothing_ends_them():
    ids, mask = masks("gpt2")
    sample = sample_completions(tiny("gpt2"), ids, mask, k=9, max_new_tokens=2, eos_token_id=[])
    assert sample.value.shape == (2, 9, 2)
    log_p = completion_log_probs(
        tiny("gpt2"), ids, sample.value, attention_mask=mask, eos_token_id=[]
    )
    assert torch.allclose(log_p, sample.log_p)
    alike = sample_completions(tiny("gpt2"), ids, mask, k=4, max_new_tokens=2, pad_token_id=0)
    assert not (alike.value == PAD).all()
