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
from swor.diagnostics.comparison import Comparison, Measurement, Row
from swor.diagnostics.moments import (
    WARM_UP,
    GradientMoments,
    gradient_moments,
    lookup,
    prepare,
)
from swor.estimators.estimator import Estimate, Estimator
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
    estimators: Iterable[str] | Mapping[str, Estimate],
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
    entries = _entries(estimators)
    problem = _Problem(f, dist, list(parameters), repeats, warm_up, generator)
    left_out = {name: why for name, e in entries.items() if (why := _unfit(e, dist, k))}
    entries = {name: e for name, e in entries.items() if name not in left_out}
    if not entries:
        raise ValueError(
            f"no estimator is left to compare: {left_out}; expected at least one that is defined for "
            "this distribution and k. Name other estimators, or change k."
        )
    used = {name: _evaluations(e, problem, k) for name, e in entries.items()}
    budget = max(used.values()) if evaluations is None else evaluations
    check_count("evaluations", budget)
    ks = {name: _largest_k(e, problem, budget) for name, e in entries.items()}
    at_k = {name: _moments(e, problem, k) for name, e in entries.items()}
    reference = exact_reference(f, dist, problem.parameters)
    unbiased = {n: m for n, m in at_k.items() if _unbiased(entries[n])}

    def row(name: str) -> Row:
        against = reference or mean_of(unbiased, without=name)
        entry, k_equal = entries[name], ks[name]
        first = _measure(entry, problem, k, at_k[name], against)
        if k_equal is None or k_equal == k:
            return Row(name, _unbiased(entry), first, first if k_equal else None)
        moments = _moments(entry, problem, k_equal)
        return Row(
            name, _unbiased(entry), first, _measure(entry, problem, k_equal, moments, against)
        )

    rows = tuple(row(name) for name in entries)
    return Comparison(rows, k, budget, repeats, reference is not None, left_out)


def _entries(estimators: Iterable[str] | Mapping[str, Estimate]) -> dict[str, Estimate]:
    if isinstance(estimators, str):
        estimators = [estimators]
    if isinstance(estimators, Mapping):
        return dict(estimators)
    return {name: lookup(name) for name in estimators}


def _unbiased(entry: Estimate) -> bool | None:
    return entry.unbiased if isinstance(entry, Estimator) else None


def _unfit(entry: Estimate, dist: Distribution, k: int) -> str | None:
    """Return why an estimator cannot be compared, or None if it can."""
    if not isinstance(entry, Estimator):
        return None
    if not entry.defined_for(dist):
        return "is not defined for this distribution"
    largest = entry.largest_k(dist)
    if k < entry.smallest_k or (largest is not None and k > largest):
        return f"needs k from {entry.smallest_k} to {largest or 'any'}"
    return None


def _evaluations(entry: Estimate, problem: _Problem, k: int) -> int:
    """Return the evaluations of f per element of the batch, as registered or counted in one call."""
    if isinstance(entry, Estimator):
        return entry.evaluations(k, problem.dist)
    counted = 0

    def count(value: Tensor) -> Tensor:
        nonlocal counted
        cost = problem.f(value)
        counted += cost.shape[-1]
        return cost

    entry(count, problem.dist, k, generator=problem.generator)
    return counted


def _largest_k(entry: Estimate, problem: _Problem, budget: int) -> int | None:
    """Return the largest k within a number of evaluations; None if even the smallest k needs more."""
    smallest, largest = 1, budget
    if isinstance(entry, Estimator):
        smallest = entry.smallest_k
        largest = min(budget, entry.largest_k(problem.dist) or budget)
    return next(
        (k for k in range(largest, smallest - 1, -1) if _fits(entry, problem, k, budget)), None
    )


def _fits(entry: Estimate, problem: _Problem, k: int, budget: int) -> bool:
    try:
        return _evaluations(entry, problem, k) <= budget
    except ValueError:  # a callable that rejects this k, because there are fewer outcomes
        return False


def _moments(entry: Estimate, problem: _Problem, k: int) -> GradientMoments:
    return gradient_moments(
        entry,
        problem.f,
        problem.dist,
        problem.parameters,
        k=k,
        repeats=problem.repeats,
        generator=problem.generator,
        warm_up=problem.warm_up,
    )


def _measure(
    entry: Estimate,
    problem: _Problem,
    k: int,
    moments: GradientMoments,
    reference: Reference | None,
) -> Measurement:
    eps = torch.finfo(problem.parameters[0].dtype).eps
    return Measurement(
        k,
        _evaluations(entry, problem, k),
        z_score(moments, reference, eps),
        moments,
        _seconds(entry, problem, k),
        eps,
    )


def _seconds(entry: Estimate, problem: _Problem, k: int) -> float:
    """Return the median time of one estimate and its gradient."""
    f, dist, generator = problem.f, problem.dist, problem.generator
    estimate, _ = prepare(entry, f, dist, k, 0, generator)  # training does not change the time
    draw = looped(estimate, f, dist, problem.parameters, k, generator)
    draw(1)
    times = []
    for _ in range(TIMED):
        begin = time.perf_counter()
        draw(1)
        times.append(time.perf_counter() - begin)
    return statistics.median(times)
