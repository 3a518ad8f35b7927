"""Proofs of what an estimator says about its bias: a sum over all its draws, or very many draws."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import permutations, product

import pytest
import torch
from torch import Tensor
from torch.distributions import Bernoulli, Categorical, Distribution, Independent, OneHotCategorical

import swor
from swor.diagnostics.all_samples import all_samples
from swor.math.ratios import log_prob_ordered
from swor.samplers._tables import log_mass_outside
from swor.samplers.distributions import support
from swor.types import Cost, Scheme

LOGITS = torch.tensor([[0.3, -0.8, 0.5], [1.1, 0.2, -0.4]], dtype=torch.float64)
WEIGHTS = torch.tensor([1.0, -0.7, 0.4, 1.6, 0.9, -1.3], dtype=torch.float64)
PSI = 0.6

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
        axes = self.psi.dim()
        parts = [x.reshape(*x.shape, 1).flatten(axes) for x in (estimate.detach(), *by)]
        return torch.cat(parts, dim=-1)


def exact(name: str) -> Tensor:
    problem = Problem(name)
    return problem.moments(swor.exact(problem.f, problem.dist))


Generator = torch.Generator | None


class AllDraws:
    """Stands in for the samplers, and goes through every combination of what they could draw.

    All combinations at once, on a single batch axis; or, with ``position``, one of them for a batch
    whose elements are drawn together.

    Args:
        sizes: the number of options at every draw; None to find them out with the first options.
        position: the number of the combination.
    """

    def __init__(self, sizes: list[int] | None = None, position: int | None = None) -> None:
        self.recording = sizes is None
        self.sizes: list[int] = sizes or []
        self.total = math.prod(self.sizes)
        self.stride = 1
        self.position = position
        self.log_probability = torch.zeros((), dtype=torch.float64)

    def _choose(self, options: int) -> Tensor:
        """Which of the options every combination takes, (combinations,)."""
        if self.recording:
            self.sizes.append(options)
            return torch.zeros(1, dtype=torch.long)
        each = torch.arange(self.total) if self.position is None else torch.tensor([self.position])
        digit = each // self.stride % options
        self.stride *= options
        return digit

    def _options(self, log_probs: Tensor, rows: Callable[[int], list[tuple[int, ...]]]) -> Tensor:
        """Choose a row for each of the variables that are drawn together."""
        lead = log_probs.shape[:-1] if self._together else log_probs.shape[1:-1]
        every = torch.tensor(rows(lead.numel()))
        chosen = every[self._choose(len(every))]
        shape = lead if self._together else (len(chosen), *lead)
        return chosen.reshape(*shape, -1)

    @property
    def _together(self) -> bool:
        return self.position is not None

    def _count(self, log_p: Tensor) -> None:
        """Take in the log-probabilities of what was chosen."""
        own = log_p.detach().double()
        self.log_probability = self.log_probability + (
            own.sum() if self._together else own.flatten(1).sum(-1)
        )

    def independent(self, log_probs: Tensor, k: int, generator: Generator) -> Tensor:
        value = self._options(
            log_probs, lambda n: list(product(range(log_probs.shape[-1]), repeat=n * k))
        )
        self._count(log_probs.gather(-1, value))
        return value

    def gumbel_top_k(
        self, log_probs: Tensor, k: int, *, generator: Generator = None
    ) -> swor.Sample:
        orders = list(permutations(range(log_probs.shape[-1]), k))

        def rows(n: int) -> list[tuple[int, ...]]:
            return [sum(combination, ()) for combination in product(orders, repeat=n)]

        value = self._options(log_probs, rows)
        log_p = log_probs.gather(-1, value)
        log_rest = log_mass_outside(log_probs.detach(), value)
        order = log_prob_ordered(log_p.detach(), log_rest)
        self._count(order.unsqueeze(-1))
        return swor.Sample(value, log_p, log_rest, scheme=Scheme.WITHOUT_REPLACEMENT)

    def draw(self, scheme: Scheme, dist: Distribution, k: int, generator: Generator) -> swor.Sample:
        """Every sample of a scheme, thresholds included."""
        domain = support(dist)
        log_probs = domain.log_p.detach().reshape(-1, domain.log_p.shape[-1])
        every = all_samples(log_probs[0], k, scheme)  # all elements of the batch are alike
        elements = len(log_probs) if self._together else 1
        combinations = list(product(range(len(every.probability)), repeat=elements))
        chosen = torch.tensor(combinations)[self._choose(len(combinations))]
        row = chosen[0] if self._together else chosen[:, 0]
        self._count(every.probability[row].log().unsqueeze(-1))
        index = every.sample.value[row]
        event = domain.value.shape[2:]
        place = index.reshape(*index.shape, *(1 for _ in event))
        chosen_parts = {
            name: None if part is None else part[row]
            for name in ("log_rest", "kappa", "log_q")
            for part in (getattr(every.sample, name),)
        }
        return swor.Sample(
            value=torch.take_along_dim(domain.value, place, 1),
            log_p=domain.log_p.gather(-1, index),
            scheme=scheme,
            **chosen_parts,
        )


@contextmanager
def scripted(draws: AllDraws) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module in ("samplers.categorical", "samplers.products"):
            patch.setattr(f"swor.{module}.independent", draws.independent)
        patch.setattr("swor.estimators.local.gumbel_top_k", draws.gumbel_top_k)
        patch.setattr("swor.estimators.score_function.draw", draws.draw)
        yield


Estimate = Callable[..., Tensor]


def draws_of(estimate: Estimate, name: str, k: int, batch: int | None = None) -> list[int]:
    """The number of options at every draw of an estimate, which may have no other randomness."""
    results = []
    for seed in range(3):
        trial = AllDraws(position=None if batch is None else 0)
        with torch.random.fork_rng(), scripted(trial):
            torch.manual_seed(seed)
            problem = Problem(name, batch or 1)
            results.append(problem.moments(copy.deepcopy(estimate)(problem.f, problem.dist, k)))
    assert trial.sizes, "no draw was intercepted, so there is nothing to sum over"
    same = all(torch.equal(result, results[0]) for result in results)
    assert same, "some draws were not intercepted, so the sum would be random"
    return trial.sizes


def expected(estimate: Estimate, name: str, k: int) -> Tensor:
    """The mean of an estimate and of its gradient over all draws: a finite sum."""
    draws = AllDraws(draws_of(estimate, name, k))
    with scripted(draws):
        problem = Problem(name, draws.total)
        moments = problem.moments(copy.deepcopy(estimate)(problem.f, problem.dist, k))
    return _mean(draws.log_probability.exp().expand(len(moments)), moments)


def expected_in_batch(estimate: Estimate, name: str, k: int, batch: int = 2) -> Tensor:
    """As :func:`expected`, for an estimate that mixes the elements of a batch: (batch, …)."""
    sizes = draws_of(estimate, name, k, batch)
    probabilities, moments = [], []
    for position in range(math.prod(sizes)):
        draws = AllDraws(sizes, position)
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
