"""The unordered set estimator, and the variance of its estimate."""

from __future__ import annotations

from torch import Tensor

from swor.checks import check_same, check_shape
from swor.math.murthy import variance_of_pairs
from swor.math.ratios import log_draws, log_first_draw
from swor.types import Sample, Scheme, Weights


def unordered_set(sample: Sample) -> Weights:
    r"""$w_s = p_s R(S, s)$, $M_{ss'} = p_{s'} R^{D \setminus s}(S, s')$.

    The unordered set estimator with its built-in baseline, ``eq:unord_set_pg_bl_estimator``: the
    Rao-Blackwellised version of the single-sample, sum-and-sample and importance-weighted
    estimators. Unbiased; the default choice for samples without replacement. There is no baseline
    for k = 1.

    >>> import swor, torch
    >>> w = unordered_set(swor.gumbel_top_k(torch.tensor([0.5, 0.3, 0.2]).log(), 2))
    >>> torch.allclose(w.weight.sum(), torch.tensor(1.0))
    True
    """
    sample.require("unordered_set", Scheme.WITHOUT_REPLACEMENT)
    dtype = sample.log_p.dtype
    if sample.k == 1:
        log_first = log_first_draw(sample.log_p, sample.log_rest)
        return Weights(log_first.exp().to(dtype), None, sample.log_p)
    log_first, log_second = log_draws(sample.log_p, sample.log_rest)
    return Weights(log_first.exp().to(dtype), log_second.exp().to(dtype), sample.log_p)


def murthy_variance(sample: Sample, cost: Tensor) -> Tensor:
    r"""$\sum_{i<j} p_i p_j (R_{ij} - R_i R_j)(f_i - f_j)^2$, $R_{ij} = R(S, i) R^{D \setminus i}(S, j)$.

    An unbiased estimate, from the sample itself, of the variance of the unordered set estimate of
    $E[f]$ (Murthy 1957); its square root is a standard error.

    Args:
        sample: drawn without replacement, k ≥ 2.
        cost: $f$ of every sample, (*batch, k).

    Returns:
        (*batch,)

    >>> import swor, torch
    >>> s = swor.gumbel_top_k(torch.tensor([0.5, 0.3, 0.2]).log(), 3)
    >>> murthy_variance(s, torch.rand(3))  # the whole domain: nothing is left to chance
    tensor(0.)
    """
    sample.require("murthy_variance", Scheme.WITHOUT_REPLACEMENT)
    check_shape("cost", cost, tuple(sample.log_p.shape), "one number for every sample")
    check_same("cost", cost, "log_p", sample.log_p)
    if sample.k < 2:
        raise ValueError("the sample has k = 1; expected k >= 2 to tell a variance. Raise k.")
    pairs = variance_of_pairs(sample.log_p, sample.log_rest)
    difference = cost.double().unsqueeze(-1) - cost.double().unsqueeze(-2)
    return 0.5 * (pairs * difference.square()).sum((-1, -2)).to(cost.dtype)
