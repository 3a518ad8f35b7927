"""Rules whose weights are the same for all probabilities: the first sample, and means over a sample.

The means are RLOO, REINFORCE with independent samples, and those over stratified and systematic samples.
"""

from __future__ import annotations

import torch
from torch import Tensor

from swor.math._logspace import working_dtype
from swor.types import Sample, Scheme, Weights, require


def single_sample(sample: Sample) -> Weights:
    """The single-sample estimator: only the first sample is used.

    $$e = f(b_1)$$

    It is unbiased and has no built-in baseline. Use it as a reference in comparisons: the other rules for
    samples without replacement reduce its variance.

    Args:
        sample: drawn with or without replacement.

    Returns:
        The weights, 1 for the first sample and 0 for the others, (*batch, k).

    >>> from swor import Sample
    >>> log_p = torch.tensor([0.2, 0.3, 0.1]).log()
    >>> s = Sample(torch.arange(3), log_p, scheme="with_replacement")
    >>> single_sample(s).weight
    tensor([1., 0., 0.])

    References:
        | Estimating Gradients for Discrete Random Variables by Sampling without Replacement
        | (Kool et al., 2020), equation (8)
        | https://arxiv.org/abs/2002.06043
    """
    require(sample, "single_sample", Scheme.WITHOUT_REPLACEMENT, Scheme.WITH_REPLACEMENT)
    first = torch.arange(sample.k, device=sample.log_p.device) == 0
    weight = first.to(working_dtype(sample.log_p.dtype)).expand_as(sample.log_p)
    return Weights(weight, None, sample.log_p)


def rloo(sample: Sample) -> Weights:
    r"""RLOO, REINFORCE leave-one-out: independent samples, each compared with the mean of the others.

    $$e = \frac1k \sum_i f(x_i), \qquad b_i = \frac1{k-1} \sum_{j \ne i} f(x_j)$$

    The paper calls it REINFORCE with replacement with a built-in baseline. It is unbiased. Use it where
    samples hardly ever coincide, for instance with many variables and a high entropy; there it is simpler
    than :func:`swor.unordered_set` and nearly as good. There is no baseline for k = 1.

    Args:
        sample: drawn with replacement.

    Returns:
        The weights, 1/k each, (*batch, k), and the baseline weights, (*batch, k, k).

    >>> from swor import Sample
    >>> s = Sample(torch.arange(2), torch.tensor([0.2, 0.3]).log(), scheme="with_replacement")
    >>> rloo(s).baseline_weights
    tensor([[0., 1.],
            [1., 0.]])

    References:
        | Simple statistical gradient-following algorithms for connectionist reinforcement
        | learning (Williams, 1992)
        | https://doi.org/10.1007/BF00992696

        | Buy 4 REINFORCE Samples, Get a Baseline for Free! (Kool et al., 2019b)
        | https://openreview.net/forum?id=r1lgTGL5DE

        | Estimating Gradients for Discrete Random Variables by Sampling without Replacement
        | (Kool et al., 2020), equation (23)
        | https://arxiv.org/abs/2002.06043
    """
    require(sample, "rloo", Scheme.WITH_REPLACEMENT)
    k, weight = sample.k, _equal_weights(sample)
    if k == 1:
        return Weights(weight, None, sample.log_p)
    others = 1.0 - torch.eye(k, dtype=weight.dtype, device=weight.device)
    return Weights(weight, (others / (k - 1)).expand(*weight.shape, k), sample.log_p)


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
    return Weights(_equal_weights(sample), None, sample.log_p)


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
    return Weights(_equal_weights(sample), None, sample.log_p)


def _equal_weights(sample: Sample) -> Tensor:
    dtype = working_dtype(sample.log_p.dtype)
    return torch.full_like(sample.log_p, 1.0 / sample.k, dtype=dtype, requires_grad=False)
