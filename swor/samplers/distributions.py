"""Samples of torch.distributions, in the encoding of the distribution itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributions import (
    Bernoulli,
    Categorical,
    Distribution,
    Independent,
    OneHotCategorical,
)

from swor.samplers.categorical import gumbel_top_k, top_k_and_sample, with_replacement
from swor.samplers.factorized import Factorized
from swor.samplers.sequence import ancestral_sample, stochastic_beam_search
from swor.types import Sample

Encoding = Literal["index", "one_hot", "binary"]


class Discrete(NamedTuple):
    """A distribution as a table of log-probabilities, and the way it writes its outcomes."""

    log_probs: Tensor  # (*batch, c), or (*batch, n, c) for a product of n variables
    event: torch.Size  # the shape of the n variables, before the encoding
    product: bool
    encoding: Encoding

    def encode(self, index: Tensor) -> Tensor:
        """From indices (*batch, k) or (*batch, k, n) to values (*batch, k, *event)."""
        if self.product:
            index = index.unflatten(-1, self.event)
        if self.encoding == "one_hot":
            return F.one_hot(index, self.log_probs.shape[-1]).to(self.log_probs.dtype)
        return index.to(self.log_probs.dtype) if self.encoding == "binary" else index


def discrete(dist: Distribution) -> Discrete:
    """The table behind a distribution.

    Args:
        dist: Categorical, OneHotCategorical, Bernoulli, or Independent of these.
    """
    base, axes = dist, 0
    while isinstance(base, Independent):
        base, axes = base.base_dist, axes + base.reinterpreted_batch_ndims
    log_probs, encoding = _table(base, dist)
    if axes == 0:
        return Discrete(log_probs, torch.Size(), False, encoding)
    event = log_probs.shape[-1 - axes : -1]
    return Discrete(log_probs.flatten(-1 - axes, -2), event, True, encoding)


def _table(base: Distribution, given: Distribution) -> tuple[Tensor, Encoding]:
    if isinstance(base, Categorical):
        return base.logits, "index"
    if isinstance(base, OneHotCategorical):
        return base.logits, "one_hot"
    if isinstance(base, Bernoulli):
        logits = base.logits
        return torch.stack([F.logsigmoid(-logits), F.logsigmoid(logits)], dim=-1), "binary"
    raise TypeError(
        f"the distribution is {given!r}; expected Categorical, OneHotCategorical, Bernoulli, or "
        "Independent of these. For others give gumbel_top_k the log-probabilities of all outcomes, "
        "or stochastic_beam_search a SequenceModel."
    )


LARGEST_DOMAIN = 2**22


def can_be_listed(dist: Distribution) -> bool:
    """Whether a distribution is small enough to go through all its outcomes."""
    table = discrete(dist)
    *_, n, c = (1, *table.log_probs.shape)
    return not table.product or c**n <= LARGEST_DOMAIN


def support(dist: Distribution) -> Sample:
    """All outcomes of a distribution, (*batch, |D|, *event), in the order of their indices.

    Args:
        dist: Categorical, OneHotCategorical, Bernoulli, or Independent of these, small enough to
            be enumerated.
    """
    table = discrete(dist)
    *batch, c = table.log_probs.shape
    if not table.product:
        index = torch.arange(c, device=table.log_probs.device).expand(*batch, c)
        log_p = table.log_probs
    else:
        n = batch.pop()
        if not can_be_listed(dist):
            raise ValueError(
                f"the distribution has {c}^{n} outcomes; expected at most {LARGEST_DOMAIN} to go "
                "through all of them. Sample from it with swor.sample instead."
            )
        axes = [torch.arange(c, device=table.log_probs.device)] * n
        index = torch.cartesian_prod(*axes).reshape(-1, n).expand(*batch, -1, n)
        log_p = Factorized(table.log_probs).log_prob(index)
    nothing = torch.full_like(log_p[..., 0].detach(), -torch.inf)
    return Sample(value=table.encode(index), log_p=log_p, log_rest=nothing, kappa=nothing)


def sample(
    dist: Distribution,
    k: int,
    *,
    replacement: bool = False,
    generator: torch.Generator | None = None,
) -> Sample:
    r"""$k$ outcomes of a distribution, by default distinct.

    A product of variables (``Independent``) is one variable over all their combinations.

    Args:
        dist: Categorical, OneHotCategorical, Bernoulli, or Independent of these.
        k: the number of samples.
        replacement: draw them independently.
        generator: the source of randomness.

    Returns:
        A sample whose ``value`` (*batch, k, *event) has the encoding that ``dist`` itself would give.

    >>> dist = torch.distributions.OneHotCategorical(logits=torch.zeros(5, 3))
    >>> sample(dist, 2).value.shape
    torch.Size([5, 2, 3])
    """
    table = discrete(dist)
    if table.product:
        model = Factorized(table.log_probs)
        search = ancestral_sample if replacement else stochastic_beam_search
        drawn = search(model, k, generator=generator)
    else:
        draw = with_replacement if replacement else gumbel_top_k
        drawn = draw(table.log_probs, k, generator=generator)
    return replace(drawn, value=table.encode(drawn.value))


def sample_top_k(
    dist: Distribution,
    k: int,
    *,
    m: int | Literal["auto"] = 1,
    generator: torch.Generator | None = None,
) -> Sample:
    """The likeliest outcomes of a small distribution, and m samples of the others.

    As :func:`swor.top_k_and_sample`, for a distribution whose outcomes can be enumerated.
    """
    domain = support(dist)
    drawn = top_k_and_sample(domain.log_p, k, m=m, generator=generator)
    event = domain.value.shape[domain.log_p.dim() :]
    index = drawn.value.reshape(*drawn.value.shape, *(1 for _ in event))
    index = index.expand(*drawn.value.shape, *event)
    return replace(drawn, value=domain.value.gather(domain.log_p.dim() - 1, index))
