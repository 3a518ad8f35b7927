"""Proofs of unbiasedness for callables: all their draws on the batch axis, or very many of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import permutations, product

import pytest
import torch
from torch import Tensor
from torch.distributions import Bernoulli, Categorical, Distribution, Independent, OneHotCategorical

import swor
from swor.math.ratios import log_prob_ordered
from swor.samplers.children import log_mass_outside
from swor.types import Cost

LOGITS = torch.tensor([[0.3, -0.8, 0.5], [1.1, 0.2, -0.4]], dtype=torch.float64)
WEIGHTS = torch.tensor([1.0, -0.7, 0.4, 1.6, 0.9, -1.3], dtype=torch.float64)
PSI = 0.6

DISTRIBUTIONS: dict[str, tuple[Tensor, Callable[[Tensor], Distribution]]] = {
    "categorical": (LOGITS[0], lambda t: Categorical(logits=t)),
    "one_hot": (LOGITS[0], lambda t: OneHotCategorical(logits=t)),
    "bernoulli": (LOGITS[0, 0], lambda t: Bernoulli(logits=t)),
    "two_categories": (LOGITS[0, :2], lambda t: OneHotCategorical(logits=t)),
    "categoricals": (LOGITS, lambda t: Independent(Categorical(logits=t), 1)),
    "one_hots": (LOGITS, lambda t: Independent(OneHotCategorical(logits=t), 1)),
    "bernoullis": (LOGITS[1], lambda t: Independent(Bernoulli(logits=t), 1)),
    "square": (LOGITS[:, :2], lambda t: Independent(Bernoulli(logits=t), 2)),
}


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
        default, make = DISTRIBUTIONS[name]
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
        batch = self.psi.shape
        parts = [estimate.detach().reshape(*batch, 1), *(g.reshape(*batch, -1) for g in by)]
        return torch.cat(parts, dim=-1)


def exact(name: str) -> Tensor:
    problem = Problem(name)
    return problem.moments(swor.exact(problem.f, problem.dist))


class AllDraws:
    """Stands in for the samplers: every combination of draws once, on a single batch axis."""

    def __init__(self, sizes: list[int] | None = None) -> None:
        self.recording = sizes is None
        self.sizes: list[int] = sizes or []
        self.total = int(torch.tensor(self.sizes).prod()) if sizes else 1
        self.stride = 1
        self.log_probability = torch.zeros(self.total, dtype=torch.float64)

    def _choose(self, options: Tensor) -> Tensor:
        if self.recording:
            self.sizes.append(len(options))
            return options[:1]
        digit = torch.arange(self.total) // self.stride % len(options)
        self.stride *= len(options)
        return options[digit]

    def independent(self, log_probs: Tensor, k: int, generator: torch.Generator | None) -> Tensor:
        lead = log_probs.shape[1:-1]
        rows = product(range(log_probs.shape[-1]), repeat=lead.numel() * k)
        value = self._choose(torch.tensor(list(rows)).reshape(-1, *lead, k))
        log_p = log_probs.detach().gather(-1, value)
        self.log_probability = self.log_probability + log_p.flatten(1).sum(-1)
        return value

    def gumbel_top_k(
        self, log_probs: Tensor, k: int, *, generator: torch.Generator | None = None
    ) -> swor.Sample:
        lead = log_probs.shape[1:-1]
        orders = list(permutations(range(log_probs.shape[-1]), k))
        rows = torch.tensor(list(product(orders, repeat=lead.numel())))
        value = self._choose(rows.reshape(-1, *lead, k))
        log_p = log_probs.gather(-1, value)
        log_rest = log_mass_outside(log_probs.detach(), value)
        log_b = log_prob_ordered(log_p.detach(), log_rest)
        self.log_probability = self.log_probability + log_b.reshape(len(log_b), -1).sum(-1)
        return swor.Sample(value, log_p, log_rest)


@contextmanager
def scripted(draws: AllDraws) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module in ("samplers.categorical", "samplers.factorized", "estimators.factors"):
            patch.setattr(f"swor.{module}.independent", draws.independent)
        for module in ("samplers.distributions", "estimators.local"):
            patch.setattr(f"swor.{module}.gumbel_top_k", draws.gumbel_top_k)
        yield


Estimate = Callable[[Cost, Distribution, int], Tensor]


def expected(estimate: Estimate, name: str, k: int) -> Tensor:
    """The mean of an estimate and of its gradient over all draws: a finite sum."""
    trial = AllDraws()
    with scripted(trial):
        problem = Problem(name, 1)
        estimate(problem.f, problem.dist, k)
    draws = AllDraws(trial.sizes)
    with scripted(draws):
        problem = Problem(name, draws.total)
        moments = problem.moments(estimate(problem.f, problem.dist, k))
    probability = draws.log_probability.exp()
    torch.testing.assert_close(probability.sum(), torch.ones_like(probability[0]))
    return probability @ moments


def z_scores(
    estimate: Callable[..., Tensor],
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


def assert_unbiased(estimate: Callable[..., Tensor], name: str, k: int) -> None:
    z = z_scores(estimate, name, k, exact(name))
    assert z.max() < 4.0, f"{name}, k = {k}: z-scores {z.tolist()}"
