"""The mean and the variance of a gradient estimate on the user's own model, by repeating it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor
from torch.distributions import Distribution

from swor._checks import check_count
from swor.diagnostics._gradients import NUMBERS, Method, batched, choose, count, looped
from swor.diagnostics._streaming import GradientMoments, gradient_moments_of, start, update
from swor.estimators.estimator import Estimator, EstimatorLike
from swor.estimators.registry import ESTIMATORS
from swor.estimators.warm_up import warm_up as warm_up_estimator
from swor.samplers.distributions import factorized
from swor.types import Cost

WARM_UP = 500  # training steps of an estimator before it is measured
OBSERVED = 16  # estimates one after the other between two calls of an observer


def gradient_moments(
    estimator: str | EstimatorLike,
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
    elements of the batch separately. "loop" computes one estimate and one backward pass after the other.
    "auto" uses "batch" for an estimator of ESTIMATORS if a trial of f shows that it is possible, and "loop"
    otherwise.

    If an estimator of ESTIMATORS learns, it is made for the distribution and trained for ``warm_up`` steps,
    while the parameters stay as they are. To measure a module that you have trained yourself, pass the
    module.

    Args:
        estimator: a name or an entry of ESTIMATORS, or a callable with the same contract.
        f: the cost, from values (*batch, k, *event) to (*batch, k).
        dist: Categorical, OneHotCategorical, Bernoulli, or Independent of these.
        parameters: the tensors to differentiate with respect to, such as ``model.parameters()``; ``dist``
            and ``f`` may depend on them.
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
    wanted = list(parameters)
    return measure(
        lookup(estimator), f, dist, wanted, k, repeats, generator, method=method, warm_up=warm_up
    )


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
    _check_parameters(parameters)
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


def lookup(estimator: str | EstimatorLike) -> EstimatorLike:
    """Return an estimator, given its name in ESTIMATORS or the estimator itself."""
    if not isinstance(estimator, str):
        return estimator
    try:
        return ESTIMATORS[estimator]
    except KeyError as error:
        callable_too = "A callable (f, dist, k, *, generator) -> (*batch,) will do too."
        raise ValueError(f"{error} {callable_too}") from None


def _check_parameters(parameters: Sequence[Tensor]) -> None:
    if not parameters or not all(p.requires_grad for p in parameters):
        raise ValueError(
            "parameters is empty or contains a tensor that does not require gradient; expected the "
            "tensors to differentiate with respect to. Pass model.parameters(), for instance, or "
            "[logits] with requires_grad=True."
        )


def _chunk(dist: Distribution, parameters: Sequence[Tensor], k: int) -> int:
    """Return the number of repeats that fit into a fixed amount of memory."""
    return max(1, NUMBERS // max(count(parameters), k * factorized(dist).log_probs.numel()))
