"""Samples of torch.distributions by any scheme, in the encoding of the distribution itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributions import Bernoulli, Categorical, Distribution, Independent, OneHotCategorical

from swor._checks import kind
from swor.samplers.categorical import (
    gumbel_top_k,
    stratified_sample,
    systematic_sample,
    top_k_and_sample,
    with_replacement,
)
from swor.samplers.products import Encoding, Factorized
from swor.samplers.sequences import ancestral_sample, stochastic_beam_search
from swor.types import Sample, Scheme

LARGEST_DOMAIN = 2**22


def factorized(dist: Distribution) -> Factorized:
    """Return the product of categorical variables that a distribution describes.

    A distribution of a single variable is a product of one.

    Args:
        dist: Categorical, OneHotCategorical, Bernoulli, or Independent of these.

    >>> dist = Independent(Bernoulli(logits=torch.zeros(5, 2, 3)), 2)
    >>> variables = factorized(dist)
    >>> variables.batch, variables.length, variables.categories, variables.event
    (torch.Size([5]), 6, 2, (2, 3))
    """
    base, axes = dist, 0
    while isinstance(base, Independent):
        base, axes = base.base_dist, axes + base.reinterpreted_batch_ndims
    log_probs, encoding = _table(base, dist)
    if axes == 0:
        return Factorized(log_probs.unsqueeze(-2), (), encoding)
    event = tuple(log_probs.shape[-1 - axes : -1])
    return Factorized(log_probs.flatten(-1 - axes, -2), event, encoding)


def _table(base: Distribution, given: object) -> tuple[Tensor, Encoding]:
    if isinstance(base, Categorical | OneHotCategorical):
        name, given_as = parameter(base)
        encoding: Encoding = "index" if isinstance(base, Categorical) else "one_hot"
        return given_as if name == "logits" else _log(given_as), encoding
    if isinstance(base, Bernoulli):
        name, given_as = parameter(base)
        if name == "logits":
            pair = F.logsigmoid(-given_as), F.logsigmoid(given_as)
        else:
            sure = (given_as == 0.0) | (given_as == 1.0)  # and stays so: there is no gradient
            probs = torch.where(sure, given_as.detach(), given_as)
            pair = _log_complement(probs), _log(probs)
        return torch.stack(pair, dim=-1), "binary"
    named = repr(given) if isinstance(given, Distribution) else kind(given)
    raise TypeError(
        f"the distribution is {named}; expected Categorical, OneHotCategorical, Bernoulli, or "
        "Independent of these, such as Categorical(logits=logits). For other distributions, pass the "
        "log-probabilities of all outcomes to gumbel_top_k, or a SequenceModel to stochastic_beam_search."
    )


def parameter(base: Categorical | OneHotCategorical | Bernoulli) -> tuple[str, Tensor]:
    """Return the name and the value of what a distribution was made with, "probs" or "logits".

    The logits of a distribution that was made with probabilities are clamped to the log of the machine
    epsilon: an outcome of probability 0 is possible under them, and the gradient of a small one is lost.
    """
    inner = base._categorical if isinstance(base, OneHotCategorical) else base
    given: Tensor = inner._param
    return ("logits" if given is vars(inner).get("logits") else "probs"), given


def _log(probs: Tensor) -> Tensor:
    """Return log p, which is −inf without a gradient where p is 0."""
    impossible = probs == 0.0
    return probs.masked_fill(impossible, 1.0).log().masked_fill(impossible, -torch.inf)


def _log_complement(probs: Tensor) -> Tensor:
    """Return log(1 − p), which is −inf without a gradient where p is 1."""
    impossible = probs == 1.0
    return torch.log1p(-probs.masked_fill(impossible, 0.0)).masked_fill(impossible, -torch.inf)


def can_be_listed(dist: Distribution) -> bool:
    """Return whether a distribution is small enough to list all its outcomes."""
    variables = factorized(dist)
    return variables.event == () or variables.outcomes <= LARGEST_DOMAIN


def support(dist: Distribution) -> Sample:
    """Return all outcomes of a distribution, (*batch, |D|, *event), in the order of their indices.

    Args:
        dist: Categorical, OneHotCategorical, Bernoulli, or Independent of these, small enough to be
            enumerated.
    """
    variables = factorized(dist)
    n, c = variables.length, variables.categories
    if not can_be_listed(dist):
        raise ValueError(
            f"the distribution has {c}^{n} outcomes; expected at most {LARGEST_DOMAIN} to list all "
            "of them. Sample from it with swor.sample instead."
        )
    axes = [torch.arange(c, device=variables.log_probs.device)] * n
    index = torch.cartesian_prod(*axes).reshape(-1, n).expand(*variables.batch, -1, n)
    log_p = variables.log_prob(index)
    nothing = torch.full_like(log_p[..., 0].detach(), -torch.inf)
    return Sample(
        variables.encode(index), log_p, nothing, nothing, scheme=Scheme.WITHOUT_REPLACEMENT
    )


def sample(
    dist: Distribution,
    k: int,
    *,
    replacement: bool = False,
    allow_fewer: bool = False,
    generator: torch.Generator | None = None,
) -> Sample:
    """Draw k outcomes of a distribution, which are distinct by default.

    A product of variables (``Independent``) is sampled as one variable over all combinations. Use it for
    distributions of ``torch.distributions``, such as a discrete latent variable.

    Args:
        dist: Categorical, OneHotCategorical, Bernoulli, or Independent of these.
        k: the number of samples.
        replacement: if True, the outcomes are drawn independently and may repeat.
        allow_fewer: whether an element of the batch may have fewer than k possible outcomes, as in
            :func:`swor.gumbel_top_k`.
        generator: the source of randomness.

    Returns:
        A sample whose ``value`` (*batch, k, *event) has the encoding that ``dist`` itself uses.

    >>> dist = torch.distributions.OneHotCategorical(logits=torch.zeros(5, 3))
    >>> sample(dist, 2).value.shape
    torch.Size([5, 2, 3])

    References:
        | Stochastic Beams and Where to Find Them: The Gumbel-Top-k Trick for Sampling Sequences
        | Without Replacement (Kool et al., 2019c)
        | https://arxiv.org/abs/1903.06059
    """
    if replacement and allow_fewer:
        raise ValueError(
            "allow_fewer is True for a sample with replacement, which may have any size; expected it for "
            "distinct samples alone. Leave it out."
        )
    variables = factorized(dist)
    if variables.event == ():
        table = variables.log_probs.squeeze(-2)
        if replacement:
            drawn = with_replacement(table, k, generator=generator)
        else:
            drawn = gumbel_top_k(table, k, allow_fewer=allow_fewer, generator=generator)
        return replace(drawn, value=variables.encode(drawn.value.unsqueeze(-1)))
    if replacement:
        drawn = ancestral_sample(variables, k, generator=generator)
    else:
        drawn = stochastic_beam_search(variables, k, allow_fewer=allow_fewer, generator=generator)
    return replace(drawn, value=variables.encode(drawn.value))


class CategoricalSampler(Protocol):
    """A sampler of a categorical variable, such as :func:`swor.top_k_and_sample`."""

    def __call__(
        self, log_probs: Tensor, k: int, /, *, generator: torch.Generator | None
    ) -> Sample:
        """Draw a sample of indices, (*batch, k), from log-probabilities (*batch, n)."""
        ...


class DistributionSampler(NamedTuple):
    """The sampler of a scheme.

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


SAMPLERS = {
    Scheme.WITHOUT_REPLACEMENT: DistributionSampler(
        lambda dist, k, generator: sample(dist, k, generator=generator), distinct=True
    ),
    Scheme.WITH_REPLACEMENT: DistributionSampler(
        lambda dist, k, generator: sample(dist, k, replacement=True, generator=generator)
    ),
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
