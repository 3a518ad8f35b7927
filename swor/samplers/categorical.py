"""Samplers of a categorical variable whose log-probabilities are all known."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from swor._checks import (
    check_count,
    check_k,
    check_log_probs,
    check_normalized,
    check_shape,
    check_tensor,
    may_inspect,
    may_validate,
)
from swor.math._logspace import log_remaining, working_dtype
from swor.samplers._distinct import distinct, independent, to_sample
from swor.samplers._inversion import fractions, invert
from swor.samplers._tables import log_mass_outside
from swor.types import Sample, Scheme


def gumbel_top_k(
    log_probs: Tensor,
    k: int,
    *,
    allow_fewer: bool = False,
    generator: torch.Generator | None = None,
) -> Sample:
    r"""Draw k distinct outcomes of a categorical variable by the Gumbel-top-k trick.

    $$b_1, \dots, b_k = \text{arg top-}k_i \; (\log p_i + \text{Gumbel}_i)$$

    The result is an ordered sample without replacement. Use it for a single categorical variable, such as a
    policy over actions.

    A Gumbel variable for every outcome is one way to draw such a sample; faster ones have the same
    distribution. On the CPU, the sample consists of the first k distinct outcomes of a few independent draws
    if there are many outcomes. Compiled code draws a few outcomes one by one. Otherwise blocks of outcomes
    compete by their mass, and then the outcomes of the best $k$ blocks compete with each other, so that about
    $2\sqrt{nk}$ Gumbel variables are drawn. Therefore the same seed gives different samples on the CPU, on an
    accelerator and in compiled code.

    Only the k selected entries carry gradient. Backpropagation to the logits allocates two tensors of their
    size: the gradients of the output and of the input of ``log_softmax``.

    Args:
        log_probs: normalised log-probabilities, (*batch, n); −inf masks an outcome.
        k: the number of distinct outcomes.
        allow_fewer: whether an element of the batch may have fewer than k outcomes of positive probability,
            for instance because a policy masks illegal actions. Such an element is drawn whole. The places
            that are left over come last and have the value 0, the log-probability −inf and, by every rule,
            the weight 0; their costs are not used, even if they are NaN.
        generator: the source of randomness.

    Returns:
        A sample whose ``value`` (*batch, k) contains indices into the last axis.

    >>> log_probs = torch.tensor([0.7, 0.2, 0.1]).log()
    >>> s = gumbel_top_k(log_probs, 3, generator=torch.Generator().manual_seed(0))
    >>> sorted(s.value.tolist()), s.log_rest
    ([0, 1, 2], tensor(-inf))
    >>> gumbel_top_k(torch.tensor([0.0, -torch.inf]), 2, allow_fewer=True).log_p
    tensor([0., -inf])

    References:
        | Gumbel-max trick and weighted reservoir sampling (Vieira, 2014)
        | https://timvieira.github.io/blog/post/2014/08/01/gumbel-max-trick-and-weighted-reservoir-sampling/

        | Stochastic Beams and Where to Find Them: The Gumbel-Top-k Trick for Sampling Sequences
        | Without Replacement (Kool et al., 2019c)
        | https://arxiv.org/abs/1903.06059
    """
    check_log_probs("log_probs", log_probs)
    check_k(k)
    found = distinct(log_probs, k, generator, allow_fewer=allow_fewer)
    log_p = log_probs.gather(-1, found.value)
    if allow_fewer or not may_inspect(log_p):  # the last outcomes may be impossible
        log_p = log_p.masked_fill(found.log_p == -torch.inf, -torch.inf)
    return to_sample(found, log_p)


def with_replacement(
    log_probs: Tensor, k: int, *, generator: torch.Generator | None = None
) -> Sample:
    r"""Draw k independent outcomes of a categorical variable.

    $$x_1, \dots, x_k \sim p$$

    Use it for :func:`swor.rloo`.

    Args:
        log_probs: normalised log-probabilities, (*batch, n); −inf masks an outcome.
        k: the number of samples.
        generator: the source of randomness.

    Returns:
        A sample whose ``value`` (*batch, k) contains indices into the last axis.

    >>> with_replacement(torch.tensor([0.0, -torch.inf]), 3).value
    tensor([0, 0, 0])
    """
    check_log_probs("log_probs", log_probs)
    check_k(k)
    value = independent(log_probs, k, generator)
    log_p = log_probs.gather(-1, value)
    return Sample(value=value, log_p=log_p, scheme=Scheme.WITH_REPLACEMENT)


def top_k_and_sample(
    log_probs: Tensor,
    k: int,
    *,
    m: int | Literal["auto"] = 1,
    summed: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Sample:
    r"""Take the most probable outcomes, and draw m samples from the others.

    $$C = \{k - m \text{ most probable}\}, \qquad x_1, \dots, x_m \sim p^{D \setminus C}$$

    Ties are broken by index. If m > 1, the m samples are drawn with replacement. Use it for
    :func:`swor.deterministic_sum_and_sample`.

    Args:
        log_probs: normalised log-probabilities, (*batch, n); −inf masks an outcome.
        k: the total number of evaluations.
        m: the number of sampled outcomes. "auto" chooses, for every element of the batch, the $|C|$ that
            minimises $(1 - \sum_{c \in C} p_c) / (k - |C|)$.
        summed: distinct outcomes to sum in place of the most probable ones, (*batch, k - m), for instance
            a memory of good outcomes.
        generator: the source of randomness.

    Returns:
        A sample whose ``value`` (*batch, k) contains indices into the last axis, the summed ones first.

    >>> s = top_k_and_sample(torch.tensor([0.1, 0.6, 0.3]).log(), 2)
    >>> s.value[0]
    tensor(1)

    References:
        | Rao-Blackwellized Stochastic Gradients for Discrete Distributions (Liu et al., 2019)
        | https://arxiv.org/abs/1810.04777

        | Memory Augmented Policy Optimization for Program Synthesis and Semantic Parsing
        | (Liang et al., 2018)
        | https://arxiv.org/abs/1807.02322
    """
    check_log_probs("log_probs", log_probs)
    check_k(k, log_probs.shape[-1])
    full = log_probs.detach().to(working_dtype(log_probs.dtype))
    chosen = _summed(full, k, m, summed)
    log_outside = log_remaining(full.gather(-1, chosen), log_mass_outside(full, chosen))
    check_normalized(log_outside[..., 0].exp(), log_probs.dtype)
    if m == "auto":
        shares = log_outside - torch.log(k - torch.arange(k, dtype=full.dtype, device=full.device))
        count = shares.argmin(-1, keepdim=True)
    else:
        count = torch.full_like(log_outside[..., :1], k - m, dtype=torch.long)
    summed_first = torch.arange(k, device=full.device) < count
    log_mass = log_outside.gather(-1, count)
    _check_left(log_mass, count)
    value = _sum_then_sample(full, chosen, summed_first, generator)
    log_q = torch.log((k - count).to(full.dtype)) + full.gather(-1, value) - log_mass
    log_q = torch.where(summed_first, 0.0, log_q)
    return Sample(
        value=value,
        log_p=log_probs.gather(-1, value),
        log_rest=log_mass_outside(full, value).to(log_probs.dtype),
        scheme=Scheme.TOP_K_AND_SAMPLE,
        log_q=log_q,
    )


def stratified_sample(
    log_probs: Tensor, k: int, *, generator: torch.Generator | None = None
) -> Sample:
    r"""Draw one outcome from each of k strata of equal probability.

    $$x_i = F^{-1}\bigl((i + u_i) / k\bigr), \qquad u_i \sim U(0, 1] \text{ independent}, \quad
    i = 0, \dots, k - 1$$

    $F$ is the cumulative probability in the order of the outcomes. Use it for :func:`swor.stratified`.

    Args:
        log_probs: normalised log-probabilities, (*batch, n); −inf masks an outcome.
        k: the number of samples.
        generator: the source of randomness.

    Returns:
        A sample whose ``value`` (*batch, k) contains indices into the last axis.

    >>> stratified_sample(torch.tensor([0.5, 0.25, 0.25]).log(), 4).value
    tensor([0, 0, 1, 2])

    References:
        | Sampling Techniques (Cochran, 1977), chapter 5
        | https://www.wiley-vch.de/en/areas-interest/mathematics-statistics/sampling-techniques-978-0-471-16240-7

        | Comparison of Resampling Schemes for Particle Filtering (Douc et al., 2005)
        | https://arxiv.org/abs/cs/0507025
    """
    return _inverse(log_probs, k, k, Scheme.STRATIFIED, generator)


def systematic_sample(
    log_probs: Tensor, k: int, *, generator: torch.Generator | None = None
) -> Sample:
    r"""Draw one outcome from each of k strata of equal probability, at the same position in all of them.

    $$x_i = F^{-1}\bigl((i + u) / k\bigr), \qquad u \sim U(0, 1], \quad i = 0, \dots, k - 1$$

    $F$ is the cumulative probability in the order of the outcomes. An outcome of probability p is sampled
    ⌊kp⌋ or ⌈kp⌉ times. Use it for :func:`swor.systematic`.

    Args:
        log_probs: normalised log-probabilities, (*batch, n); −inf masks an outcome.
        k: the number of samples.
        generator: the source of randomness.

    Returns:
        A sample whose ``value`` (*batch, k) contains indices into the last axis.

    >>> systematic_sample(torch.tensor([0.5, 0.25, 0.25]).log(), 4).value
    tensor([0, 0, 1, 2])

    References:
        | Sampling Techniques (Cochran, 1977), chapter 8
        | https://www.wiley-vch.de/en/areas-interest/mathematics-statistics/sampling-techniques-978-0-471-16240-7

        | Comparison of Resampling Schemes for Particle Filtering (Douc et al., 2005)
        | https://arxiv.org/abs/cs/0507025
    """
    return _inverse(log_probs, k, 1, Scheme.SYSTEMATIC, generator)


def _summed(log_probs: Tensor, k: int, m: int | str, given: Tensor | None) -> Tensor:
    """Return the outcomes to sum, (*batch, k - m); if m is "auto", all that might be summed."""
    if isinstance(m, str):
        if m != "auto" or given is not None:
            raise ValueError(
                f"m is {m!r}; expected an integer, or 'auto' without summed. Pass the number of "
                "outcomes to sample."
            )
        m = 1
    check_count("m", m, most=k)
    if given is None:
        return likeliest(log_probs, k - m)
    check_tensor("summed", given, torch.long)
    check_shape("summed", given, (*log_probs.shape[:-1], k - m), "the k - m outcomes to sum")
    if may_validate(given) and not _are_outcomes(given, log_probs.shape[-1]):
        raise ValueError(
            "summed contains an outcome twice, or a number that is no outcome; expected distinct integers "
            f"from 0 to {log_probs.shape[-1] - 1}. Remove the others."
        )
    return given


def _are_outcomes(given: Tensor, n: int) -> bool:
    """Return whether numbers are distinct and from 0 to n − 1."""
    ends = F.pad(F.pad(given.sort(-1).values, (1, 0), value=-1), (0, 1), value=n)
    return bool((ends.diff(dim=-1) > 0).all())


def _check_left(log_mass: Tensor, count: Tensor) -> None:
    """Check that there is mass to sample from beside the outcomes that are summed."""
    if may_validate(log_mass) and bool((empty := log_mass == -torch.inf).any()):
        summed = int(count[empty].max())
        raise ValueError(
            f"the {summed} outcomes that are summed have all the probability of an element of the batch, so "
            "there is none left to sample from; expected fewer possible outcomes in the sum. Lower k, "
            "raise m, mask fewer outcomes, or draw a sample without replacement with allow_fewer=True."
        )


def likeliest(log_probs: Tensor, count: int) -> Tensor:
    """Return the most probable outcomes, (*batch, count); ties are broken by index."""
    return torch.sort(log_probs, dim=-1, descending=True, stable=True).indices[..., :count]


def _sum_then_sample(
    log_probs: Tensor,
    chosen: Tensor,
    summed_first: Tensor,
    generator: torch.Generator | None,
) -> Tensor:
    """Keep the chosen outcomes that are summed, and draw the others from the remaining outcomes."""
    k, most = summed_first.shape[-1], chosen.shape[-1]
    kept = torch.where(summed_first[..., :most], -torch.inf, log_probs.gather(-1, chosen))
    drawn = independent(log_probs.scatter(-1, chosen, kept).log_softmax(-1), k, generator)
    return torch.where(summed_first, F.pad(chosen, (0, k - most)), drawn)


def _inverse(
    log_probs: Tensor, k: int, noises: int, scheme: Scheme, generator: torch.Generator | None
) -> Sample:
    check_log_probs("log_probs", log_probs)
    check_k(k)
    p = log_probs.detach().to(working_dtype(log_probs.dtype)).exp()
    check_normalized(p.sum(-1), log_probs.dtype)
    u = (torch.arange(k, device=p.device) + fractions(p, noises, generator)) / k
    value = invert(p, u)
    return Sample(value=value, log_p=log_probs.gather(-1, value), scheme=scheme)
