"""The contract of every estimator in ESTIMATORS, without a line of test code of its own."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import pytest
import torch
from declarations import FEWER, LARGEST_K, made, prove
from proofs import DISTRIBUTIONS, Problem
from torch import Tensor, nn

import swor
from swor.estimators.baselines import Baseline, BaselineInputs
from swor.estimators.estimator import Estimator, lift
from swor.estimators.score_function import ScoreFunctionEstimator

NAMES = list(swor.ESTIMATORS)


def sizes(entry: Estimator, name: str) -> list[int]:
    """Some of the k that an entry allows: the smallest, the largest, and a few between."""
    largest = entry.largest_k(Problem(name).dist) or 5
    return sorted({k for k in (1, 2, 3, largest) if k <= largest})


@pytest.mark.parametrize("name", NAMES)
def test_bias_is_as_declared(name: str) -> None:
    prove(swor.ESTIMATORS[name], FEWER.get(name, LARGEST_K))


def baseline_knows_the_sample(f, dist, k, *, generator=None):  # type: ignore[no-untyped-def]
    drawn = swor.sample(dist, k, replacement=True, generator=generator)
    cost = f(drawn.value)
    return swor.rloo(drawn).loss(cost, baseline=cost.mean(-1, keepdim=True).detach())


def twice_too_large(sample: swor.Sample) -> swor.Weights:
    weights = swor.unordered_set(sample)
    return replace(weights, weight=2.0 * weights.weight)


@dataclass(frozen=True)
class OwnCostInTheMean(Baseline):
    """The mean cost of the whole batch, from which the own cost was not left out."""

    mixes_batch: ClassVar[bool] = True

    def _compute(self, inputs: BaselineInputs) -> Tensor:
        return inputs.cost.mean()


def draws_by_itself(f, dist, k, *, generator=None):  # type: ignore[no-untyped-def]
    """Leave-one-out REINFORCE, unbiased, with draws that no test can intercept."""
    axis = len(dist.batch_shape)
    first = dist.sample((k,))
    value, log_p = first.movedim(0, axis), dist.log_prob(first).movedim(0, axis)
    return swor.rloo(swor.Sample(value, log_p, scheme="with_replacement")).loss(f(value))


def draws_by_itself_as_well(f, dist, k, *, generator=None):  # type: ignore[no-untyped-def]
    return 0.5 * (swor.ESTIMATORS["rloo"](f, dist, k) + draws_by_itself(f, dist, k))


def wrong_at_seven(right: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """An estimator that is right for every k but one."""

    def estimate(f, dist, k, *, generator=None):  # type: ignore[no-untyped-def]
        return (1.1 if k == 7 else 1.0) * right(f, dist, k, generator=generator)

    return estimate


def set_wrong_at_seven(sample: swor.Sample) -> swor.Weights:
    return twice_too_large(sample) if sample.k == 7 else swor.unordered_set(sample)


@dataclass(frozen=True)
class TooManySamples(Baseline):
    """A baseline that can be enumerated, and is right, with one sample only."""

    def _compute(self, inputs: BaselineInputs) -> Tensor:
        k = inputs.cost.shape[-1]
        other = inputs.sampled(1 if k == 1 else 20).mean(-1, keepdim=True)
        return other if k == 1 else other + inputs.cost


with_baseline = partial(
    lift, swor.rloo, swor.Scheme.WITH_REPLACEMENT, unbiased=True, equation="none"
)
without_replacement = partial(
    lift, scheme=swor.Scheme.WITHOUT_REPLACEMENT, unbiased=True, equation="none"
)
enumerated = partial(Estimator, equation="none", proof="enumeration")

WRONG = {
    "said to be biased, and random in the sum": (
        "no draw was intercepted",
        enumerated(False, function=draws_by_itself),
    ),
    "said to be biased, and partly random in the sum": (
        "some draws were not intercepted",
        enumerated(False, function=draws_by_itself_as_well),
    ),
    "a wrong callable, enumerated": (
        "declared unbiased",
        enumerated(True, function=baseline_knows_the_sample),
    ),
    "a wrong rule, enumerated": ("declared unbiased", without_replacement(twice_too_large)),
    "a wrong mixture of a batch, enumerated": (
        "declared unbiased",
        with_baseline(baseline=OwnCostInTheMean()),
    ),
    "a callable that is wrong for one k, enumerated": (
        "declared unbiased",
        enumerated(True, function=wrong_at_seven(swor.ESTIMATORS["rloo"])),
    ),
    "a rule that is wrong for one k, enumerated": (
        "declared unbiased",
        without_replacement(set_wrong_at_seven),
    ),
    "a baseline that is not enumerated, and wrong": (
        r"no case to prove anything with for k in \{2, 3, 4, 5, 6, 7\}",
        with_baseline(baseline=TooManySamples()),
    ),
    "wrong, sampled": (
        "declared unbiased",
        replace(swor.ESTIMATORS["straight_through"], unbiased=True),
    ),
    "a wrong scale, sampled": (
        "declared unbiased",
        Estimator(
            True,
            "none",
            lambda f, dist, k, generator=None: 1.1 * swor.arsm(f, dist, k, generator=generator),
            proof="z-score",
        ),
    ),
    "wrong for one k, sampled": (
        "declared unbiased",
        replace(swor.ESTIMATORS["arsm"], function=wrong_at_seven(swor.arsm)),
    ),
    "unbiased and said to be biased, enumerated": (
        "declared biased",
        replace(swor.ESTIMATORS["unordered_set"], unbiased=False),
    ),
    "unbiased and said to be biased, sampled": (
        "declared biased",
        replace(swor.ESTIMATORS["arsm"], unbiased=False),
    ),
    "unbiased without a proof": (
        "declares the proof None",
        replace(swor.ESTIMATORS["rloo"], proof=None),
    ),
    "defined for nothing": (
        "no case to prove anything",
        replace(swor.ESTIMATORS["rloo"], defined_for=lambda dist: False),
    ),
}
"""Entries that are wrong, and the part of the proof that notices it."""


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_entry_is_noticed(wrong: str) -> None:
    message, entry = WRONG[wrong]
    with pytest.raises(AssertionError, match=message):
        prove(entry)


def estimate_once(entry: Estimator, problem: Problem, k: int) -> tuple[Tensor, int]:
    """An estimate, and how often it evaluated the cost."""
    counted = 0

    def f(x: Tensor) -> Tensor:
        nonlocal counted
        cost = problem.f(x)
        counted += cost.shape[-1]
        return cost

    generator, state = torch.Generator().manual_seed(0), torch.get_rng_state()
    estimate = entry.make(problem.dist, generator=generator)
    value = estimate(f, problem.dist, k, generator=generator)
    assert torch.equal(torch.get_rng_state(), state)  # all randomness is that of the generator
    return value, counted


def check_shapes(entry: Estimator, name: str, dtype: torch.dtype) -> None:
    one_hot = name in ("one_hot", "two_categories", "one_hots")  # torch refuses an empty batch
    for batch in ((), (2, 3), *([] if one_hot else [(0,)])):
        problem = Problem(name, *batch, dtype=dtype)
        for k in sizes(entry, name):
            value, counted = estimate_once(entry, problem, k)
            assert value.shape == batch and value.dtype == dtype
            assert counted == entry.evaluations(k, problem.dist)
            assert problem.moments(value).isfinite().all()


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str
)
@pytest.mark.parametrize("dist", DISTRIBUTIONS)
@pytest.mark.parametrize("name", NAMES)
def test_shapes_dtypes_sizes_and_evaluations(name: str, dist: str, dtype: torch.dtype) -> None:
    entry, problem = swor.ESTIMATORS[name], Problem(dist, dtype=dtype)
    estimate = entry.make(problem.dist)
    if not entry.defined_for(problem.dist):
        with pytest.raises(TypeError, match=name):
            estimate(problem.f, problem.dist, 1)
        return
    check_shapes(entry, dist, dtype)
    largest = entry.largest_k(problem.dist)
    for k in (0, *([] if largest is None else [largest + 1])):
        with pytest.raises(ValueError, match=f"k is {k}"):
            estimate(problem.f, problem.dist, k)


def test_a_wrong_count_of_evaluations_is_noticed() -> None:
    entry = replace(swor.ESTIMATORS["reinforce_greedy"], count=lambda k, dist: k)
    with pytest.raises(AssertionError):
        check_shapes(entry, "categorical", torch.float64)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("dist", ["categorical", "one_hots", "bernoullis"])
@pytest.mark.parametrize("name", NAMES)
def test_low_entropy_leaves_no_nan(name: str, dist: str, dtype: torch.dtype) -> None:
    entry = swor.ESTIMATORS[name]
    problem = Problem(dist, 20, dtype=dtype, logits=40.0 * DISTRIBUTIONS[dist][0].sign())
    if not entry.defined_for(problem.dist):
        pytest.skip(f"{name} is not defined for {dist}")
    for k in sizes(entry, dist):
        assert problem.moments(estimate_once(entry, problem, k)[0]).isfinite().all()


@pytest.mark.parametrize("name", NAMES)
def test_a_seed_decides_everything(name: str) -> None:
    entry, problem = swor.ESTIMATORS[name], Problem("square", 5)
    first, again = (estimate_once(entry, problem, 2)[0] for _ in range(2))
    assert torch.equal(first, again)
    assert torch.equal(problem.moments(first), problem.moments(again))


@pytest.mark.parametrize("name", NAMES)
def test_elements_of_a_batch_have_noise_of_their_own(name: str) -> None:
    entry, problem = swor.ESTIMATORS[name], Problem("square", 50, 50)
    gradient = problem.moments(estimate_once(entry, problem, 1)[0])[..., 1:]
    assert not torch.equal(gradient[0], gradient[1])
    assert not torch.equal(gradient[:, 0], gradient[:, 1])


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_that_of_its_function(name: str) -> None:
    entry, function = swor.ESTIMATORS[name], getattr(swor, name)
    if isinstance(function, ScoreFunctionEstimator):
        assert entry.function is function
    elif entry.rule is not None:
        assert entry.rule is function
    else:
        assert entry.function is function


@pytest.mark.parametrize("name", [n for n, entry in swor.ESTIMATORS.items() if entry.learns])
def test_state_is_a_module_that_is_saved(name: str) -> None:
    entry, problem = swor.ESTIMATORS[name], Problem("square", 3)
    with pytest.raises(TypeError, match=rf'estimator = swor.ESTIMATORS\["{name}"\].make\(dist\)'):
        entry(problem.f, problem.dist, 2)
    module = made(entry, "square")
    assert isinstance(module, nn.Module) and module.state_dict()
    other = entry.make(problem.dist)
    other.load_state_dict(copy.deepcopy(module.state_dict()))
    run = partial(module, problem.f, problem.dist, 2)
    again = partial(other, problem.f, problem.dist, 2)
    values = [call(generator=torch.Generator().manual_seed(5)) for call in (run, again)]
    assert torch.equal(problem.moments(values[0]), problem.moments(values[1]))


@pytest.mark.parametrize("name", [n for n, entry in swor.ESTIMATORS.items() if not entry.learns])
def test_an_estimator_without_state_is_its_own_module(name: str) -> None:
    entry = swor.ESTIMATORS[name]
    assert entry.make(Problem("square").dist) is entry
