"""Rules for independent samples."""

from __future__ import annotations

import torch

from swor.types import Sample, Scheme, Weights


def single_sample(sample: Sample) -> Weights:
    r"""$e = f(b_1)$: only the first sample counts, ``eq:ss_unbiased``.

    Unbiased, and the estimator that all the others improve. No built-in baseline.

    >>> from swor import Sample
    >>> single_sample(Sample(torch.arange(3), torch.tensor([0.2, 0.3, 0.1]).log())).weight
    tensor([1., 0., 0.])
    """
    sample.require("single_sample", Scheme.WITHOUT_REPLACEMENT, Scheme.WITH_REPLACEMENT)
    first = torch.arange(sample.k, device=sample.log_p.device) == 0
    weight = first.to(sample.log_p.dtype).expand_as(sample.log_p)
    return Weights(weight, None, sample.log_p)


def reinforce(sample: Sample) -> Weights:
    r"""$e = \frac1k \sum_i f(x_i)$ with $b_i = \frac1{k-1} \sum_{j \ne i} f(x_j)$.

    REINFORCE with replacement and its built-in leave-one-out baseline,
    ``eq:reinforce_with_replacement``. Unbiased. There is no baseline for k = 1.

    >>> from swor import Sample
    >>> s = Sample(torch.arange(2), torch.tensor([0.2, 0.3]).log(), scheme="with_replacement")
    >>> reinforce(s).control
    tensor([[0., 1.],
            [1., 0.]])
    """
    sample.require("reinforce", Scheme.WITH_REPLACEMENT)
    k = sample.k
    weight = torch.full_like(sample.log_p, 1.0 / k, requires_grad=False)
    if k == 1:
        return Weights(weight, None, sample.log_p)
    others = 1.0 - torch.eye(k, dtype=weight.dtype, device=weight.device)
    return Weights(weight, (others / (k - 1)).expand(*weight.shape, k), sample.log_p)
