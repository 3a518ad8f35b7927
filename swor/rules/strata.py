"""The rules for stratified and systematic samples."""

from __future__ import annotations

import torch

from swor.math._logspace import working_dtype
from swor.types import Sample, Scheme, Weights, require


def stratified(sample: Sample) -> Weights:
    r"""The mean over a stratified sample.

    $$e = \frac1k \sum_i f(x_i)$$

    It is unbiased, because an outcome of probability p is expected kp times in the sample. The samples of
    different strata have different distributions, so the leave-one-out baseline of REINFORCE would be
    biased, and there is no built-in baseline. Use it where neighbouring outcomes have similar costs.

    Args:
        sample: drawn by :func:`swor.stratified_sample`.

    Returns:
        The weights, 1/k each, (*batch, k).

    >>> import swor
    >>> stratified(swor.stratified_sample(torch.tensor([0.6, 0.4]).log(), 2)).weight
    tensor([0.5000, 0.5000])

    References:
        | Sampling Techniques (Cochran, 1977), chapter 5
        | https://www.wiley-vch.de/en/areas-interest/mathematics-statistics/sampling-techniques-978-0-471-16240-7

        | Comparison of Resampling Schemes for Particle Filtering (Douc et al., 2005)
        | https://arxiv.org/abs/cs/0507025
    """
    require(sample, "stratified", Scheme.STRATIFIED)
    return _equally_weighted(sample)


def systematic(sample: Sample) -> Weights:
    r"""The mean over a systematic sample.

    $$e = \frac1k \sum_i f(x_i)$$

    It is unbiased and has no built-in baseline, for the same reasons as :func:`stratified`. An outcome
    of probability p is sampled ⌊kp⌋ or ⌈kp⌉ times.

    Args:
        sample: drawn by :func:`swor.systematic_sample`.

    Returns:
        The weights, 1/k each, (*batch, k).

    >>> import swor
    >>> systematic(swor.systematic_sample(torch.tensor([0.6, 0.4]).log(), 2)).weight
    tensor([0.5000, 0.5000])

    References:
        | Sampling Techniques (Cochran, 1977), chapter 8
        | https://www.wiley-vch.de/en/areas-interest/mathematics-statistics/sampling-techniques-978-0-471-16240-7

        | Comparison of Resampling Schemes for Particle Filtering (Douc et al., 2005)
        | https://arxiv.org/abs/cs/0507025
    """
    require(sample, "systematic", Scheme.SYSTEMATIC)
    return _equally_weighted(sample)


def _equally_weighted(sample: Sample) -> Weights:
    dtype = working_dtype(sample.log_p.dtype)
    weight = torch.full_like(sample.log_p, 1.0 / sample.k, dtype=dtype, requires_grad=False)
    return Weights(weight, None, sample.log_p)
