"""Bias and variance of a gradient estimate on a model of one's own, by repeating it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.distributions import Distribution, Independent

from swor.diagnostics.streaming import Stream, start, update
from swor.errors import check_count
from swor.estimators.registry import ESTIMATORS, Cost, Estimate, Estimator
from swor.samplers.distributions import discrete, sample

Method = Literal["auto", "batch", "loop"]
Draw = Callable[[int], tuple[Tensor, Tensor]]  # n -> estimates (n,), gradients (n, parameters)

NUMBERS = 2**22  # held at a time: 32 MB in float64
MIXES_BATCH = ("reinforce_batch_mean", "reinforce_moving_average")


@dataclass(frozen=True)
class GradientMoments:
    """Moments of an estimate and its gradient, with standard errors; those of the batch's mean.

    Attributes:
        mean: of the gradient, (parameters,): all parameters, flattened, one after the other.
        mean_error: its standard error, (parameters,).
        variance: of the gradient, (parameters,).
        variance_error: its standard error, (parameters,).
        trace: the sum of the variances, ().
        trace_error: its standard error, ().
        value: the mean of the estimate of E[f], ().
        value_error: its standard error, ().
        value_variance: the variance of the estimate of E[f], ().
        repeats: the number of estimates.
        method: "batch" or "loop", as was done.
    """

    mean: Tensor
    mean_error: Tensor
    variance: Tensor
    variance_error: Tensor
    trace: Tensor
    trace_error: Tensor
    value: Tensor
    value_error: Tensor
    value_variance: Tensor
    repeats: int
    method: str


def gradient_moments(
    estimator: str | Estimate,
    f: Cost,
    dist: Distribution,
    parameters: Iterable[Tensor],
    *,
    k: int = 4,
    repeats: int = 1000,
    generator: torch.Generator | None = None,
    method: Method = "auto",
) -> GradientMoments:
    r"""Mean and variance of $\nabla \frac1B \sum_b e_b$ over repeated estimates $e$, in one pass.

    The memory does not depend on ``repeats``. Method "batch" makes repeats an axis of the batch: one
    call of the estimator gives many gradients by the logits, which the chain rule takes on to the
    parameters. It needs parameters that act through the logits alone and not on ``f``, an ``f`` that
    takes any batch axes, and an estimator that treats the elements of the batch on their own.
    "auto" does that where an estimator of ESTIMATORS and a trial of ``f`` allow it, and otherwise
    "loop": one estimate and one backward pass after the other.

    Args:
        estimator: a name in ESTIMATORS, or a callable with the same contract.
        f: the cost, from values (*batch, k, *event) to (*batch, k).
        dist: Categorical, OneHotCategorical, Bernoulli, or Independent of these.
        parameters: what to differentiate by, such as ``model.parameters()``; ``dist`` and ``f`` may
            depend on them.
        k: the number of samples of an estimate.
        repeats: the number of estimates, at least 2.
        generator: the source of randomness.
        method: "auto", "batch" or "loop".

    >>> logits = torch.zeros(5, requires_grad=True)
    >>> dist = torch.distributions.Categorical(logits=logits)
    >>> m = gradient_moments("unordered_set", lambda x: x / 5, dist, [logits], k=5, repeats=10)
    >>> bool(m.trace < 1e-12)  # the whole domain was sampled: nothing is left to chance
    True
    """
    check_count("repeats", repeats)
    if repeats < 2:
        raise ValueError("repeats is 1; expected at least 2 to tell a variance, such as 1000.")
    wanted = list(parameters)
    _check_parameters(wanted)
    chosen = _choose(method, estimator, f, dist, wanted, k)
    make = _batched if chosen == "batch" else looped
    draw = make(lookup(estimator), f, dist, wanted, k, generator)
    size = _chunk(dist, wanted, k)
    values, gradients = start(1, wanted[0].device), start(_count(wanted), wanted[0].device)
    for begin in range(0, repeats, size):
        value, gradient = draw(min(size, repeats - begin))
        values, gradients = update(values, value.unsqueeze(-1)), update(gradients, gradient)
    return _result(values, gradients, chosen)


def lookup(estimator: str | Estimate) -> Estimate:
    """An estimator, by its name in ESTIMATORS or as it is."""
    if not isinstance(estimator, str):
        return estimator
    if estimator not in ESTIMATORS:
        raise ValueError(
            f"there is no estimator {estimator!r}; expected one of {', '.join(ESTIMATORS)}, or a "
            "callable (f, dist, k, *, generator) -> (*batch,)."
        )
    return ESTIMATORS[estimator]


def _result(values: Stream, gradients: Stream, method: str) -> GradientMoments:
    return GradientMoments(
        gradients.mean,
        gradients.mean_error,
        gradients.variance,
        gradients.variance_error,
        gradients.total,
        gradients.total_error,
        values.mean.squeeze(),
        values.mean_error.squeeze(),
        values.total,
        gradients.seen,
        method,
    )


def _check_parameters(parameters: Sequence[Tensor]) -> None:
    if not parameters or not all(p.requires_grad for p in parameters):
        raise ValueError(
            "parameters is empty, or has a tensor that needs no gradient; expected the tensors to "
            "differentiate by, such as model.parameters() or [logits] with requires_grad=True."
        )


def _count(parameters: Sequence[Tensor]) -> int:
    return sum(p.numel() for p in parameters)


def _chunk(dist: Distribution, parameters: Sequence[Tensor], k: int) -> int:
    """How many repeats at a time: as many as memory of a fixed size can hold."""
    return max(1, NUMBERS // max(_count(parameters), k * discrete(dist).log_probs.numel()))


def _flat(gradients: Sequence[Tensor], n: int) -> Tensor:
    return torch.cat([g.detach().reshape(n, -1) for g in gradients], dim=-1)


def looped(
    estimate: Estimate,
    f: Cost,
    dist: Distribution,
    parameters: Sequence[Tensor],
    k: int,
    generator: torch.Generator | None,
) -> Draw:
    """One estimate and one backward pass after the other, as in a training loop."""

    def one() -> tuple[Tensor, Tensor]:
        loss = estimate(f, dist, k, generator=generator).mean()
        gradients = torch.autograd.grad(loss, parameters, retain_graph=True, materialize_grads=True)
        return loss.detach(), _flat(gradients, 1)

    def draw(n: int) -> tuple[Tensor, Tensor]:
        losses, gradients = zip(*(one() for _ in range(n)), strict=True)
        return torch.stack(losses), torch.cat(gradients)

    return draw


def _batched(
    estimate: Estimate,
    f: Cost,
    dist: Distribution,
    parameters: Sequence[Tensor],
    k: int,
    generator: torch.Generator | None,
) -> Draw:
    logits = _logits(dist)
    to_parameters = _chain(logits, parameters)

    def draw(n: int) -> tuple[Tensor, Tensor]:
        leaf = logits.detach().expand(n, *logits.shape).clone().requires_grad_()
        losses = estimate(f, _with_logits(dist, leaf), k, generator=generator)
        losses = losses.reshape(n, -1).mean(-1)
        (by_logits,) = torch.autograd.grad(losses.sum(), leaf)
        return losses.detach(), to_parameters(by_logits)

    return draw


def _chain(logits: Tensor, parameters: Sequence[Tensor]) -> Callable[[Tensor], Tensor]:
    """From gradients by the logits (n, *logits) to those by the parameters (n, parameters).

    By the Jacobian, where it is small enough to be kept, otherwise by a backward pass for each.
    """

    def backward(by_logits: Tensor) -> Tensor:
        gradients = torch.autograd.grad(
            logits, parameters, by_logits, retain_graph=True, is_grads_batched=True
        )
        return _flat(gradients, len(by_logits))

    size = logits.numel()
    if size * max(size, _count(parameters)) > NUMBERS:
        return backward
    unit = torch.eye(size, dtype=logits.dtype, device=logits.device)
    jacobian = backward(unit.unflatten(-1, logits.shape) if logits.shape else unit.squeeze(-1))
    return lambda by_logits: by_logits.reshape(len(by_logits), -1) @ jacobian


def _logits(dist: Any) -> Tensor:
    logits: Tensor = _logits(dist.base_dist) if isinstance(dist, Independent) else dist.logits
    return logits


def _with_logits(dist: Any, logits: Tensor) -> Distribution:
    """The same kind of distribution with other logits, perhaps with more batch axes."""
    if isinstance(dist, Independent):
        base = _with_logits(dist.base_dist, logits)
        return Independent(base, dist.reinterpreted_batch_ndims)
    other: Distribution = type(dist)(logits=logits)
    return other


def _choose(
    method: Method,
    estimator: str | Estimate,
    f: Cost,
    dist: Distribution,
    parameters: Sequence[Tensor],
    k: int,
) -> str:
    if method == "batch" or method == "loop":
        return method
    if method != "auto":
        raise ValueError(f"method is {method!r}; expected 'auto', 'batch' or 'loop'.")
    entry = lookup(estimator)
    on_its_own = isinstance(entry, Estimator) and not any(
        entry is ESTIMATORS.get(name) for name in MIXES_BATCH
    )
    fits = on_its_own and all(_reached(_logits(dist), parameters))
    return "batch" if fits and _takes_batches(f, dist, parameters) else "loop"


def _reached(y: Tensor, parameters: Sequence[Tensor]) -> list[bool]:
    """Whether each parameter acts on y."""
    if not y.requires_grad:
        return [False] * len(parameters)
    gradients = torch.autograd.grad(y.sum(), parameters, retain_graph=True, allow_unused=True)
    return [g is not None for g in gradients]


def _takes_batches(f: Cost, dist: Distribution, parameters: Sequence[Tensor]) -> bool:
    """Try f: some samples at once give what they give one by one, and no parameter acts on it."""
    generator = torch.Generator(_logits(dist).device).manual_seed(0)
    with torch.no_grad():
        values = [sample(dist, 4, replacement=True, generator=generator).value for _ in range(3)]
    try:
        apart, together = torch.stack([f(value) for value in values]), f(torch.stack(values))
    except Exception:  # whatever f raises on another batch axis, it will have to be looped over
        return False
    same = apart.shape == together.shape and torch.allclose(apart, together, rtol=1e-4, atol=1e-6)
    return same and not any(_reached(apart, parameters))
