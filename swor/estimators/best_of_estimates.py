"""The best of m as estimators that draw for themselves: from a function, a distribution and k."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributions import Distribution

from swor.estimators.best_of import best_of
from swor.estimators.best_of_independent import Baseline, best_of_independent
from swor.samplers.distributions import sample
from swor.types import Cost


def best_of_distinct(
    f: Cost,
    dist: Distribution,
    k: int,
    /,
    *,
    m: int,
    largest: bool = True,
    generator: torch.Generator | None = None,
) -> Tensor:
    """The best of m draws from k distinct samples, (*batch,).

    See :func:`swor.best_of`.
    """
    drawn = sample(dist, k, generator=generator)
    return best_of(drawn, m, largest=largest).loss(f(drawn.value))


def max_at_m(
    f: Cost,
    dist: Distribution,
    k: int,
    /,
    *,
    m: int,
    largest: bool = True,
    generator: torch.Generator | None = None,
) -> Tensor:
    """The best of m draws from k independent samples, and its gradient without a baseline, (*batch,).

    See :func:`swor.best_of_independent`.
    """
    drawn = sample(dist, k, replacement=True, generator=generator)
    estimate = best_of_independent(drawn, m, largest=largest, baseline="none")
    return estimate.loss(f(drawn.value))


def pkpo(
    f: Cost,
    dist: Distribution,
    k: int,
    /,
    *,
    m: int,
    largest: bool = True,
    baseline: Baseline = "fewer",
    generator: torch.Generator | None = None,
) -> Tensor:
    """The same value with the gradient of pass@k policy optimisation, (*batch,).

    See :func:`swor.best_of_independent`.
    """
    drawn = sample(dist, k, replacement=True, generator=generator)
    estimate = best_of_independent(drawn, m, largest=largest, baseline=baseline)
    return estimate.loss(f(drawn.value))
