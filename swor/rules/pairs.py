"""Means over pairs of independent draws, from distinct samples or from independent ones."""

from __future__ import annotations

from torch import Tensor

from swor.rules.reinforce import rloo
from swor.rules.unordered_set import unordered_set
from swor.types import Sample, Scheme, require


def pair_weights(sample: Sample) -> Tensor:
    r"""The weights of all pairs of samples, for the mean of a function of two independent draws.

    $$E[\varphi(x, x')] \approx \sum_s \sum_{s'} W_{ss'} \, \varphi(s, s'), \qquad W_{ss'} = w_s M_{ss'}$$

    Here w and M are those of :func:`swor.unordered_set`, with $M_{ss} = p_s$, or for independent samples
    those of :func:`swor.rloo`. The estimate is unbiased for any φ. From distinct samples, it is the
    expectation, given the set, of the mean of φ over the pairs of k independent draws, so its variance is
    never larger than that of this mean. Use it to make an estimator that is a mean over pairs into one for
    distinct samples; :func:`swor.unordered_set_double_control` is an example, and the page on control
    variates has the proofs.

    Args:
        sample: drawn with or without replacement, k ≥ 2.

    Returns:
        The weights, (*batch, k, k), which sum to 1; the first of a pair is the row.

    >>> import swor, torch
    >>> s = swor.gumbel_top_k(torch.tensor([0.5, 0.3, 0.2]).log(), 3)  # the whole domain
    >>> W = pair_weights(s)
    >>> torch.allclose(W, s.log_p.exp().unsqueeze(-1) * s.log_p.exp())
    True
    """
    require(sample, "pair_weights", Scheme.WITHOUT_REPLACEMENT, Scheme.WITH_REPLACEMENT)
    distinct = sample.scheme == Scheme.WITHOUT_REPLACEMENT
    weights = (unordered_set if distinct else rloo)(sample)
    if weights.baseline_weights is None:
        raise ValueError("the sample has k = 1; expected k >= 2, because a pair needs two samples.")
    return weights.weight.unsqueeze(-1) * weights.baseline_weights
