"""The gradients of estimates, drawn in one batch or one after the other, and the exact gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.distributions import Distribution, Independent

from swor._checks import kind
from swor.diagnostics.enumeration import exact
from swor.estimators.estimator import Estimator, EstimatorLike
from swor.samplers.distributions import factorized, parameter, sample, support
from swor.types import Cost, without_impossible

Method = Literal["auto", "batch", "loop"]

DrawGradients = Callable[[int], tuple[Tensor, Tensor]]
"""From n to n estimates, (n,), and their gradients, (n, parameters)."""

NUMBERS = 2**22  # largest number of elements in memory at a time: 32 MB in float64
SMALL_DOMAIN = 2**14  # largest number of evaluations of f for the exact gradient
ULPS = 16  # two evaluations of f on one outcome may differ by this many roundings


def as_parameters(given: object) -> list[Tensor]:
    """Return the tensors to differentiate with respect to, given several or one, after checking them."""
    wanted: list[Any] = [given]
    if isinstance(given, Iterable) and not isinstance(given, Tensor):
        wanted = list(given)
    if not wanted:
        raise ValueError(
            "parameters is empty; expected the tensors to differentiate with respect to. Pass [logits] or "
            "model.parameters(), for instance, and not an iterator that has been used before."
        )
    others = [p for p in wanted if not isinstance(p, Tensor)]
    if others:
        raise TypeError(
            f"parameters is or contains {kind(others[0])}; expected tensors. Pass [logits] or "
            "model.parameters(), for instance."
        )
    frozen = sum(not p.requires_grad for p in wanted)
    if frozen:
        raise ValueError(
            f"{frozen} of the {len(wanted)} parameters do not require gradient; expected all of them to. "
            "Pass [p for p in model.parameters() if p.requires_grad], or set requires_grad=True."
        )
    return wanted


def differentiate(loss: Tensor, parameters: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Return the gradient with respect to each parameter, of which the loss must reach at least one."""
    found: Sequence[Tensor | None] = [None]
    if loss.requires_grad:
        found = torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True)
    if all(g is None for g in found):
        raise ValueError(
            "the loss depends on none of the parameters; expected a path to at least one of them. Pass the "
            "tensors that dist, or f, was computed from, such as [logits]; do not detach the logits, and "
            "leave torch.no_grad(). Estimators that relax outcomes also need a differentiable f."
        )
    pairs = zip(found, parameters, strict=True)
    return tuple(torch.zeros_like(p) if g is None else g for g, p in pairs)


class Enumerated(NamedTuple):
    """A small domain: its log-probabilities and costs, both (*batch, |D|), and the exact gradient."""

    log_p: Tensor
    cost: Tensor
    gradient: Tensor  # of the mean over the batch, (parameters,)


def enumerated(f: Cost, dist: Distribution, parameters: Sequence[Tensor]) -> Enumerated | None:
    """Return the domain and the exact gradient, or None if it is too large, or if f is random.

    A random f, such as a network with dropout, gives other costs whenever it is evaluated, so the gradient of
    one evaluation is not that of the expected cost.
    """
    if factorized(dist).outcomes * max(1, dist.batch_shape.numel()) > SMALL_DOMAIN:
        return None
    domain = support(dist)
    cost = f(domain.value)
    loss = exact(lambda value: cost, dist).mean()
    with torch.no_grad():
        again = f(domain.value)
    log_p = domain.log_p.detach()
    first, second = (without_impossible(x.detach(), log_p).to(log_p) for x in (cost, again))
    if not torch.allclose(first, second, rtol=ULPS * torch.finfo(log_p.dtype).eps, atol=0.0):
        return None
    gradients = differentiate(loss, parameters)
    return Enumerated(log_p, first, torch.cat([g.flatten() for g in gradients]).double())


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
        return loss.detach(), _flat(differentiate(loss, parameters), 1)

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
        (by_given,) = differentiate(losses.sum(), [leaf])
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
    """Return "batch" or "loop"; "auto" is "batch" for an estimator of ESTIMATORS if trials allow it."""
    if method not in ("auto", "batch", "loop"):
        raise ValueError(
            f"method is {method!r}; expected 'auto', 'batch' or 'loop'. Leave it out for 'auto'."
        )
    unknown = not isinstance(estimator, Estimator)
    if method == "loop" or (method == "auto" and unknown):
        return "loop"
    obstacle = _obstacle(estimator, f, dist, parameters)
    if method == "batch" and obstacle is not None:
        raise ValueError(
            f"method is 'batch', but {obstacle}; expected estimates that can be computed side by side. Use "
            "method='loop'."
        )
    return "batch" if obstacle is None else "loop"


def _obstacle(
    estimator: EstimatorLike, f: Cost, dist: Distribution, parameters: Sequence[Tensor]
) -> str | None:
    """Return why repeated estimates cannot be an axis of the batch, or None if nothing is in the way."""
    if isinstance(estimator, Estimator) and estimator.mixes_batch:
        return "the estimate of an element of the batch depends on the others"
    if not all(_reached(_given(dist), parameters)):
        return "not all parameters affect the logits or probabilities of dist"
    return _obstacle_of_cost(f, dist, parameters)


def _obstacle_of_cost(f: Cost, dist: Distribution, parameters: Sequence[Tensor]) -> str | None:
    """Return what a trial of f shows to be in the way: another batch axis, or a parameter in f."""
    generator = torch.Generator(_given(dist).device).manual_seed(0)
    with torch.no_grad():
        values = [sample(dist, 4, replacement=True, generator=generator).value for _ in range(3)]
    different = "f does not give the same costs with another batch axis"
    try:
        apart, together = torch.stack([f(value) for value in values]), f(torch.stack(values))
    except Exception:  # f may raise anything if it does not accept another batch axis
        return different
    if apart.shape != together.shape or not torch.allclose(apart, together, rtol=1e-4, atol=1e-6):
        return different
    return "f depends on the parameters" if any(_reached(apart, parameters)) else None


def _reached(y: Tensor, parameters: Sequence[Tensor]) -> list[bool]:
    """Return whether y depends on each parameter."""
    if not y.requires_grad:
        return [False] * len(parameters)
    ones = torch.ones_like(y)  # and not the sum of y, which has no gradient under no_grad
    gradients = torch.autograd.grad(y, parameters, ones, retain_graph=True, allow_unused=True)
    return [g is not None for g in gradients]
