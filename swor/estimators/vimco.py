"""VIMCO: the gradient of a bound from several samples."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.distributions import Distribution

from swor._checks import check_finite, may_validate
from swor.samplers.distributions import sample
from swor.types import Cost, check_numbers, score


def vimco(
    log_f: Cost, dist: Distribution, k: int, *, generator: torch.Generator | None = None
) -> Tensor:
    r"""VIMCO: the gradient of a multi-sample bound, the logarithm of a mean over k samples.

    $$L = \log \frac1k \sum_s f_s, \qquad g = \sum_s (L - L_{-s}) \nabla \log p(x_s) + \nabla_f L$$

    In $L_{-s}$ the geometric mean of the other samples replaces $f_s$, and $\nabla_f L$ is the pathwise term
    if f itself carries gradient. VIMCO does not estimate $E[f]$. It is unbiased for its own objective,
    $E[\log \frac1k \sum_s f(x_s)]$. Use it with $f = p(x, h) / q(h)$, for which this objective is a bound on
    the log-likelihood; maximise it, that is, minimise its negative. There is no baseline for k = 1, and for a
    sample without which all terms are 0.

    Args:
        log_f: the *logarithm* of f, from values (*batch, k, *event) to (*batch, k).
        dist: Categorical, OneHotCategorical, Bernoulli, or Independent of these.
        k: the number of samples.
        generator: the source of randomness.

    Returns:
        (*batch,)

    >>> dist = torch.distributions.Categorical(logits=torch.zeros(5, 3))
    >>> vimco(lambda x: torch.full(x.shape, 2.0), dist, 4)
    tensor([2., 2., 2., 2., 2.])

    References:
        | Variational Inference for Monte Carlo Objectives (Mnih and Rezende, 2016)
        | https://arxiv.org/abs/1602.06725
    """
    drawn = sample(dist, k, replacement=True, generator=generator)
    terms = log_f(drawn.value)
    check_numbers("log_f", terms, drawn.log_p, "the log-probabilities")
    check_finite("log_f", terms, minus_infinity=True)
    bound = terms.logsumexp(-1) - math.log(k)
    _check_bound(bound)
    without = _without_own(terms.detach())
    baseline = without.masked_fill(without == -torch.inf, 0.0)
    advantage = bound.detach().unsqueeze(-1) - baseline
    return bound + (score(drawn.log_p) * advantage).sum(-1)


def _check_bound(bound: Tensor) -> None:
    if may_validate(bound) and bool((bound == -torch.inf).any()):
        raise ValueError(
            "all terms log_f of an element of the batch are −inf, so its bound is −inf and has no gradient; "
            "expected a finite one among them. Draw more samples, or give impossible outcomes a finite, "
            "low value."
        )


def _without_own(log_f: Tensor) -> Tensor:
    """Return the bounds in which the mean of the other terms replaces each term, (*batch, k)."""
    k = log_f.shape[-1]
    if k == 1:
        return torch.zeros_like(log_f)
    own = torch.eye(k, dtype=torch.bool, device=log_f.device)
    rows = log_f.unsqueeze(-2).expand(*log_f.shape, k)
    others = rows.masked_fill(own, 0.0).sum(-1, keepdim=True) / (k - 1)
    return torch.where(own, others, rows).logsumexp(-1) - math.log(k)
