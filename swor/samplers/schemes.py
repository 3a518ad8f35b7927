"""The table of sampling schemes: how each of them draws a sample from a distribution."""

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
        """Draw a sample of indices, (*batch, k), from log-probabilities (*batch, n)."""
        ...


class DistributionSampler(NamedTuple):
    """How a scheme draws a sample from a distribution.

    Attributes:
        draw: from a distribution, k and a generator to a sample.
        distinct: whether k must not exceed the number of outcomes.
        lists_domain: whether the sampler lists all outcomes, which is impossible for a large product.
    """

    draw: Callable[[Distribution, int, torch.Generator | None], Sample]
    distinct: bool = False
    lists_domain: bool = False


def draw(scheme: Scheme, dist: Distribution, k: int, generator: torch.Generator | None) -> Sample:
    """Draw a sample from a distribution by a scheme.

    Args:
        scheme: how to draw it.
        dist: Categorical, OneHotCategorical, Bernoulli, or Independent of these.
        k: the number of samples.
        generator: the source of randomness.

    Returns:
        A sample whose ``value`` (*batch, k, *event) has the encoding that ``dist`` itself uses.

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
"""Every scheme that can sample a distribution. A beam search needs a sequence model and is not among them."""
