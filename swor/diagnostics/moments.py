"""The mean and the variance of a gradient estimate on the user's own model, by repeating it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution

from swor._checks import check_count, kind
from swor.diagnostics._gradients import (
    NUMBERS,
    Method,
    as_parameters,
    batched,
    choose,
    count,
    looped,
)
from swor.diagnostics._streaming import GradientMoments, gradient_moments_of, start, update
from swor.estimators.baselines import BUILT_IN
from swor.estimators.estimator import Estimator, EstimatorLike
from swor.estimators.learning import warm_up as warm_up_estimator
from swor.estimators.registry import ESTIMATORS
from swor.samplers.distributions import factorized
from swor.types import Cost, Rule

WARM_UP = 500  # training steps of an estimator before it is measured
OBSERVED = 16  # estimates one after the other between two calls of an observer

Given = str | EstimatorLike | Rule
"""What a user may give as an estimator."""


def gradient_moments(
    estimator: Given,
    f: Cost,
    dist: Distribution,
    parameters: Iterable[Tensor],
    *,
    k: int = 4,
    repeats: int = 1000,
    generator: torch.Generator | None = None,
    method: Method = "auto",
    warm_up: int = WARM_UP,
) -> GradientMoments:
    r"""Measure the mean and the variance of a gradient estimate by repeating it.

    $$\nabla \frac1B \sum_b e_b$$

    This gradient of the mean over a batch of B estimates is drawn ``repeats`` times. All moments are computed
    in one pass, so the memory does not depend on ``repeats``. Use it to measure a single estimator on your
    own model; :func:`swor.compare` measures several.

    The method "batch" makes the repeats an axis of the batch: one call of the estimator gives many gradients
    with respect to the logits, and the chain rule gives those of the parameters. It requires that f accepts
    any batch axes, that the parameters affect the logits but not f, and that the estimator treats the
    elements of the batch separately; an error says which of these does not hold, except that a callable of
    your own is trusted to treat them separately. "loop" computes one estimate and one backward pass after
    the other. "auto" uses "batch" for an estimator of ESTIMATORS if a trial of f shows that it is possible,
    and "loop" otherwise.

    If an estimator of ESTIMATORS learns, it is made for the distribution and trained for ``warm_up`` steps,
    while the parameters stay as they are. To measure a module that you have trained yourself, pass the
    module.

    Args:
        estimator: a name or an entry of ESTIMATORS, a rule of the library, or a callable with the contract of
            an entry.
        f: the cost, from values (*batch, k, *event) to (*batch, k).
        dist: Categorical, OneHotCategorical, Bernoulli, or Independent of these.
        parameters: the tensors to differentiate with respect to, such as ``model.parameters()``, or one
            tensor; ``dist`` and ``f`` may depend on them.
        k: the number of samples of an estimate.
        repeats: the number of estimates, at least 2.
        generator: the source of randomness.
        method: "auto", "batch" or "loop".
        warm_up: the number of training steps of an estimator that learns.

    Returns:
        The moments, with their standard errors.

    >>> logits = torch.zeros(5, requires_grad=True)
    >>> dist = torch.distributions.Categorical(logits=logits)
    >>> m = gradient_moments("unordered_set", lambda x: x / 5, dist, [logits], k=5, repeats=10)
    >>> bool(m.trace < 1e-12)  # the sample is the whole domain, so the gradient is exact
    True

    References:
        | Note on a Method for Calculating Corrected Sums of Squares and Products (Welford, 1962)
        | https://doi.org/10.1080/00401706.1962.10490022
    """
    found = lookup(estimator)
    wanted = as_parameters(parameters)
    return measure(found, f, dist, wanted, k, repeats, generator, method=method, warm_up=warm_up)


def measure(
    estimator: EstimatorLike,
    f: Cost,
    dist: Distribution,
    parameters: Sequence[Tensor],
    k: int,
    repeats: int,
    generator: torch.Generator | None,
    *,
    method: Method = "auto",
    warm_up: int = WARM_UP,
    observe: Callable[[Tensor], None] = lambda gradients: None,
) -> GradientMoments:
    """Measure as :func:`gradient_moments`, and pass all gradients (n, parameters) to an observer."""
    check_count("repeats", repeats)
    if repeats < 2:
        raise ValueError(
            "repeats is 1; expected at least 2 to estimate a variance. Use 1000, for instance."
        )
    if factorized(dist).log_probs.numel() == 0:
        raise ValueError(
            f"dist has the batch axes {tuple(dist.batch_shape)} and no element; expected at least one, "
            "because gradients of a mean over the batch are measured. Leave out empty batches."
        )
    chosen = choose(method, estimator, f, dist, parameters)
    ready, steps = prepare(estimator, f, dist, k, warm_up, generator)
    make = batched if chosen == "batch" else looped
    draw = make(ready, f, dist, parameters, k, generator)
    size = _chunk(dist, parameters, k)
    size = size if chosen == "batch" else min(size, OBSERVED)
    device = parameters[0].device
    values, gradients = start(1, device), start(count(parameters), device)
    for begin in range(0, repeats, size):
        value, gradient = draw(min(size, repeats - begin))
        values, gradients = update(values, value.unsqueeze(-1)), update(gradients, gradient)
        observe(gradient)
    return gradient_moments_of(values, gradients, chosen, steps)


def prepare(
    estimator: EstimatorLike,
    f: Cost,
    dist: Distribution,
    k: int,
    warm_up: int,
    generator: torch.Generator | None,
) -> tuple[EstimatorLike, int]:
    """Return the estimator to measure, and the number of steps for which it was trained."""
    if not isinstance(estimator, Estimator):
        return estimator, 0
    made = estimator.make(dist, generator=generator)
    steps = warm_up_estimator(
        made, lambda step: made(f, dist, k, generator=generator).mean(), warm_up
    )
    return made, steps


def lookup(estimator: Given) -> EstimatorLike:
    """Return an estimator, given its name in ESTIMATORS, a rule, or the estimator itself."""
    name = name_of(estimator)
    if name is None:
        return _checked(estimator)
    try:
        return ESTIMATORS[name]
    except KeyError as error:
        callable_too = "A callable (f, dist, k, *, generator) -> (*batch,) will do too."
        raise ValueError(f"{error} {callable_too}") from None


def name_of(given: Given) -> str | None:
    """Return the name of an estimator, or None for one that is not in ESTIMATORS.

    Args:
        given: a name, an entry, the function of an entry without a state, or a rule. The name of a rule is
            that of its entry with the built-in baseline.
    """
    if isinstance(given, str):
        return given
    return next((name for name, entry in ESTIMATORS.items() if _means(given, entry)), None)


def _means(given: object, entry: Estimator) -> bool:
    """Return whether an entry is what was given, as itself, as its function or as its rule."""
    if given is entry.rule:
        return entry.baseline is BUILT_IN
    return given is entry or (given is entry.function and not entry.learns)


def _checked(estimator: Any) -> EstimatorLike:
    """Return a callable, or raise an error if it cannot be called as an estimator is."""
    try:
        inspect.signature(estimator).bind(None, None, 1, generator=None)
    except ValueError:
        pass  # a callable that is not written in Python may not tell its arguments
    except TypeError:
        shown = getattr(estimator, "__name__", kind(estimator))
        raise TypeError(
            f"the estimator is {shown}, which cannot be called with (f, dist, k, generator=None); expected "
            "such a callable, or a name, an entry or a rule of ESTIMATORS. Make an entry of a rule of your "
            "own with swor.estimators.estimator.lift."
        ) from None
    checked: EstimatorLike = estimator
    return checked


def _chunk(dist: Distribution, parameters: Sequence[Tensor], k: int) -> int:
    """Return the number of repeats that fit into a fixed amount of memory."""
    return max(1, NUMBERS // max(count(parameters), k * factorized(dist).log_probs.numel()))
