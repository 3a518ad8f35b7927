"""Stratified and systematic samples: as with replacement, but spread evenly over the probability."""

from __future__ import annotations

import torch
from torch import Tensor

from swor.checks import check_k, check_log_probs, check_normalized
from swor.math.logspace import working_dtype
from swor.types import Sample, Scheme


def stratified_sample(
    log_probs: Tensor, k: int, *, generator: torch.Generator | None = None
) -> Sample:
    r"""$x_i = F^{-1}\bigl((i + u_i) / k\bigr)$, $i = 0, \dots, k - 1$, with independent $u_i \sim U(0, 1)$.

    One sample from every k-th part of the probability, in the order of the outcomes. For
    :func:`swor.stratified`.

    Args:
        log_probs: normalised log-probabilities, (*batch, n); −inf masks an outcome.
        k: the number of samples.
        generator: the source of randomness.

    Returns:
        A sample whose ``value`` (*batch, k) has indices into the last axis.

    >>> stratified_sample(torch.tensor([0.5, 0.25, 0.25]).log(), 4).value
    tensor([0, 0, 1, 2])
    """
    return _inverse(log_probs, k, k, Scheme.STRATIFIED, generator)


def systematic_sample(
    log_probs: Tensor, k: int, *, generator: torch.Generator | None = None
) -> Sample:
    r"""$x_i = F^{-1}\bigl((i + u) / k\bigr)$, $i = 0, \dots, k - 1$, with a single $u \sim U(0, 1)$.

    An outcome of probability p is sampled ⌊kp⌋ or ⌈kp⌉ times. For :func:`swor.systematic`.

    Args:
        log_probs: normalised log-probabilities, (*batch, n); −inf masks an outcome.
        k: the number of samples.
        generator: the source of randomness.

    Returns:
        A sample whose ``value`` (*batch, k) has indices into the last axis.

    >>> systematic_sample(torch.tensor([0.5, 0.25, 0.25]).log(), 4).value
    tensor([0, 0, 1, 2])
    """
    return _inverse(log_probs, k, 1, Scheme.SYSTEMATIC, generator)


def _inverse(
    log_probs: Tensor, k: int, noises: int, scheme: Scheme, generator: torch.Generator | None
) -> Sample:
    check_log_probs("log_probs", log_probs)
    check_k(k)
    p = log_probs.detach().to(working_dtype(log_probs.dtype)).exp()
    check_normalized(p.sum(-1), log_probs.dtype)
    shape = (*p.shape[:-1], noises)
    u = torch.rand(shape, generator=generator, dtype=p.dtype, device=p.device)
    position = (torch.arange(k, device=p.device) + u) / k
    value = invert(p, position)
    return Sample(value=value, log_p=log_probs.gather(-1, value), scheme=scheme)


def invert(p: Tensor, position: Tensor) -> Tensor:
    """The outcomes (*batch, k) at positions in [0, 1) of the cumulative probabilities."""
    cumulative = p.cumsum(-1)
    cumulative = cumulative / cumulative[..., -1:]
    # k - 1 + u may round to k, which lies beyond the last outcome.
    position = position.clamp(max=1.0 - torch.finfo(p.dtype).eps / 2)
    return torch.searchsorted(cumulative, position.contiguous(), right=True)
