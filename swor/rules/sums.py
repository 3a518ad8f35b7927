"""Sum-and-sample estimators, which sum over some outcomes and sample from the others."""

from __future__ import annotations

import torch

from swor._checks import check_count, check_not_nan
from swor.math._logspace import log_remaining, working_dtype
from swor.math.ratios import complete, first_draw
from swor.types import Sample, Scheme, Weights, check_numbers, require


def sum_and_sample(sample: Sample, *, m: int = 1) -> Weights:
    r"""The stochastic sum-and-sample estimator: all samples but the last m are summed.

    $$e = \sum_{j \le k-m} p(b_j) f(b_j)
    + \Bigl(1 - \sum_{j \le k-m} p(b_j)\Bigr) \, e^{US, D \setminus B^{k-m}}$$

    The last $m$ samples are weighted by the unordered set estimator of the remaining domain; for m = 1
    this is $f(b_k)$. The estimator is unbiased and has no built-in baseline. Use it in comparisons: its
    variance is never below that of the unordered set estimator without a baseline.

    Args:
        sample: drawn without replacement.
        m: the number of sampled terms, from 1 to k; m = k gives the unordered set estimator without its
            baseline.

    Returns:
        The weights, (*batch, k), which sum to 1.

    >>> from swor import Sample
    >>> log_p, log_rest = torch.tensor([0.5, 0.3]).log(), torch.tensor(0.2).log()
    >>> s = Sample(torch.arange(2), log_p, log_rest, scheme="without_replacement")
    >>> sum_and_sample(s).weight
    tensor([0.5000, 0.5000])

    References:
        | Estimating Gradients for Discrete Random Variables by Sampling without Replacement
        | (Kool et al., 2020), equations (14) and (42)
        | https://arxiv.org/abs/2002.06043
    """
    require(sample, "sum_and_sample", Scheme.WITHOUT_REPLACEMENT)
    k = sample.k
    check_count("m", m, most=k)
    log_p, log_t = _ordered(sample)
    first = first_draw(log_p[..., k - m :], log_t[..., -1])
    last = first * log_t[..., k - m, None].exp()
    weight = torch.cat([log_p[..., : k - m].exp(), last], dim=-1)
    return Weights(weight, None, sample.log_p)


def raj(sample: Sample) -> Weights:
    r"""Raj's estimator: the mean of the sum-and-sample estimates of all prefixes of the sample.

    $$e = \frac1k \sum_{j=1}^k \Bigl(\sum_{i<j} p(b_i) f(b_i)
    + \bigl(1 - \sum_{i<j} p(b_i)\bigr) f(b_j)\Bigr)$$

    It is unbiased and has no built-in baseline. It needs no leave-one-out ratios, so the weights are cheap
    to compute for any k.

    Args:
        sample: drawn without replacement.

    Returns:
        The weights, (*batch, k), which sum to 1.

    >>> from swor import Sample
    >>> log_p, log_rest = torch.tensor([0.5, 0.3]).log(), torch.tensor(0.2).log()
    >>> s = Sample(torch.arange(2), log_p, log_rest, scheme="without_replacement")
    >>> raj(s).weight
    tensor([0.7500, 0.2500])

    References:
        | Some Estimators in Sampling with Varying Probabilities without Replacement (Raj, 1956)
        | https://zbmath.org/?q=an:0073.15001
    """
    require(sample, "raj", Scheme.WITHOUT_REPLACEMENT)
    k = sample.k
    log_p, log_t = _ordered(sample)
    later = torch.arange(k - 1, -1, -1, device=log_p.device)
    weight = (later * log_p.exp() + log_t[..., :-1].exp()) / k
    return Weights(weight, None, sample.log_p)


def deterministic_sum_and_sample(sample: Sample) -> Weights:
    r"""The deterministic sum-and-sample estimator: the most probable outcomes are summed.

    $$e = \sum_{c \in C} p(c) f(c) + \frac{1 - \sum_{c \in C} p(c)}{m} \sum_{i=1}^m f(x_i)$$

    Here $C$ are the summed outcomes and $x_i$ the sampled ones. The estimator is unbiased and has no
    built-in baseline. Use it where all outcomes can be listed and a few of them have most of the
    probability.

    Args:
        sample: drawn by :func:`swor.top_k_and_sample`.

    Returns:
        The weights, (*batch, k), which sum to 1.

    >>> import swor
    >>> s = swor.top_k_and_sample(torch.tensor([0.6, 0.3, 0.1]).log(), 2)
    >>> deterministic_sum_and_sample(s).weight
    tensor([0.6000, 0.4000])

    References:
        | Rao-Blackwellized Stochastic Gradients for Discrete Distributions (Liu et al., 2019)
        | https://arxiv.org/abs/1810.04777

        | Estimating Gradients for Discrete Random Variables by Sampling without Replacement
        | (Kool et al., 2020), equation (13)
        | https://arxiv.org/abs/2002.06043
    """
    require(sample, "deterministic_sum_and_sample", Scheme.TOP_K_AND_SAMPLE)
    if sample.log_q is None:
        raise ValueError(
            "the sample has no log_q; expected the log of the expected number of copies of each "
            "outcome. Draw the sample with top_k_and_sample."
        )
    check_numbers("log_q", sample.log_q, sample.log_p, "log_p")
    log_p = sample.log_p.detach().to(working_dtype(sample.log_p.dtype))
    log_ratio = log_p - sample.log_q.detach()
    check_not_nan("log_p or log_q of the sample", log_ratio)
    return Weights(log_ratio.exp(), None, sample.log_p)


def _ordered(sample: Sample) -> tuple[torch.Tensor, torch.Tensor]:
    """Return normalised log p, (*batch, k), and the log of the mass left before each draw and at the end."""
    log_p, log_rest, log_total = complete(sample.log_p.detach(), sample.log_rest)
    total = log_total.unsqueeze(-1)
    return log_p - total, log_remaining(log_p, log_rest) - total
