"""Rules that weight by inclusion probabilities, and the biased rules with normalised weights."""

from __future__ import annotations

import torch
from torch import Tensor

from swor._checks import check_not_nan, check_one_per_set
from swor.math._integral import log_excess
from swor.math._logspace import working_dtype
from swor.types import Sample, Scheme, Weights, require


def importance_weighted(sample: Sample) -> Weights:
    r"""The importance-weighted estimator with its built-in baseline.

    $$w_s = \frac{p_s}{q_\kappa(s)}, \qquad M_{ss'} = \frac{p_{s'}}{q_\kappa(s')} \; (s' \ne s),
    \qquad M_{ss} = p_s$$

    $q_\kappa(s) = P(g_s > \kappa) = 1 - e^{-e^{\log p_s - \kappa}}$ is the inclusion probability for the
    threshold $\kappa$, the (k+1)-th largest perturbed log-probability. The estimator is unbiased. Its
    weights do not sum to 1, so shift f to have a mean near 0 if you can. There is no baseline for k = 1.

    Args:
        sample: drawn without replacement, with ``kappa``.

    Returns:
        The weights, (*batch, k), and the baseline weights, (*batch, k, k).

    >>> import swor
    >>> s = swor.gumbel_top_k(torch.tensor([0.5, 0.3, 0.2]).log(), 3)
    >>> bool(torch.allclose(importance_weighted(s).weight, s.log_p.exp()))  # the whole domain
    True

    References:
        | Estimating Gradients for Discrete Random Variables by Sampling without Replacement
        | (Kool et al., 2020), equations (15) and (51)
        | https://arxiv.org/abs/2002.06043

        | Priority sampling for estimation of arbitrary subset sums (Duffield et al., 2007)
        | https://doi.org/10.1145/1314690.1314696

        | Estimating means in a finite universe (Vieira, 2017)
        | https://timvieira.github.io/blog/post/2017/07/03/estimating-means-in-a-finite-universe/
    """
    require(sample, "importance_weighted", Scheme.WITHOUT_REPLACEMENT)
    if sample.kappa is None:
        raise ValueError(
            "the sample has no kappa; expected the (k+1)-th largest perturbed log-probability. "
            "Draw it with gumbel_top_k or stochastic_beam_search."
        )
    check_one_per_set("kappa", sample.kappa, sample.log_p)
    log_p = sample.log_p.detach().to(working_dtype(sample.log_p.dtype))
    log_ratio = _log_p_over_q(log_p, sample.kappa.detach().to(log_p.dtype).unsqueeze(-1))
    check_not_nan("log_p or kappa of the sample", log_ratio)
    weight = log_ratio.exp()
    if sample.k == 1:
        return Weights(weight, None, sample.log_p)
    return Weights(weight, _own_replaced(weight, log_p.exp()), sample.log_p)


def _log_p_over_q(log_p: Tensor, kappa: Tensor) -> Tensor:
    r"""Return $\log p - \log(1 - e^{-e^y})$ with $y = \log p - \kappa$, the common part cancelled by hand."""
    larger = torch.maximum(log_p, kappa)
    return torch.where(log_p == -torch.inf, -torch.inf, larger - log_excess(log_p - kappa))


def _own_replaced(weight: Tensor, p: Tensor) -> Tensor:
    """Return rows of the weights, (*batch, k, k), with p in place of each sample's own weight."""
    own = torch.eye(weight.shape[-1], dtype=torch.bool, device=weight.device)
    return torch.where(own, p.unsqueeze(-1), weight.unsqueeze(-2))


def normalize(weights: Weights) -> Weights:
    r"""Divide weights, and each row of baseline weights, by their sum.

    $$w_s \leftarrow \frac{w_s}{\sum_{s'} w_{s'}}, \qquad
    M_{ss'} \leftarrow \frac{M_{ss'}}{\sum_{s''} M_{ss''}}$$

    The variance usually becomes smaller, and the estimator becomes biased if the sum was not constant.
    Use it to turn any rule into its normalised version.

    Args:
        weights: of any rule.

    Returns:
        The normalised weights; without baseline weights if there were none.

    >>> import swor
    >>> w = swor.Weights(torch.tensor([1.0, 3.0]), None, torch.tensor([0.1, 0.3]).log())
    >>> normalize(w).weight
    tensor([0.2500, 0.7500])
    """
    rows = weights.baseline_weights
    return Weights(_shares(weights.weight), None if rows is None else _shares(rows), weights.log_p)


def _shares(weights: Tensor) -> Tensor:
    """Divide by the sum over the last axis; all 0 where no outcome is possible."""
    total = weights.sum(-1, keepdim=True)
    return weights / total.masked_fill(total == 0.0, 1.0)


def normalized_importance_weighted(sample: Sample) -> Weights:
    r"""The normalised importance-weighted estimator with its built-in baseline.

    $$w_s = \frac{p_s / q_\kappa(s)}{\sum_{s' \in S} p_{s'} / q_\kappa(s')}$$

    The rows of the baseline weights $M$ of :func:`swor.importance_weighted` are normalised as well. The
    estimator is biased for k > 1, and the bias vanishes as k grows. Use it where the unbiased weights vary
    too much.

    Args:
        sample: drawn without replacement, with ``kappa``.

    Returns:
        The weights, (*batch, k), which sum to 1, and the baseline weights, (*batch, k, k), whose rows
        sum to 1.

    >>> import swor
    >>> w = normalized_importance_weighted(swor.gumbel_top_k(torch.full((9,), 1 / 9).log(), 2))
    >>> w.weight.sum()
    tensor(1.)

    References:
        | Estimating Gradients for Discrete Random Variables by Sampling without Replacement
        | (Kool et al., 2020), equation (52)
        | https://arxiv.org/abs/2002.06043

        | Buy 4 REINFORCE Samples, Get a Baseline for Free! (Kool et al., 2019b)
        | https://openreview.net/forum?id=r1lgTGL5DE
    """
    require(sample, "normalized_importance_weighted", Scheme.WITHOUT_REPLACEMENT)
    return normalize(importance_weighted(sample))


def risk(sample: Sample) -> Weights:
    r"""The empirical risk: the sample is treated as if it were the whole domain.

    $$w_s = \frac{p_s}{\sum_{s' \in S} p_{s'}}, \qquad M_{ss'} = \frac{p_{s'}}{\sum_{s'' \in S} p_{s''}}$$

    Its gradient is that of $\sum_s \hat p_s f_s$, where $\hat p$ is the normalised probability. It is biased
    towards probable outcomes. Use it for a deterministic beam search, for which no unbiased rule exists.

    Args:
        sample: drawn without replacement, or the result of :func:`swor.beam_search`.

    Returns:
        The weights, (*batch, k), which sum to 1, and the baseline weights, (*batch, k, k), whose rows
        sum to 1.

    >>> from swor import Sample
    >>> s = Sample(torch.arange(2), torch.tensor([0.6, 0.2]).log(), scheme="beam_search")
    >>> risk(s).weight
    tensor([0.7500, 0.2500])

    References:
        | Classical Structured Prediction Losses for Sequence to Sequence Learning
        | (Edunov et al., 2018)
        | https://arxiv.org/abs/1711.04956

        | Estimating Gradients for Discrete Random Variables by Sampling without Replacement
        | (Kool et al., 2020), equations (21) and (22)
        | https://arxiv.org/abs/2002.06043
    """
    require(sample, "risk", Scheme.WITHOUT_REPLACEMENT, Scheme.BEAM_SEARCH)
    check_not_nan("log_p of the sample", sample.log_p)
    log_p = sample.log_p.detach().to(working_dtype(sample.log_p.dtype))
    impossible = log_p == -torch.inf  # maybe all of them, and then softmax is NaN
    weight = log_p.softmax(-1).masked_fill(impossible, 0.0)
    baseline_weights = weight.unsqueeze(-2).expand(*weight.shape, sample.k)
    return Weights(weight, baseline_weights, sample.log_p)
