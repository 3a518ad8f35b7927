"""The unordered set estimator, its weights of pairs, and an estimate of its variance."""

from __future__ import annotations

from functools import partial

from torch import Tensor

from swor.math._murthy import murthy
from swor.math.ratios import complete, first_and_second_draw, first_draw, leave_one_out
from swor.rules.reinforce import rloo
from swor.types import Sample, Scheme, Weights, possible_values, require


def unordered_set(sample: Sample) -> Weights:
    r"""The unordered set estimator with its built-in baseline.

    $$w_s = p_s R(S, s), \qquad M_{ss'} = p_{s'} R^{D \setminus s}(S, s')$$

    The leave-one-out ratios $R$ are those of :func:`swor.leave_one_out`. Without the baseline, this is the
    Rao-Blackwellised version of the single-sample, sum-and-sample and importance-weighted estimators, so
    its variance is never larger than theirs. It is unbiased, and the default choice for samples without
    replacement. There is no baseline for k = 1.

    Args:
        sample: drawn without replacement.

    Returns:
        The weights, (*batch, k), which sum to 1, and the baseline weights, (*batch, k, k), whose rows
        sum to 1.

    >>> import swor, torch
    >>> w = unordered_set(swor.gumbel_top_k(torch.tensor([0.5, 0.3, 0.2]).log(), 2))
    >>> torch.allclose(w.weight.sum(), torch.tensor(1.0))
    True

    References:
        | Estimating Gradients for Discrete Random Variables by Sampling without Replacement
        | (Kool et al., 2020), equation (17)
        | https://arxiv.org/abs/2002.06043

        | Ordered and Unordered Estimators in Sampling without Replacement (Murthy, 1957)
    """
    require(sample, "unordered_set", Scheme.WITHOUT_REPLACEMENT)
    log_ratios = partial(_log_ratios, sample)
    if sample.k == 1:
        return Weights(first_draw(sample.log_p, sample.log_rest), None, sample.log_p, log_ratios)
    weight, baseline_weights = first_and_second_draw(sample.log_p, sample.log_rest)
    return Weights(weight, baseline_weights, sample.log_p, log_ratios)


def _log_ratios(sample: Sample) -> tuple[Tensor, Tensor | None]:
    """Return log (w / q) and log (M / q) of a sample, in working precision; no baseline for k = 1.

    They are log R and log R2 where q is normalised, as it is but for rounding.
    """
    log_q, log_rest, log_total = complete(sample.log_p.detach(), sample.log_rest)
    if sample.k == 1:
        return leave_one_out(log_q, log_rest) - log_total.unsqueeze(-1), None
    log_r, log_r2 = leave_one_out(log_q, log_rest, second_order=True)
    return log_r - log_total.unsqueeze(-1), log_r2 - log_total[..., None, None]


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


def murthy_variance(sample: Sample, cost: Tensor) -> Tensor:
    r"""An unbiased estimate, from a single sample, of the variance of the unordered set estimate of E[f].

    $$\hat V = \sum_{i<j} p_i p_j (R_{ij} - R_i R_j)(f_i - f_j)^2$$

    Here $R_i = R(S, i)$ and $R_{ij} = R(S, i) R^{D \setminus i}(S, j)$ are leave-one-out ratios. Use it to
    report a standard error, its square root, without drawing further samples.

    Args:
        sample: drawn without replacement, k ≥ 2.
        cost: the cost $f$ of every sample, (*batch, k).

    Returns:
        (*batch,)

    >>> import swor, torch
    >>> s = swor.gumbel_top_k(torch.tensor([0.5, 0.3, 0.2]).log(), 3)
    >>> murthy_variance(s, torch.rand(3))  # the sample is the whole domain
    tensor(0.)

    References:
        | Ordered and Unordered Estimators in Sampling without Replacement (Murthy, 1957)
    """
    require(sample, "murthy_variance", Scheme.WITHOUT_REPLACEMENT)
    cost = possible_values("cost", cost, sample.log_p, "log_p")
    if sample.k < 2:
        raise ValueError(
            "the sample has k = 1; expected k >= 2 to estimate a variance. Increase k."
        )
    return murthy(sample.log_p, sample.log_rest, cost)
