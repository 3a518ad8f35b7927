"""Draws in rounds until k are distinct: the law by enumeration, and sources that would spoil it."""

from __future__ import annotations

import math
from collections import defaultdict
from itertools import permutations

import pytest
import torch
from problems import log_probabilities, seeded

import swor

LOG_P = log_probabilities(4, seed=2, scale=1.5)
P = LOG_P.exp().tolist()


class Unscripted(Exception):
    """The script has no draw here; ``law`` has the probabilities of the next one."""

    def __init__(self, law):
        self.law = law


def scripted(script, law_of):
    """A source that draws what a script says, from the law of what was kept before the round."""
    todo = list(script)

    def source(missing, kept):
        if sum(missing) and not todo:
            raise Unscripted(law_of(kept[0]))
        return [[(x, LOG_P[x]) for x in take(m, kept[0])] for m in missing]

    def take(m, kept):
        if len(todo) < m:
            raise Unscripted(law_of(kept))
        drawn = todo[:m]
        del todo[:m]
        return drawn

    return source


def all_samples(k, law_of, *, least=0.0):
    """The probability of every ordered sample, and its distinct.sample(), by following all draws.

    Draws with a probability of at most ``least`` are not followed.
    """
    found, samples, open_scripts = defaultdict(float), {}, [((), 1.0)]
    while open_scripts:
        script, p = open_scripts.pop()
        distinct = swor.DistinctRounds(scripted(script, law_of), 1, generator=seeded())
        try:
            distinct.draw(k)
        except Unscripted as stop:
            further = [((*script, x), p * q) for x, q in stop.law.items() if p * q > least]
            open_scripts.extend(further)
            continue
        order = tuple(distinct.outcomes[0])
        found[order] += p
        samples[order] = distinct.sample()
    return found, samples


def what_is_left(kept):
    rest = math.fsum(P[x] for x in range(4) if x not in kept)
    return {x: P[x] / rest for x in range(4) if x not in kept}


def all_but_the_first(kept):
    rest = math.fsum(P[x] for x in range(4) if x not in kept[:1])
    return {x: P[x] / rest for x in range(4) if x not in kept[:1]}


def anything(kept):
    return dict(enumerate(P))


def uniform(kept):
    return {x: 1 / (4 - len(kept)) for x in range(4) if x not in kept} if kept else anything(kept)


def expected(k):
    return {
        b: swor.log_prob_ordered(LOG_P[list(b)]).exp().item() for b in permutations(range(4), k)
    }


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_rounds_from_what_is_left_have_the_law_of_sampling_without_replacement(k):
    found, samples = all_samples(k, what_is_left)
    law = expected(k)
    assert found.keys() == law.keys()
    assert max(abs(found[b] - law[b]) for b in law) <= 1e-12
    for order, sample in samples.items():
        assert torch.equal(sample.log_p[0], LOG_P[list(order)])
        rest = math.fsum(P[x] for x in range(4) if x not in order)
        assert abs(sample.log_rest.exp().item() - rest) <= 1e-12


@pytest.mark.parametrize("law_of", [anything, all_but_the_first])
def test_a_source_may_leave_out_less_than_was_kept(law_of):
    """Repetitions are dropped, so that a sample may take any number of draws."""
    found, _ = all_samples(2, law_of, least=1e-6)
    law, not_followed = expected(2), 1.0 - sum(found.values())
    assert not_followed <= 1e-2
    assert all(-1e-12 <= law[b] - found[b] <= not_followed for b in law)


def test_topping_up_from_another_distribution_is_noticed():
    found, _ = all_samples(3, uniform)
    law = expected(3)
    assert abs(sum(found.values()) - 1.0) <= 1e-12
    assert max(abs(found[b] - law[b]) for b in law) > 0.01


def categorical(log_probs, generator, leave_out=True, asked=None):
    """A source of the rows of a table."""

    def source(missing, kept):
        if asked is not None:
            asked.append(list(missing))
        draws = []
        for row, m, old in zip(log_probs, missing, kept, strict=True):
            p = row.detach().exp()
            if leave_out:
                p[list(old)] = 0.0
            index = torch.multinomial(p, m, replacement=True, generator=generator) if m else []
            draws.append([(int(i), row[i]) for i in index])
        return draws

    return source


def test_an_element_that_has_fewer_is_drawn_whole():
    """Of four outcomes and of six, six are asked for."""
    masked = torch.cat([LOG_P, torch.full((2,), -torch.inf, dtype=torch.float64)])
    table = torch.stack([masked, torch.zeros(6).double().log_softmax(-1)])
    for seed in range(20):
        distinct = swor.DistinctRounds(categorical(table, seeded(seed)), 2, generator=seeded())
        distinct.draw(6, allow_fewer=True)
        sample, (four, six) = distinct.sample(), distinct.outcomes
        assert sorted(four) == [0, 1, 2, 3] and sorted(six) == list(range(6))
        assert torch.equal(sample.log_p[0, :4], LOG_P[four]) and (sample.value[0, 4:] == 0).all()
        assert (sample.log_p[0, 4:] == -torch.inf).all() and (sample.log_rest == -torch.inf).all()
        cost = torch.tensor([[*four, 0, 0], six], dtype=torch.float64)
        exact = (table.exp() * torch.arange(6)).sum(-1)
        assert (swor.unordered_set(sample).mean(cost) - exact).abs().max() <= 1e-12
    with pytest.raises(ValueError, match=r"only 4 different outcomes.*at least 6.*allow_fewer"):
        swor.DistinctRounds(categorical(table, seeded()), 2).draw(6)


def test_elements_of_the_batch_end_in_different_rounds():
    sure = torch.tensor([8.0, 0.0, 0.0, 0.0]).double().log_softmax(-1)
    table = torch.stack([LOG_P, sure, torch.zeros(4).double().log_softmax(-1)]).requires_grad_()
    asked: list[list[int]] = []
    distinct = swor.DistinctRounds(
        categorical(table, seeded(1), asked=asked), 3, generator=seeded(2)
    )
    distinct.draw(2)
    assert asked[0] == [2, 2, 2] and asked[1][1] == 1 and distinct.rounds == len(asked)
    distinct.draw(1)
    assert distinct.k == 3 and all(len(set(x)) == len(x) == 3 for x in distinct.outcomes)
    sample = distinct.sample()
    assert sample.log_p.shape == (3, 3) and sample.kappa.shape == (3,)
    assert torch.equal(sample.kappa, distinct.sample().kappa)
    for b, order in enumerate(distinct.outcomes):
        assert torch.equal(sample.log_p[b], table[b, order])
    loss = swor.unordered_set(sample).loss(torch.arange(9.0).double().reshape(3, 3)).sum()
    (gradient,) = torch.autograd.grad(loss, table)
    assert gradient.isfinite().all() and (gradient != 0).any()


def test_the_mass_outside_may_come_from_the_source():
    """Of the sure element 1 − Σp would lose what is left."""
    row = torch.tensor([60.0, 1.0, 0.0, 2.0]).double().log_softmax(-1)

    def log_rest(kept):
        return [row[[i for i in range(4) if i not in kept[0]]].logsumexp(0).item()]

    distinct = swor.DistinctRounds(
        categorical(row.unsqueeze(0), seeded()), 1, log_rest=log_rest, generator=seeded()
    )
    distinct.draw(3)
    (left,) = set(range(4)) - set(distinct.outcomes[0])
    assert abs(distinct.log_rest.item() - row[left].item()) <= 1e-12
    distinct.draw(1)
    assert distinct.log_rest.item() == -math.inf
    with pytest.raises(ValueError, match="only 4 different outcomes"):
        distinct.draw(1)
    assert distinct.k == 4 and distinct.sample().k == 4


def test_independent_rounds_end_where_nothing_is_left():
    distinct = swor.DistinctRounds(categorical(LOG_P.unsqueeze(0), seeded(), leave_out=False), 1)
    distinct.draw(9, allow_fewer=True)
    assert sorted(distinct.outcomes[0]) == [0, 1, 2, 3]
    assert distinct.sample().log_rest.item() == -math.inf


def test_more_draws_than_are_missing_change_nothing():
    """A source may fill its batch: the first k distinct ones of a longer stream are the same."""
    distinct = swor.DistinctRounds(lambda missing, kept: [[(x, LOG_P[x]) for x in (3, 3, 1, 0)]], 1)
    distinct.draw(2)
    assert distinct.outcomes == [[3, 1]] and distinct.sample().value.tolist() == [[0, 2]]


def test_a_draw_that_failed_leaves_no_sample():
    distinct = swor.DistinctRounds(categorical(LOG_P.unsqueeze(0), seeded()), 1)
    with pytest.raises(ValueError, match="only 4"):
        distinct.draw(5)
    for use in (distinct.sample, distinct.draw):
        with pytest.raises(RuntimeError, match="ended with an error"):
            use()


def test_sources_that_are_wrong_say_so():
    with pytest.raises(ValueError, match="draws for 1 elements of the batch; expected 2"):
        swor.DistinctRounds(lambda missing, kept: [[(0, -1.0)]], 2).draw()
    with pytest.raises(ValueError, match="no draws for element 0 of the batch; expected 3"):
        swor.DistinctRounds(lambda missing, kept: [[]], 1).draw(3)
    with pytest.raises(ValueError, match=r"sum to 1\.2"):
        swor.DistinctRounds(lambda missing, kept: [[(0, -0.5), (1, -0.5)]], 1).draw(2)
    with pytest.raises(ValueError, match=r"last 51 draws for element 0 .* mass of 0\.99"):
        swor.DistinctRounds(lambda missing, kept: [[(0, -9.0)]], 1).draw(2)
    with pytest.raises(ValueError, match="no outcome yet"):
        swor.DistinctRounds(lambda missing, kept: [[]], 1).sample()
