"""The sampling schemes: how each draws a sample of a distribution."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.distributions import Distribution

from swor.samplers.categorical import top_k_and_sample
from swor.samplers.distributions import sample, support
from swor.samplers.strata import stratified_sample, systematic_sample
from swor.types import Sample, Scheme


class CategoricalSampler(Protocol):
    """A sampler of a categorical variable, such as :func:`swor.top_k_and_sample`."""

    def __call__(
        self, log_probs: Tensor, k: int, /, *, generator: torch.Generator | None
    ) -> Sample:
        """From log-probabilities (*batch, n) to a sample of indices, (*batch, k)."""
        ...


class DistributionSampler(NamedTuple):
    """How a scheme draws a sample of a distribution.

    Attributes:
        draw: from a distribution, k and a generator to a sample.
        distinct: whether the outcomes are distinct, so that k is at most their number.
        lists_domain: whether all outcomes are listed, which a large product does not allow.
    """

    draw: Callable[[Distribution, int, torch.Generator | None], Sample]
    distinct: bool = False
    lists_domain: bool = False


def draw(scheme: Scheme, dist: Distribution, k: int, generator: torch.Generator | None) -> Sample:
    """A sample of a distribution by a scheme.

    >>> dist = torch.distributions.Categorical(logits=torch.zeros(5, 3))
    >>> draw(Scheme.STRATIFIED, dist, 3, None).value[0]
    tensor([0, 1, 2])
    """
    return SAMPLERS[scheme].draw(dist, k, generator)


def sample_domain(
    sampler: CategoricalSampler, dist: Distribution, k: int, generator: torch.Generator | None
) -> Sample:
    """Sample a distribution as a categorical variable over the list of all its outcomes."""
    domain = support(dist)
    drawn = sampler(domain.log_p, k, generator=generator)
    axis = domain.log_p.dim() - 1
    index = drawn.value.reshape(*drawn.value.shape, *(1 for _ in domain.value.shape[axis + 1 :]))
    return replace(drawn, value=torch.take_along_dim(domain.value, index, axis))


def _independent(dist: Distribution, k: int, generator: torch.Generator | None) -> Sample:
    return sample(dist, k, replacement=True, generator=generator)


def _distinct(dist: Distribution, k: int, generator: torch.Generator | None) -> Sample:
    return sample(dist, k, generator=generator)


SAMPLERS = {
    Scheme.WITHOUT_REPLACEMENT: DistributionSampler(_distinct, distinct=True),
    Scheme.WITH_REPLACEMENT: DistributionSampler(_independent),
    Scheme.TOP_K_AND_SAMPLE: DistributionSampler(
        partial(sample_domain, top_k_and_sample), distinct=True, lists_domain=True
    ),
    Scheme.STRATIFIED: DistributionSampler(
        partial(sample_domain, stratified_sample), lists_domain=True
    ),
    Scheme.SYSTEMATIC: DistributionSampler(
        partial(sample_domain, systematic_sample), lists_domain=True
    ),
}
"""Every scheme that draws from a distribution; a beam search only searches sequence models."""
