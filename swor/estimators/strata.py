"""The rules for stratified and systematic samples."""

from __future__ import annotations

import torch

from swor.types import Sample, Scheme, Weights


def stratified(sample: Sample) -> Weights:
    r"""$e = \frac1k \sum_i f(x_i)$ for the samples of :func:`swor.stratified_sample`.

    Unbiased, since an outcome of probability p is expected kp times. The samples of different
    strata have different distributions, so the leave-one-out baseline of REINFORCE would be biased:
    there is none built in.

    >>> import swor
    >>> stratified(swor.stratified_sample(torch.tensor([0.6, 0.4]).log(), 2)).weight
    tensor([0.5000, 0.5000])
    """
    sample.require("stratified", Scheme.STRATIFIED)
    return _equally_weighted(sample)


def systematic(sample: Sample) -> Weights:
    r"""$e = \frac1k \sum_i f(x_i)$ for the samples of :func:`swor.systematic_sample`.

    Unbiased, and without a built-in baseline, for the same reasons as :func:`stratified`.

    >>> import swor
    >>> systematic(swor.systematic_sample(torch.tensor([0.6, 0.4]).log(), 2)).weight
    tensor([0.5000, 0.5000])
    """
    sample.require("systematic", Scheme.SYSTEMATIC)
    return _equally_weighted(sample)


def _equally_weighted(sample: Sample) -> Weights:
    weight = torch.full_like(sample.log_p, 1.0 / sample.k, requires_grad=False)
    return Weights(weight, None, sample.log_p)
