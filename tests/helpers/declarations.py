"""Proofs of what an entry of ESTIMATORS declares about its bias, for every k up to a largest one."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from all_draws import WHOLE, Law
from proofs import (
    COMBINATIONS,
    Estimate,
    Problem,
    draws_of,
    exact,
    expected,
    expected_in_batch,
    law_of,
    z_scores,
)
from torch import nn

from swor.estimators.estimator import Estimator
from swor.samplers.distributions import factorized

SMALL = ("categorical", "one_hot", "bernoulli", "two_categories")
PRODUCTS = ("categoricals", "one_hots", "bernoullis", "square")
SEVEN = ("seven", "seven_one_hot")  # the second for entries that are not defined for the first
LARGEST_K = 7  # what an entry declares is proven for every k up to this
FEWER = {
    # A sample of the baseline for every term: the number of combinations is n^k times larger.
    "sum_and_sample_sampled_baseline": 3,
    "deterministic_sum_and_sample_sampled_baseline": 5,
}
BIAS, ROUNDING = 1e-4, 1e-12
FAR, NEAR = 8.0, 4.0  # standard errors: a bias, and none


def made(entry: Estimator, name: str) -> Estimate:
    """The estimator with a state as training might leave it: unbiased means unbiased for any."""
    problem = Problem(name, 1)
    estimate = entry.make(problem.dist, generator=torch.Generator().manual_seed(0))
    if isinstance(estimate, nn.Module):
        noise = torch.Generator().manual_seed(1)
        estimate(problem.f, problem.dist, 2, generator=noise)  # to remember
        with torch.no_grad():
            for parameter in estimate.parameters():
                parameter += 0.3 * torch.randn(
                    parameter.shape, generator=noise, dtype=parameter.dtype
                )
    return estimate


Case = tuple[str, int, Law]


def cases(entry: Estimator, largest: int = LARGEST_K) -> Iterator[Case]:
    """Distributions and k for which all draws can be enumerated, by the whole law if they are few."""
    seven = next(
        name for name in SEVEN if entry.defined_for(Problem(name).dist) or name == SEVEN[-1]
    )
    for name in (*SMALL, *PRODUCTS, seven):
        dist = Problem(name).dist
        if not entry.defined_for(dist):
            continue
        estimate = made(entry, name)
        for k in range(1, 1 + min(largest, entry.largest_k(dist) or largest)):
            for law in laws(entry, estimate, name, k):
                if fits(entry, estimate, name, k, law):
                    yield name, k, law
                    break


def laws(entry: Estimator, estimate: Estimate, name: str, k: int) -> Iterator[Law]:
    """The ways to enumerate all draws, the most complete first."""
    dist = Problem(name).dist
    if factorized(dist).outcomes ** k <= 100:
        yield WHOLE
    if name in SMALL or (name in SEVEN and entry.largest_k(dist)):
        yield law_of(estimate, name, k)


def fits(entry: Estimator, estimate: Estimate, name: str, k: int, law: Law) -> bool:
    batch = 2 if entry.mixes_batch else None
    combinations = math.prod(draws_of(estimate, name, k, batch, law))
    return combinations <= (100 if entry.mixes_batch else COMBINATIONS)


def enumerated_bias(entry: Estimator, name: str, k: int, law: Law) -> float:
    """The largest bias of value and gradient, as a sum over all draws."""
    mean = (expected_in_batch if entry.mixes_batch else expected)(made(entry, name), name, k, law)
    return float((mean - exact(name)).abs().max())


def sampled_bias(entry: Estimator, name: str, k: int) -> float:
    """The largest bias of value and gradient in standard errors."""
    draws = 100_000 if k == 1 else 100_000 // LARGEST_K
    return float(z_scores(made(entry, name), name, k, exact(name), draws=draws).max())


def sampled_cases(entry: Estimator) -> Iterator[tuple[str, int]]:
    """Distributions with one sample, and the first of them with every other k."""
    names = ("categorical", "one_hot", "bernoulli", "one_hots", "square")
    defined = [name for name in names if entry.defined_for(Problem(name).dist)]
    yield from ((name, 1) for name in defined)
    yield from ((name, k) for name in defined[:1] for k in range(2, LARGEST_K + 1))


def prove(entry: Estimator, largest: int = LARGEST_K) -> None:
    """Prove that an entry is unbiased, or show that it is biased, in the way that it declares."""
    biases: dict[tuple[str, int], float]
    if entry.proof == "enumeration":
        biases = {case[:2]: enumerated_bias(entry, *case) for case in cases(entry, largest)}
        none, some = ROUNDING, BIAS
    elif entry.proof == "z-score":
        biases = {case: sampled_bias(entry, *case) for case in sampled_cases(entry)}
        none, some = NEAR, FAR
    else:
        raise AssertionError(f"the entry declares the proof {entry.proof!r}")
    missing = {*range(1, largest + 1)} - {k for _, k in biases}
    assert not missing, f"there is no case to prove anything with for k in {missing}"
    if entry.unbiased:
        assert max(biases.values()) < none, f"declared unbiased: {biases}"
    else:
        assert max(biases.values()) > some, f"declared biased, and not shown to be: {biases}"
