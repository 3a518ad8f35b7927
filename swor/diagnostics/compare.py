"""A comparison of estimators on the user's own model."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.distributions import Distribution

from swor._checks import check_count, check_k
from swor.diagnostics._bias import Reference, exact_reference, mean_of, z_score
from swor.diagnostics._gradients import looped
from swor.diagnostics.comparison import ComparedEstimator, Comparison, Performance
from swor.diagnostics.moments import (
    WARM_UP,
    GradientMoments,
    gradient_moments,
    lookup,
    prepare,
)
from swor.estimators.estimator import Estimator, EstimatorLike
from swor.types import Cost

TIMED = 5


@dataclass(frozen=True)
class _Problem:
    f: Cost
    dist: Distribution
    parameters: Sequence[Tensor]
    repeats: int
    warm_up: int
    generator: torch.Generator | None


def compare(
    estimators: Iterable[str] | Mapping[str, EstimatorLike],
    f: Cost,
    dist: Distribution,
    *,
    parameters: Iterable[Tensor],
    k: int = 4,
    evaluations: int | None = None,
    repeats: int = 1000,
    warm_up: int = WARM_UP,
    generator: torch.Generator | None = None,
) -> Comparison:
    r"""Measure bias, variance, evaluations and time of estimators on your own model.

    The variance is $\log \text{tr} \, \text{Cov}[\nabla]$, measured by :func:`swor.gradient_moments`, both at
    equal k and at equal numbers of evaluations of f. In the second case, each estimator has the largest k
    that does not need more evaluations. The bias is a z-score of the mean gradient, relative to the exact
    gradient if the domain can be enumerated, and otherwise relative to the mean of the other unbiased
    estimators. Estimators that are not defined for the distribution or for k are left out, and the result
    names them.

    Use it to choose an estimator for your problem. An estimator that learns, such as RELAX, is trained for
    ``warm_up`` steps before it is measured, and the table says so.

    Args:
        estimators: names in ESTIMATORS, or a mapping from names to callables with the same contract.
        f: the cost, from values (*batch, k, *event) to (*batch, k).
        dist: Categorical, OneHotCategorical, Bernoulli, or Independent of these.
        parameters: the tensors to differentiate with respect to, such as ``model.parameters()``.
        k: the number of samples, at equal k.
        evaluations: the number of evaluations of f, at equal evaluations. By default it is the largest
            number that any of the estimators needs at k.
        repeats: the number of estimates of each estimator.
        warm_up: the number of training steps of estimators that learn.
        generator: the source of randomness.

    Returns:
        The result; ``print`` it, or call ``recommend()``, ``to_frame()`` or ``plot()``.

    >>> logits = torch.zeros(6, requires_grad=True)
    >>> dist = torch.distributions.Categorical(logits=logits)
    >>> names = ["unordered_set", "rloo"]
    >>> result = compare(names, lambda x: x / 6, dist, parameters=[logits], k=3, repeats=200)
    >>> tuple(row.name for row in result.rows)
    ('unordered_set', 'rloo')
    """
    check_k(k)
    named = _by_name(estimators)
    problem = _Problem(f, dist, list(parameters), repeats, warm_up, generator)
    left_out = {name: why for name, e in named.items() if (why := _unfit(e, dist, k))}
    named = {name: e for name, e in named.items() if name not in left_out}
    if not named:
        raise ValueError(
            f"no estimator is left to compare: {left_out}; expected at least one that is defined for "
            "this distribution and k. Name other estimators, or change k."
        )
    used = {name: _evaluations(e, problem, k) for name, e in named.items()}
    budget = max(used.values()) if evaluations is None else evaluations
    check_count("evaluations", budget)
    ks = {name: _largest_k(e, problem, budget) for name, e in named.items()}
    at_k = {name: _moments(e, problem, k) for name, e in named.items()}
    reference = exact_reference(f, dist, problem.parameters)
    unbiased = {n: m for n, m in at_k.items() if _unbiased(named[n])}

    def row(name: str) -> ComparedEstimator:
        against = reference or mean_of(unbiased, without=name)
        estimator, k_equal = named[name], ks[name]
        first = _measure(estimator, problem, k, at_k[name], against)
        if k_equal is None or k_equal == k:
            return ComparedEstimator(name, _unbiased(estimator), first, first if k_equal else None)
        moments = _moments(estimator, problem, k_equal)
        second = _measure(estimator, problem, k_equal, moments, against)
        return ComparedEstimator(name, _unbiased(estimator), first, second)

    rows = tuple(row(name) for name in named)
    return Comparison(rows, k, budget, repeats, reference is not None, left_out)


def _by_name(estimators: Iterable[str] | Mapping[str, EstimatorLike]) -> dict[str, EstimatorLike]:
    if isinstance(estimators, str):
        estimators = [estimators]
    if isinstance(estimators, Mapping):
        return dict(estimators)
    return {name: lookup(name) for name in estimators}


def _unbiased(estimator: EstimatorLike) -> bool | None:
    return estimator.unbiased if isinstance(estimator, Estimator) else None


def _unfit(estimator: EstimatorLike, dist: Distribution, k: int) -> str | None:
    """Return the reason why an estimator cannot be compared, or None if it can."""
    if not isinstance(estimator, Estimator):
        return None
    if not estimator.defined_for(dist):
        return "is not defined for this distribution"
    largest = estimator.largest_k(dist)
    return None if largest is None or k <= largest else f"needs k from 1 to {largest}"


def _evaluations(estimator: EstimatorLike, problem: _Problem, k: int) -> int:
    """Return the evaluations of f per element of the batch, as registered or counted in one call."""
    if isinstance(estimator, Estimator):
        return estimator.evaluations(k, problem.dist)
    counted = 0

    def count(value: Tensor) -> Tensor:
        nonlocal counted
        cost = problem.f(value)
        counted += cost.shape[-1]
        return cost

    estimator(count, problem.dist, k, generator=problem.generator)
    return counted


def _largest_k(estimator: EstimatorLike, problem: _Problem, budget: int) -> int | None:
    """Return the largest k within a number of evaluations; None if even k = 1 needs more."""
    largest = budget
    if isinstance(estimator, Estimator):
        largest = min(budget, estimator.largest_k(problem.dist) or budget)
    return next((k for k in range(largest, 0, -1) if _fits(estimator, problem, k, budget)), None)


def _fits(estimator: EstimatorLike, problem: _Problem, k: int, budget: int) -> bool:
    try:
        return _evaluations(estimator, problem, k) <= budget
    except ValueError:  # a callable that rejects this k, because there are fewer outcomes
        return False


def _moments(estimator: EstimatorLike, problem: _Problem, k: int) -> GradientMoments:
    return gradient_moments(
        estimator,
        problem.f,
        problem.dist,
        problem.parameters,
        k=k,
        repeats=problem.repeats,
        generator=problem.generator,
        warm_up=problem.warm_up,
    )


def _measure(
    estimator: EstimatorLike,
    problem: _Problem,
    k: int,
    moments: GradientMoments,
    reference: Reference | None,
) -> Performance:
    eps = torch.finfo(problem.parameters[0].dtype).eps
    return Performance(
        k,
        _evaluations(estimator, problem, k),
        z_score(moments, reference, eps),
        moments,
        _seconds(estimator, problem, k),
        eps,
    )


def _seconds(estimator: EstimatorLike, problem: _Problem, k: int) -> float:
    """Return the median time of one estimate and its gradient."""
    f, dist, generator = problem.f, problem.dist, problem.generator
    ready, _ = prepare(estimator, f, dist, k, 0, generator)  # training does not change the time
    draw = looped(ready, f, dist, problem.parameters, k, generator)
    draw(1)
    times = []
    for _ in range(TIMED):
        begin = time.perf_counter()
        draw(1)
        times.append(time.perf_counter() - begin)
    return statistics.median(times)
