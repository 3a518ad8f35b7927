"""Independent draws until k are distinct: the law, and what would spoil it."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from itertools import permutations, repeat

import pytest
import torch
from problems import chi_square, log_probabilities, seeded

import swor

LOG_P = log_probabilities(4, seed=2, scale=1.5)


def endless(log_probs=LOG_P, seed=0):
    generator = seeded(seed)
    while True:
        for i in torch.multinomial(
            log_probs.detach().exp(), 64, replacement=True, generator=generator
        ):
            yield f"outcome {int(i)}", log_probs[i]


def test_the_order_of_first_appearance_is_a_sample_without_replacement():
    draws, k, stream = 4000, 2, endless()
    observed = Counter(tuple(swor.distinct_from_stream(stream, k)[0]) for _ in range(draws))
    law = {}
    for b in permutations(range(4), k):
        keys = tuple(f"outcome {i}" for i in b)
        law[keys] = swor.log_prob_ordered(LOG_P[list(b)]).exp().item()
    assert chi_square(observed, law, draws) > 1e-3


def test_the_sample_is_that_of_the_outcomes():
    log_probs = LOG_P.clone().requires_grad_()
    for seed in range(20):
        outcomes, sample = swor.distinct_from_stream(endless(log_probs, seed), 3)
        stream = [x for x, _ in zip(endless(log_probs, seed), range(1000), strict=False)]
        positions = sample.value.tolist()
        assert [stream[i][0] for i in positions] == outcomes
        assert all(stream[i][0] in outcomes for i in range(positions[-1]))
        index = [int(x[-1]) for x in outcomes]
        assert torch.equal(sample.log_p, log_probs[index])
        (missing,) = set(range(4)) - set(index)
        assert torch.allclose(sample.log_rest, LOG_P[missing], rtol=0, atol=1e-12)
        assert sample.kappa is not None and sample.kappa.isfinite()
    loss = swor.unordered_set(sample).loss(torch.arange(3.0, dtype=torch.float64))
    (gradient,) = torch.autograd.grad(loss, log_probs)
    assert (gradient[index] != 0).all() and gradient[missing] == 0


def test_plain_numbers_are_log_probabilities():
    outcomes, sample = swor.distinct_from_stream(zip("abab", repeat(math.log(0.25))), 2)
    assert outcomes == ["a", "b"] and sample.log_p.dtype == torch.float32
    assert torch.allclose(sample.log_rest, torch.tensor(0.5).log())


def test_a_limit_warns_where_it_biases():
    stream = [("a", -0.5), ("a", -0.5), ("b", -2.0)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        outcomes, _ = swor.distinct_from_stream(stream, 2, max_draws=3)
    assert outcomes == ["a", "b"]
    with pytest.warns(UserWarning, match="only 1 of 2 distinct outcomes. Estimates are biased"):
        outcomes, sample = swor.distinct_from_stream(stream, 2, max_draws=2)
    assert outcomes == ["a"] and sample.k == 1


def test_the_bias_of_a_limit_is_real():
    """E[f] from at most two draws, by enumeration: the weights of a shorter sample do not know why."""
    p, f = (
        torch.tensor([0.7, 0.2, 0.1], dtype=torch.float64),
        torch.tensor([0.0, 1.0, 3.0]).double(),
    )
    mean = 0.0
    for i in range(3):
        for j in range(3):
            stream = [(i, p[i].log()), (j, p[j].log())]
            with warnings.catch_warnings(action="ignore"):
                outcomes, sample = swor.distinct_from_stream(stream, 2, max_draws=2)
            estimate = swor.unordered_set(sample).mean(f[outcomes])
            mean += float(p[i] * p[j] * estimate)
    assert abs(mean - float(p @ f)) > 0.01


def test_a_stream_that_ends_is_an_error():
    with pytest.raises(ValueError, match=r"ended after 1 distinct outcomes; expected k = 2"):
        swor.distinct_from_stream([("a", -0.5)] * 5, 2)
    with pytest.raises(ValueError, match="ended after 0"):
        swor.distinct_from_stream([], 2)


def test_a_stream_without_other_outcomes_ends():
    with pytest.raises(ValueError, match="expected k <= 4"):
        swor.distinct_from_stream(endless(), 5)


def test_log_probabilities_of_another_distribution_are_refused():
    with pytest.raises(ValueError, match=r"sum to 1\.2.*temperature"):
        swor.distinct_from_stream(zip("ab", repeat(math.log(0.6))), 2)


@pytest.mark.parametrize("log_p", [math.nan, -math.inf, 1, torch.zeros(2)])
def test_log_probabilities_are_numbers(log_p):
    with pytest.raises(ValueError, match="log-probability of 'a'"):
        swor.distinct_from_stream([("a", log_p)], 1)


@pytest.mark.parametrize(
    "kind, message",
    [
        (lambda i: torch.tensor([i]), "a tensor, which equals nothing but itself"),
        (lambda i: (torch.tensor(i), 3), "a tensor, which equals nothing but itself"),
        (lambda i: [i], "cannot be hashed"),
    ],
)
def test_outcomes_that_cannot_be_recognised_are_refused(kind, message):
    """Two tensors with the same tokens would count as two outcomes."""
    stream = ((kind(i), math.log(0.25)) for i in (1, 1, 2))
    with pytest.raises(TypeError, match=rf"{message}.*tuple\(tokens.tolist\(\)\)"):
        swor.distinct_from_stream(stream, 2)
    stream = (((i,), math.log(0.25)) for i in (1, 1, 2))
    assert swor.distinct_from_stream(stream, 2)[0] == [(1,), (2,)]
    rounds = swor.DistinctRounds(lambda missing, kept: [[(kind(1), math.log(0.25))]], batch=1)
    with pytest.raises(TypeError, match=message):
        rounds.draw()


def test_a_stream_that_repeats_itself_although_mass_is_left_ends_with_an_error():
    """The log-probabilities of the die are a little too small, so that a seventh side seems to be left."""
    rolls = ((int(i), -1.8) for i in torch.randint(6, (100_000,), generator=seeded()))
    with pytest.raises(
        ValueError, match=r"the last \d+ draws repeat earlier ones, although a mass of"
    ):
        swor.distinct_from_stream(rolls, 7)
