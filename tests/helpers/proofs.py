"""Proofs of what an estimator says about its bias: a sum over all its draws, or very many draws."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import torch
from all_draws import WHOLE, AllDraws, Law, scripted
from torch import Tensor
from torch.distributions import Bernoulli, Categorical, Distribution, Independent, OneHotCategorical

import swor
from swor.types import Cost

LOGITS = torch.tensor([[0.3, -0.8, 0.5], [1.1, 0.2, -0.4]], dtype=torch.float64)
WEIGHTS = torch.tensor([1.0, -0.7, 0.4, 1.6, 0.9, -1.3, 0.2], dtype=torch.float64)
PSI = 0.6
COMBINATIONS = 60_000  # the largest number of terms of a sum

DISTRIBUTIONS: dict[str, tuple[Tensor, Callable[[Tensor], Distribution]]] = {
    "categorical": (LOGITS[0], lambda t: Categorical(logits=t, validate_args=False)),
    "one_hot": (LOGITS[0], lambda t: OneHotCategorical(logits=t, validate_args=False)),
    "bernoulli": (LOGITS[0, 0], lambda t: Bernoulli(logits=t, validate_args=False)),
    "two_categories": (LOGITS[0, :2], lambda t: OneHotCategorical(logits=t, validate_args=False)),
    "categoricals": (
        LOGITS,
        lambda t: Independent(Categorical(logits=t, validate_args=False), 1, validate_args=False),
    ),
    "one_hots": (
        LOGITS,
        lambda t: Independent(
            OneHotCategorical(logits=t, validate_args=False), 1, validate_args=False
        ),
    ),
    "bernoullis": (
        LOGITS[1],
        lambda t: Independent(Bernoulli(logits=t, validate_args=False), 1, validate_args=False),
    ),
    "square": (
        LOGITS[:, :2],
        lambda t: Independent(Bernoulli(logits=t, validate_args=False), 2, validate_args=False),
    ),
}

SEVEN = torch.tensor([0.3, -0.8, 0.5, 1.1, 0.2, -0.4, 0.9], dtype=torch.float64)
ALL = {
    **DISTRIBUTIONS,
    "seven": (SEVEN, lambda t: Categorical(logits=t, validate_args=False)),
    "seven_one_hot": (SEVEN, lambda t: OneHotCategorical(logits=t, validate_args=False)),
}
"""Also those that are large enough for seven distinct samples."""


def cost(psi: Tensor, event_axes: int) -> Cost:
    """A smooth cost in which the variables interact, with a parameter for every batch element."""

    def f(x: Tensor) -> Tensor:
        x = x.to(psi.dtype)
        x = x.flatten(-event_axes) if event_axes else x.unsqueeze(-1)
        s = (x * WEIGHTS[: x.shape[-1]].to(psi.dtype)).sum(-1)
        return torch.cos(1.7 * s + psi.unsqueeze(-1)) + psi.unsqueeze(-1) * s

    return f


class Problem:
    """A distribution and a cost with leaf parameters, repeated over the batch."""

    def __init__(
        self,
        name: str,
        *batch: int,
        dtype: torch.dtype = torch.float64,
        logits: Tensor | None = None,
    ) -> None:
        default, make = ALL[name]
        logits = (default if logits is None else logits).to(dtype)
        self.logits = logits.expand((*batch, *logits.shape)).clone().requires_grad_()
        self.psi = torch.full(batch, PSI, dtype=dtype, requires_grad=True)
        self.dist = make(self.logits)
        self.f = cost(self.psi, len(self.dist.event_shape))

    def moments(self, estimate: Tensor) -> Tensor:
        """The value and all its derivatives, (*batch, 1 + parameters)."""
        by = torch.autograd.grad(
            estimate.sum(), (self.logits, self.psi), retain_graph=True, materialize_grads=True
        )
        axes = self.psi.dim()
        parts = [x.reshape(*x.shape, 1).flatten(axes) for x in (estimate.detach(), *by)]
        return torch.cat(parts, dim=-1)


def exact(name: str) -> Tensor:
    problem = Problem(name)
    return problem.moments(swor.exact(problem.f, problem.dist))


Estimate = Callable[..., Tensor]


def draws_of(
    estimate: Estimate, name: str, k: int, batch: int | None = None, law: Law = WHOLE
) -> list[int]:
    """The number of options at every draw of an estimate, which may have no other randomness."""
    results = []
    for seed in range(3):
        trial = AllDraws(position=None if batch is None else 0, law=law)
        with torch.random.fork_rng(), scripted(trial):
            torch.manual_seed(seed)
            problem = Problem(name, batch or 1)
            results.append(problem.moments(copy.deepcopy(estimate)(problem.f, problem.dist, k)))
    assert trial.sizes, "no draw was intercepted, so there is nothing to sum over"
    same = all(torch.equal(result, results[0]) for result in results)
    assert same, "some draws were not intercepted, so the sum would be random"
    return trial.sizes


def law_of(estimate: Estimate, name: str, k: int) -> Law:
    """The fewest samples to go through: no orders or thresholds that the estimate does not depend on."""
    kappa = _needs_thresholds(estimate, name, k)
    once = Law(ordered=False, kappa=kappa)
    sizes = draws_of(estimate, name, k, law=once)
    if math.prod(sizes) > COMBINATIONS:
        return Law(ordered=True, kappa=kappa)
    (_, one), (_, other) = (
        _every(estimate, name, k, sizes, once._replace(reverse=reverse))
        for reverse in (False, True)
    )
    same = torch.allclose(one, other, rtol=1e-9, atol=1e-12)
    return once if same else Law(ordered=True, kappa=kappa)


def _needs_thresholds(estimate: Estimate, name: str, k: int) -> bool:
    try:
        draws_of(estimate, name, k, law=Law(ordered=True, kappa=False))
    except ValueError as error:
        assert "kappa" in str(error)
        return True
    return False


def _every(
    estimate: Estimate, name: str, k: int, sizes: list[int], law: Law
) -> tuple[Tensor, Tensor]:
    """The probability of every combination of draws, and the estimate with its gradient."""
    draws = AllDraws(sizes, law=law)
    with scripted(draws):
        problem = Problem(name, draws.total)
        moments = problem.moments(copy.deepcopy(estimate)(problem.f, problem.dist, k))
    return draws.log_probability.exp().expand(len(moments)), moments


def expected(estimate: Estimate, name: str, k: int, law: Law = WHOLE) -> Tensor:
    """The mean of an estimate and of its gradient over all draws: a finite sum."""
    return _mean(*_every(estimate, name, k, draws_of(estimate, name, k, law=law), law))


def expected_in_batch(
    estimate: Estimate, name: str, k: int, law: Law = WHOLE, batch: int = 2
) -> Tensor:
    """As :func:`expected`, for an estimate that mixes the elements of a batch: (batch, …)."""
    sizes = draws_of(estimate, name, k, batch, law)
    probabilities, moments = [], []
    for position in range(math.prod(sizes)):
        draws = AllDraws(sizes, position, law)
        with scripted(draws):
            problem = Problem(name, batch)
            estimated = copy.deepcopy(estimate)(problem.f, problem.dist, k)
        probabilities.append(draws.log_probability.exp())
        moments.append(problem.moments(estimated))
    return _mean(torch.stack(probabilities), torch.stack(moments))


def _mean(probability: Tensor, moments: Tensor) -> Tensor:
    torch.testing.assert_close(probability.sum(), torch.ones_like(probability[0]))
    return torch.tensordot(probability, moments, dims=1)


def z_scores(
    estimate: Estimate,
    name: str,
    k: int,
    target: Tensor,
    *,
    draws: int = 100_000,
    seed: int = 0,
) -> Tensor:
    """Distances of the mean from the target in standard errors: value, logits, parameter of f."""
    problem = Problem(name, draws)
    generator = torch.Generator().manual_seed(seed)
    moments = problem.moments(estimate(problem.f, problem.dist, k, generator=generator))
    error = moments.std(0) / draws**0.5
    return ((moments.mean(0) - target) / error).abs()


def assert_unbiased(estimate: Estimate, name: str, k: int) -> None:
    z = z_scores(estimate, name, k, exact(name))
    assert z.max() < 4.0, f"{name}, k = {k}: z-scores {z.tolist()}"
