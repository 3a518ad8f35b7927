"""Statistics of a group of samples: how much of the distribution it covers, and how precise it is."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from swor.math.ratios import complete, constants
from swor.rules.unordered_set import murthy_variance, unordered_set
from swor.types import Sample, Scheme, require


class GroupStatistics(NamedTuple):
    r"""The statistics of each group of samples, (*batch,).

    Attributes:
        mass_covered: the total probability of the outcomes in the sample, from 0 to 1.
        effective_sample_size: $1 / \sum_s w_s^2$ of the weights of :func:`swor.unordered_set`, from 1
            to k. If it is near 1, one outcome dominates the estimate.
        standard_error: of the estimated mean cost, by :func:`swor.murthy_variance`; 0 if the sample is
            the whole domain.
        duplicates_avoided: the expected number of duplicates among k independent samples.
    """

    mass_covered: Tensor
    effective_sample_size: Tensor
    standard_error: Tensor
    duplicates_avoided: Tensor


def group_statistics(sample: Sample, cost: Tensor) -> GroupStatistics:
    r"""Statistics that describe how informative a group of distinct samples is.

    $$1 - \text{rest}, \qquad \frac{1}{\sum_s w_s^2}, \qquad \sqrt{\hat V}, \qquad
    \sum_s w_s \sum_{j<k} (1 - (1 - p_s)^j)$$

    The last is the unordered set estimate of $k - E[\text{distinct}]$, the expected number of duplicates
    among $k$ independent samples, because

    $$E[\text{distinct}] = \sum_x (1 - (1 - p_x)^k) = E_p\Bigl[\sum_{j<k} (1 - p_x)^j\Bigr].$$

    It is unbiased, and so is the variance $\hat V$ of :func:`swor.murthy_variance`. Use the statistics to
    monitor a training run.

    Args:
        sample: drawn without replacement, k ≥ 2.
        cost: the cost $f$ of every sample, (*batch, k).

    Returns:
        The four statistics, each (*batch,).

    >>> import swor
    >>> s = swor.gumbel_top_k(torch.tensor([0.8, 0.2]).log(), 2)
    >>> mass, size, error, avoided = group_statistics(s, torch.tensor([0.0, 1.0]))
    >>> mass, error, avoided  # a fraction 0.8² + 0.2² of the pairs are duplicates
    (tensor(1.), tensor(0.), tensor(0.6800))

    References:
        | Ordered and Unordered Estimators in Sampling without Replacement (Murthy, 1957)
    """
    require(sample, "group_statistics", Scheme.WITHOUT_REPLACEMENT)
    log_p, log_rest, log_total = constants(*complete(sample.log_p, sample.log_rest))
    p = torch.exp(log_p - log_total.unsqueeze(-1))  # at most 1
    weight = unordered_set(sample).weight
    variance = murthy_variance(sample, cost)
    j = torch.arange(1, sample.k, device=p.device, dtype=p.dtype)
    repeats = -torch.expm1(j * torch.log1p(-p).unsqueeze(-1))  # 1 − (1 − p)^j
    return GroupStatistics(
        mass_covered=-torch.expm1(log_rest - log_total),
        effective_sample_size=1.0 / weight.square().sum(-1),
        standard_error=variance.clamp(min=0.0).sqrt(),  # may be negative by rounding
        duplicates_avoided=(weight * repeats.sum(-1)).sum(-1),
    )


def duplicates(value: Tensor) -> Tensor:
    """Return the share of the sequences of a group that repeat an earlier one of the group, (*batch,).

    Args:
        value: sequences, (*batch, k, length).

    >>> duplicates(torch.tensor([[[1, 2], [1, 2], [2, 1], [1, 2]]]))
    tensor([0.5000])
    """
    same = (value.unsqueeze(-2) == value.unsqueeze(-3)).all(-1)
    return same.tril(-1).any(-1).float().mean(-1)
