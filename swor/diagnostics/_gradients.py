"""Repeated draws of an estimate and its gradient, in one batch or one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.distributions import Distribution, Independent

from swor.estimators.estimator import Estimator, EstimatorLike
from swor.samplers.distributions import parameter, sample
from swor.types import Cost

Method = Literal["auto", "batch", "loop"]

DrawGradients = Callable[[int], tuple[Tensor, Tensor]]
"""From n to n estimates, (n,), and their gradients, (n, parameters)."""

NUMBERS = 2**22  # largest number of elements in memory at a time: 32 MB in float64


def count(parameters: Sequence[Tensor]) -> int:
    """Return the total number of elements of the parameters."""
    return sum(p.numel() for p in parameters)


def _flat(gradients: Sequence[Tensor], n: int) -> Tensor:
    return torch.cat([g.detach().reshape(n, -1) for g in gradients], dim=-1)


def looped(
    estimator: EstimatorLike,
    f: Cost,
    dist: Distribution,
    parameters: Sequence[Tensor],
    k: int,
    generator: torch.Generator | None,
) -> DrawGradients:
    """Return a function that draws one estimate and its backward pass after the other."""

    def one() -> tuple[Tensor, Tensor]:
        loss = estimator(f, dist, k, generator=generator).mean()
        gradients = torch.autograd.grad(loss, parameters, retain_graph=True, materialize_grads=True)
        return loss.detach(), _flat(gradients, 1)

    def draw(n: int) -> tuple[Tensor, Tensor]:
        losses, gradients = zip(*(one() for _ in range(n)), strict=True)
        return torch.stack(losses), torch.cat(gradients)

    return draw


def batched(
    estimator: EstimatorLike,
    f: Cost,
    dist: Distribution,
    parameters: Sequence[Tensor],
    k: int,
    generator: torch.Generator | None,
) -> DrawGradients:
    """Return a function that draws many estimates on a batch axis, with gradients by the chain rule."""
    given = _given(dist)
    to_parameters = _chain(given, parameters)

    def draw(n: int) -> tuple[Tensor, Tensor]:
        leaf = given.detach().expand(n, *given.shape).clone().requires_grad_()
        losses = estimator(f, _with(dist, leaf), k, generator=generator)
        losses = losses.reshape(n, -1).mean(-1)
        (by_given,) = torch.autograd.grad(losses.sum(), leaf)
        return losses.detach(), to_parameters(by_given)

    return draw


def _chain(given: Tensor, parameters: Sequence[Tensor]) -> Callable[[Tensor], Tensor]:
    """Return the map from gradients of logits or probs (n, *given) to those of parameters (n, parameters).

    It multiplies by the Jacobian if that is small enough to be stored, and runs a backward pass otherwise.
    """

    def backward(by_given: Tensor) -> Tensor:
        gradients = torch.autograd.grad(
            given, parameters, by_given, retain_graph=True, is_grads_batched=True
        )
        return _flat(gradients, len(by_given))

    size = given.numel()
    if size * max(size, count(parameters)) > NUMBERS:
        return backward
    unit = torch.eye(size, dtype=given.dtype, device=given.device)
    jacobian = backward(unit.unflatten(-1, given.shape) if given.shape else unit.squeeze(-1))
    return lambda by_given: by_given.reshape(len(by_given), -1) @ jacobian


def _given(dist: Any) -> Tensor:
    """Return the logits or the probabilities that a distribution was made with."""
    return _given(dist.base_dist) if isinstance(dist, Independent) else parameter(dist)[1]


def _with(dist: Any, given: Tensor) -> Distribution:
    """Return a distribution of the same kind with other logits or probabilities, and more batch axes."""
    if isinstance(dist, Independent):
        return Independent(_with(dist.base_dist, given), dist.reinterpreted_batch_ndims)
    other: Distribution = type(dist)(**{parameter(dist)[0]: given})
    return other


def choose(
    method: Method,
    estimator: EstimatorLike,
    f: Cost,
    dist: Distribution,
    parameters: Sequence[Tensor],
) -> str:
    """Return "batch" or "loop"; "auto" is "batch" if the estimator and a trial of f allow it."""
    if method == "batch" or method == "loop":
        return method
    if method != "auto":
        raise ValueError(
            f"method is {method!r}; expected 'auto', 'batch' or 'loop'. Leave it out for 'auto'."
        )
    on_its_own = isinstance(estimator, Estimator) and not estimator.mixes_batch
    fits = on_its_own and all(_reached(_given(dist), parameters))
    return "batch" if fits and _takes_batches(f, dist, parameters) else "loop"


def _reached(y: Tensor, parameters: Sequence[Tensor]) -> list[bool]:
    """Return whether y depends on each parameter."""
    if not y.requires_grad:
        return [False] * len(parameters)
    gradients = torch.autograd.grad(y.sum(), parameters, retain_graph=True, allow_unused=True)
    return [g is not None for g in gradients]


def _takes_batches(f: Cost, dist: Distribution, parameters: Sequence[Tensor]) -> bool:
    """Return whether f gives the same costs on an additional batch axis, and depends on no parameter."""
    generator = torch.Generator(_given(dist).device).manual_seed(0)
    with torch.no_grad():
        values = [sample(dist, 4, replacement=True, generator=generator).value for _ in range(3)]
    try:
        apart, together = torch.stack([f(value) for value in values]), f(torch.stack(values))
    except Exception:  # f may raise anything if it does not accept another batch axis
        return False
    same = apart.shape == together.shape and torch.allclose(apart, together, rtol=1e-4, atol=1e-6)
    return same and not any(_reached(apart, parameters))
