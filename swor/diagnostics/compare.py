"""A comparison of estimators on the user's own model."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.distributions import Distribution

from swor._checks import check_count, check_k, kind
from swor.diagnostics._bias import UNTESTED, Blocks, Reference, SquaredBias
from swor.diagnostics._gradients import as_parameters, count, enumerated, looped
from swor.diagnostics._hits import enough
from swor.diagnostics._performance import ComparedEstimator, Performance
from swor.diagnostics._progress import Advance, progress_bar
from swor.diagnostics._streaming import GradientMoments
from swor.diagnostics.comparison import Comparison
from swor.diagnostics.moments import WARM_UP, Given, lookup, measure, name_of, prepare
from swor.estimators.estimator import Estimator, EstimatorLike
from swor.estimators.registry import ESTIMATORS
from swor.samplers.distributions import sample
from swor.types import Cost

TIMED = 5
INTERRUPTED = "was not measured before the interruption"


@dataclass(frozen=True)
class _Problem:
    f: Cost
    dist: Distribution
    parameters: Sequence[Tensor]
    repeats: int
    warm_up: int
    generator: torch.Generator | None


def compare(
    estimators: Iterable[Given] | Mapping[str, Given],
    f: Cost,
    dist: Distribution,
    *,
    parameters: Iterable[Tensor],
    k: int = 4,
    evaluations: int | None = None,
    repeats: int = 1000,
    warm_up: int = WARM_UP,
    generator: torch.Generator | None = None,
    progress: bool = True,
) -> Comparison:
    r"""Measure bias, variance, evaluations and time of estimators on your own model.

    The variance is $\log \text{tr} \, \text{Cov}[\nabla]$, measured by :func:`swor.gradient_moments`, both at
    equal k and at equal numbers of evaluations of f. In the second case, each estimator has the largest k
    that does not need more evaluations. Estimators that are not defined for the distribution or for k are
    left out, and the result names them.

    An unbiased estimator of ESTIMATORS is proven to be unbiased, and no measurement overrules a proof. The
    squared bias $\|E[g] - \nabla\|^2$ of all other estimators is measured, relative to the exact
    gradient if the domain can be enumerated and f is not random, and otherwise relative to the mean of the
    estimators that are proven to be unbiased.

    A bias or a variance that too few draws decide is not shown, such as that of independent samples from a
    very confident policy, or that of any samples if a rare outcome has a large cost. If the domain can be
    enumerated, such an outcome is noticed even if it is never drawn; the gradient of its log-probability is
    taken to be as large as that of the others. A variance that is known to be infinite is shown as such.

    Use it to choose an estimator for your problem. An estimator that learns, such as RELAX, is trained for
    ``warm_up`` steps before it is measured, and the table says so. Ctrl-C ends the comparison early; the
    result has the estimators that were measured by then.

    Args:
        estimators: names in ESTIMATORS, entries, or rules of the library; or a mapping from names of your
            choice to these or to callables with the same contract.
        f: the cost, from values (*batch, k, *event) to (*batch, k).
        dist: Categorical, OneHotCategorical, Bernoulli, or Independent of these.
        parameters: the tensors to differentiate with respect to, such as ``model.parameters()``, or one
            tensor.
        k: the number of samples, at equal k.
        evaluations: the number of evaluations of f, at equal evaluations. By default it is k, and no
            estimator has more than k samples.
        repeats: the number of estimates of each estimator.
        warm_up: the number of training steps of estimators that learn.
        generator: the source of randomness.
        progress: whether to show a progress bar if the standard error stream is a terminal.

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
    problem = _Problem(f, dist, as_parameters(parameters), repeats, warm_up, generator)
    left_out = {name: why for name, e in named.items() if (why := _unfit(e, dist, k))}
    named = {name: e for name, e in named.items() if name not in left_out}
    if not named:
        raise ValueError(
            f"no estimator is left to compare: {left_out}; expected at least one that is defined for "
            "this distribution and k. Name other estimators, or change k."
        )
    budget = k if evaluations is None else evaluations
    check_count("evaluations", budget)
    ks = {name: (k, _largest_k(e, problem, budget)) for name, e in named.items()}
    rows, exact = _measure_all(named, problem, ks, progress)
    left_out |= {name: INTERRUPTED for name in named if name not in rows}
    ordered = tuple(rows[name] for name in named if name in rows)
    return Comparison(ordered, k, budget, repeats, exact, left_out)


def _measure_all(
    named: Mapping[str, EstimatorLike],
    problem: _Problem,
    ks: Mapping[str, tuple[int, int | None]],
    progress: bool,
) -> tuple[dict[str, ComparedEstimator], bool]:
    """Return what was measured of each estimator, and whether the true gradient is known.

    Each has a k at equal k and another at equal evaluations, which is None if even k = 1 needs more.
    """
    rows: dict[str, ComparedEstimator] = {}
    estimates = sum(problem.repeats * len({*pair} - {None}) for pair in ks.values())
    bench = _Bench(problem, pools=not all(map(_proven_unbiased, named.values())))
    try:
        with progress_bar(estimates, show=progress) as advance:
            # The others are compared with the mean of those that are proven to be unbiased.
            for name in sorted(named, key=lambda name: not _proven_unbiased(named[name])):
                rows[name] = bench.row(name, named[name], *ks[name], advance)
    except KeyboardInterrupt:
        if not rows:
            raise
    return rows, bench.domain is not None


class _Bench:
    """Measures estimators on a problem, and compares their mean gradients with a reference.

    The reference is the true gradient if it is known. Otherwise it is the mean of the unbiased estimators so
    far, if that is wanted.
    """

    def __init__(self, problem: _Problem, *, pools: bool) -> None:
        self.problem = problem
        self.domain = enumerated(problem.f, problem.dist, problem.parameters)
        self.reference = Reference(None if self.domain is None else self.domain.gradient)
        self.pools = pools and self.domain is None
        self.score = _score(problem)

    def row(
        self, name: str, estimator: EstimatorLike, k: int, equal: int | None, advance: Advance
    ) -> ComparedEstimator:
        def at(size: int) -> Performance:
            return self.performance(name, estimator, size, advance, pooled=size == k)

        first = at(k)
        second = None if equal is None else first if equal == k else at(equal)
        unbiased = estimator.unbiased if isinstance(estimator, Estimator) else None
        return ComparedEstimator(name, unbiased, _proven(estimator), first, second)

    def performance(
        self, name: str, estimator: EstimatorLike, k: int, advance: Advance, *, pooled: bool
    ) -> Performance:
        p, proven = self.problem, _proven_unbiased(estimator)
        needed = not proven or (self.pools and pooled)
        blocks = Blocks(p.repeats, count(p.parameters), p.parameters[0].device) if needed else None

        def observe(gradients: Tensor) -> None:
            advance(name, len(gradients))
            if blocks is not None:
                blocks.add(gradients)

        advance(name, 0)  # it may be trained first
        moments = measure(
            estimator, p.f, p.dist, p.parameters, k, p.repeats, p.generator,
            warm_up=p.warm_up, observe=observe,
        )  # fmt: skip
        rounding = _rounding(moments, self.score, torch.finfo(p.parameters[0].dtype).eps)
        infinite = isinstance(estimator, Estimator) and estimator.has_infinite_variance(k, p.dist)
        reliable = not infinite and self._enough(moments, estimator, k, rounding)
        bias = UNTESTED
        if blocks is not None and reliable:
            if proven:
                self.reference.add(blocks.means(), max(float(moments.trace), rounding))
            else:
                bias, reliable = self._bias(blocks.means(), rounding)
        evaluations, seconds = _evaluations(estimator, p, k), _seconds(estimator, p, k)
        return Performance(k, evaluations, bias, moments, seconds, rounding, reliable, infinite)

    def _enough(
        self, moments: GradientMoments, estimator: EstimatorLike, k: int, rounding: float
    ) -> bool:
        """Return whether enough draws decide what was measured, and missed nothing that is known."""
        if not enough(moments, estimator, self.problem.dist, k, rounding, self.domain):
            return False
        return not (_proven_unbiased(estimator) and self.reference.missed(moments, rounding))

    def _bias(self, means: Tensor, rounding: float) -> tuple[SquaredBias, bool]:
        """Return the squared bias, and whether what deviates can be a bias rather than what draws missed."""
        bias = self.reference.squared_bias(means)
        if self.reference.doubted and bias.exceeds(rounding):
            return UNTESTED, False
        return bias, True


def _proven(estimator: EstimatorLike) -> bool:
    """Return whether the tests of the library prove what an estimator declares about its bias."""
    return any(estimator is entry for entry in ESTIMATORS.values())


def _proven_unbiased(estimator: EstimatorLike) -> bool:
    return isinstance(estimator, Estimator) and estimator.unbiased and _proven(estimator)


def _score(problem: _Problem) -> float:
    """Return the squared length of the gradient of log p, averaged over the batch, at one draw."""
    log_p = sample(problem.dist, 1, replacement=True, generator=problem.generator).log_p.mean()
    if not log_p.requires_grad:  # only f depends on the parameters
        return 0.0
    gradients = torch.autograd.grad(
        log_p, problem.parameters, retain_graph=True, materialize_grads=True
    )
    return sum(float(g.double().square().sum()) for g in gradients)


def _rounding(moments: GradientMoments, score: float, eps: float) -> float:
    """Return the variance of the gradient that rounding alone may cause.

    The gradient is rounded, and so are the costs from which a baseline is subtracted.
    """
    gradient = float(moments.mean.square().sum() + moments.trace)
    cost = float(moments.value.square() + moments.value_variance)
    return eps**2 * (256**2 * gradient + 4**2 * score * cost)


def _by_name(estimators: Iterable[Given] | Mapping[str, Given]) -> dict[str, EstimatorLike]:
    if isinstance(estimators, Mapping):
        return {name: lookup(given) for name, given in estimators.items()}
    several = [estimators] if isinstance(estimators, str) or callable(estimators) else estimators
    return {_name(given): lookup(given) for given in several}


def _name(given: Given) -> str:
    name = name_of(given)
    if name is None:
        raise ValueError(
            f"the list of estimators contains {kind(given)} that is not in ESTIMATORS; expected names, "
            "entries or rules of the library. Give it a name in a mapping, such as {'own': estimator}."
        )
    return name


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
