"""Sum-and-sample: rules that sum some outcomes and sample the others."""

from __future__ import annotations

import torch

from swor.checks import check_count
from swor.math.logspace import log_remaining
from swor.math.ratios import complete, log_first_draw
from swor.types import Sample, Scheme, Weights


def sum_and_sample(sample: Sample, *, m: int = 1) -> Weights:
    r"""$e = \sum_{j \le k-m} p(b_j) f(b_j) + (1 - \sum_{j \le k-m} p(b_j)) \, e^{US, D \setminus B^{k-m}}$.

    The stochastic sum-and-sample estimator: the first $k - m$ samples are summed, the last $m$ are
    weighted by the unordered set estimator of the remaining domain, ``eq:ssas_estimator`` for
    m = 1 and ``eq:def_sas_multi``. Unbiased. No built-in baseline.

    Args:
        sample: drawn without replacement.
        m: the number of sampled terms, from 1 to k; m = k is the unordered set estimator.

    >>> from swor import Sample
    >>> log_p, log_rest = torch.tensor([0.5, 0.3]).log(), torch.tensor(0.2).log()
    >>> sum_and_sample(Sample(torch.arange(2), log_p, log_rest)).weight
    tensor([0.5000, 0.5000])
    """
    sample.require("sum_and_sample", Scheme.WITHOUT_REPLACEMENT)
    k = sample.k
    check_count("m", m, most=k)
    log_p, log_t = _ordered(sample)
    log_first = log_first_draw(log_p[..., k - m :], log_t[..., -1])
    log_weight = torch.cat([log_p[..., : k - m], log_first + log_t[..., k - m, None]], dim=-1)
    return Weights(log_weight.exp().to(sample.log_p.dtype), None, sample.log_p)


def raj(sample: Sample) -> Weights:
    r"""$e = \frac1k \sum_{j=1}^k \bigl(\sum_{i<j} p(b_i) f(b_i) + (1 - \sum_{i<j} p(b_i)) f(b_j)\bigr)$.

    The mean of the sum-and-sample estimates of all prefixes of the sample (Raj 1956). Unbiased. No
    built-in baseline.

    >>> from swor import Sample
    >>> log_p, log_rest = torch.tensor([0.5, 0.3]).log(), torch.tensor(0.2).log()
    >>> raj(Sample(torch.arange(2), log_p, log_rest)).weight
    tensor([0.7500, 0.2500])
    """
    sample.require("raj", Scheme.WITHOUT_REPLACEMENT)
    k = sample.k
    log_p, log_t = _ordered(sample)
    later = torch.arange(k - 1, -1, -1, device=log_p.device)
    weight = (later * log_p.exp() + log_t[..., :-1].exp()) / k
    return Weights(weight.to(sample.log_p.dtype), None, sample.log_p)


def deterministic_sum_and_sample(sample: Sample) -> Weights:
    r"""$e = \sum_{c \in C} p(c) f(c) + \frac{1 - \sum_{c \in C} p(c)}{m} \sum_{i=1}^m f(x_i)$.

    The deterministic sum-and-sample estimator (Liu et al. 2019), for samples of
    :func:`swor.top_k_and_sample`. Unbiased. No built-in baseline.

    >>> import swor
    >>> s = swor.top_k_and_sample(torch.tensor([0.6, 0.3, 0.1]).log(), 2)
    >>> deterministic_sum_and_sample(s).weight
    tensor([0.6000, 0.4000])
    """
    sample.require("deterministic_sum_and_sample", Scheme.TOP_K_AND_SAMPLE)
    if sample.log_q is None:
        raise ValueError("the sample has no log_q; expected one drawn by top_k_and_sample.")
    return Weights(torch.exp(sample.log_p.detach() - sample.log_q), None, sample.log_p)


def _ordered(sample: Sample) -> tuple[torch.Tensor, torch.Tensor]:
    """Normalised log p, (*batch, k), and the log of the mass left before each draw and after all."""
    log_p, log_rest, log_total = complete(sample.log_p.detach(), sample.log_rest)
    total = log_total.unsqueeze(-1)
    return log_p - total, log_remaining(log_p, log_rest) - total
