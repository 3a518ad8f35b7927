"""Stratified and systematic samples, which are spread evenly over the probability."""

from __future__ import annotations

import torch
from torch import Tensor

from swor._checks import check_k, check_log_probs, check_normalized
from swor.math._logspace import working_dtype
from swor.samplers._inversion import fractions, invert
from swor.types import Sample, Scheme


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
