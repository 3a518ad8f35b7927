"""Both statements about means over pairs, by enumeration."""

from __future__ import annotations

from itertools import permutations, product

import pytest
import torch
from problems import log_probabilities, seeded
from torch import Tensor

import swor
from swor.diagnostics.all_samples import all_samples

LOG_PROBS = log_probabilities(5, seed=3)
PHI = torch.randn(5, 5, 2, generator=seeded(4), dtype=torch.float64)  # any function of two draws


def pair_mean(sample: swor.Sample) -> Tensor:
    """The estimate of E φ from every sample, (samples, 2)."""
    value = sample.value
    phi = PHI[value.unsqueeze(-1), value.unsqueeze(-2)]
    return (swor.pair_weights(sample).unsqueeze(-1) * phi).sum((-2, -3))


@pytest.mark.parametrize("k", [2, 3, 4, 5])
@pytest.mark.parametrize("scheme", ["without_replacement", "with_replacement"])
def test_the_mean_over_pairs_is_unbiased(scheme: str, k: int) -> None:
    every = all_samples(LOG_PROBS, k, swor.Scheme(scheme))
    p = LOG_PROBS.exp()
    expected = torch.einsum("i,j,ijd->d", p, p, PHI)
    mean = every.probability @ pair_mean(every.sample)
    torch.testing.assert_close(mean, expected, rtol=0, atol=1e-13)


def completions(p: Tensor, seen: frozenset[int], k: int) -> dict[frozenset[int], float]:
    """The probabilities of the sets of the first k distinct values of a stream, given those seen so far."""
    left = [i for i in range(len(p)) if i not in seen]
    chances: dict[frozenset[int], float] = {}
    for more in permutations(left, k - len(seen)):
        chance, mass = 1.0, sum(float(p[i]) for i in left)
        for i in more:
            chance *= float(p[i]) / mass
            mass -= float(p[i])
        whole = seen | frozenset(more)
        chances[whole] = chances.get(whole, 0.0) + chance
    return chances


@pytest.mark.parametrize("k", [2, 3, 4])
def test_it_is_the_expectation_of_the_independent_mean_given_the_set(k: int) -> None:
    p = LOG_PROBS.exp()
    draws = torch.tensor(list(product(range(5), repeat=k)))
    independent = pair_mean(swor.Sample(draws, LOG_PROBS[draws], scheme="with_replacement"))
    mass: dict[frozenset[int], float] = {}
    total: dict[frozenset[int], Tensor] = {}
    for row, mean in zip(draws, independent, strict=True):
        chance = float(p[row].prod())
        for whole, then in completions(p, frozenset(row.tolist()), k).items():
            mass[whole] = mass.get(whole, 0.0) + chance * then
            total[whole] = total.get(whole, torch.zeros(2).double()) + chance * then * mean
    sets = list(mass)
    value = torch.tensor([sorted(s) for s in sets])
    rest = torch.stack([1.0 - p[list(s)].sum() for s in sets])
    sample = swor.Sample(value, LOG_PROBS[value], rest.log(), scheme="without_replacement")
    given = torch.stack([total[s] / mass[s] for s in sets])
    torch.testing.assert_close(pair_mean(sample), given, rtol=0, atol=1e-12)


@pytest.mark.parametrize("k", [2, 3, 4])
def test_distinct_samples_have_less_variance(k: int) -> None:
    variances = []
    for scheme in (swor.Scheme.WITHOUT_REPLACEMENT, swor.Scheme.WITH_REPLACEMENT):
        every = all_samples(LOG_PROBS, k, scheme)
        means = pair_mean(every.sample)
        variances.append(every.probability @ (means - every.probability @ means).square())
    assert (variances[0] < variances[1]).all()


def test_a_single_sample_has_no_pairs() -> None:
    with pytest.raises(ValueError, match="expected k >= 2"):
        swor.pair_weights(swor.gumbel_top_k(LOG_PROBS, 1))
    with pytest.raises(ValueError, match="pair_weights was given a sample"):
        swor.pair_weights(swor.top_k_and_sample(LOG_PROBS, 2))
