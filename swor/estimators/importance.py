"""Rules that weight by inclusion probabilities, and their normalised, biased relatives."""

from __future__ import annotations

import torch
from torch import Tensor

from swor.math.integral import log_excess
from swor.math.logspace import working_dtype
from swor.types import Sample, Scheme, Weights


def importance_weighted(sample: Sample) -> Weights:
    r"""$w_s = p_s / q_\kappa(s)$, $M_{ss'} = p_{s'} / q_\kappa(s')$, $M_{ss} = p_s$.

    $q_\kappa(s) = P(g_s > \kappa) = 1 - e^{-e^{\log p_s - \kappa}}$ is the inclusion probability for
    the threshold $\kappa$. The importance-weighted estimator with its built-in baseline,
    ``eq:iw_estimator`` and ``eq:iwpgbl_estimator``. Unbiased; its weights do not sum to 1, so shift
    f to have a mean near 0 if you can. There is no baseline for k = 1.

    >>> import swor
    >>> s = swor.gumbel_top_k(torch.tensor([0.5, 0.3, 0.2]).log(), 3)
    >>> bool(torch.allclose(importance_weighted(s).weight, s.log_p.exp()))  # the whole domain
    True
    """
    sample.require("importance_weighted", Scheme.WITHOUT_REPLACEMENT)
    if sample.kappa is None:
        raise ValueError(
            "the sample has no kappa; expected the (k+1)-th largest perturbed log-probability. "
            "Draw it with gumbel_top_k or stochastic_beam_search."
        )
    dtype = sample.log_p.dtype
    log_p = sample.log_p.detach().to(working_dtype(dtype))
    weight = torch.exp(_log_p_over_q(log_p, sample.kappa.to(log_p.dtype).unsqueeze(-1)))
    if sample.k == 1:
        return Weights(weight.to(dtype), None, sample.log_p)
    return Weights(weight.to(dtype), _own_replaced(weight, log_p.exp()).to(dtype), sample.log_p)


def _log_p_over_q(log_p: Tensor, kappa: Tensor) -> Tensor:
    r"""$\log p - \log(1 - e^{-e^y})$ with $y = \log p - \kappa$, the common part cancelled by hand."""
    larger = torch.maximum(log_p, kappa)
    return torch.where(log_p == -torch.inf, -torch.inf, larger - log_excess(log_p - kappa))


def _own_replaced(weight: Tensor, p: Tensor) -> Tensor:
    """Rows of the weights, with p in place of a sample's own weight."""
    own = torch.eye(weight.shape[-1], dtype=torch.bool, device=weight.device)
    return torch.where(own, p.unsqueeze(-1), weight.unsqueeze(-2))


def normalize(weights: Weights) -> Weights:
    r"""$w_s / \sum_{s'} w_{s'}$, and the rows of $M$ likewise: less variance, for some bias."""
    control = weights.control
    if control is not None:
        control = control / control.sum(-1, keepdim=True)
    weight = weights.weight / weights.weight.sum(-1, keepdim=True)
    return Weights(weight, control, weights.log_p)


def normalized_importance_weighted(sample: Sample) -> Weights:
    r"""$w_s \propto p_s / q_\kappa(s)$, each row of $M$ summing to 1, ``eq:niwpgbl_estimator``.

    The normalised importance-weighted estimator with its built-in baseline. Biased, for k > 1;
    the bias vanishes as k grows.

    >>> import swor
    >>> w = normalized_importance_weighted(swor.gumbel_top_k(torch.full((9,), 1 / 9).log(), 2))
    >>> w.weight.sum()
    tensor(1.)
    """
    sample.require("normalized_importance_weighted", Scheme.WITHOUT_REPLACEMENT)
    return normalize(importance_weighted(sample))


def risk(sample: Sample) -> Weights:
    r"""$w_s = p_s / \sum_{s'} p_{s'}$, $M_{ss'} = p_{s'} / \sum_{s''} p_{s''}$, ``eq:risk_bl``.

    The empirical risk: the expectation over the sample as if it were the whole domain. Its gradient
    is that of $\sum_s \hat p(s) f(s)$ with normalised $\hat p$. Biased, towards likely outcomes. For
    beams, stochastic or deterministic.

    >>> from swor import Sample
    >>> risk(Sample(torch.arange(2), torch.tensor([0.6, 0.2]).log())).weight
    tensor([0.7500, 0.2500])
    """
    sample.require("risk", Scheme.WITHOUT_REPLACEMENT, Scheme.BEAM_SEARCH)
    log_p = sample.log_p.detach().to(working_dtype(sample.log_p.dtype))
    weight = log_p.softmax(-1).to(sample.log_p.dtype)
    control = weight.unsqueeze(-2).expand(*weight.shape, sample.k)
    return Weights(weight, control, sample.log_p)
