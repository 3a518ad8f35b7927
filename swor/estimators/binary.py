r"""ARM and DisARM: two antithetic outcomes from one uniform variable, for binary variables.

With $u \sim U(0, 1)^n$ and logits φ, both $b = 1[u < \sigma(\varphi)]$ and
$\tilde b = 1[1 - u < \sigma(\varphi)]$ have the distribution p.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributions import Distribution

from swor.estimators.variables import binary, evaluate, surrogate
from swor.samplers.factorized import Factorized
from swor.samplers.race import TINY
from swor.types import Cost


def arm(f: Cost, dist: Distribution, k: int, *, generator: torch.Generator | None = None) -> Tensor:
    r"""ARM (augment-REINFORCE-merge): an antithetic estimator for binary variables.

    $$g_i = (f(\tilde b) - f(b)) \Bigl(u_i - \frac12\Bigr), \qquad
    b = 1[u < \sigma(\varphi)], \quad \tilde b = 1[1 - u < \sigma(\varphi)]$$

    This is the gradient with respect to the logit $\varphi_i$; the noise u is uniform. The value is the mean
    of f over all outcomes. The estimator is unbiased and uses 2k evaluations. Prefer :func:`disarm`, whose
    variance is never larger.

    Args:
        f: the cost, from values (*batch, 2k, *event) to (*batch, 2k).
        dist: Bernoulli or another distribution of two categories, or Independent of these.
        k: the number of pairs.
        generator: the source of randomness.

    Returns:
        (*batch,)

    >>> dist = torch.distributions.Bernoulli(logits=torch.zeros(5))
    >>> arm(lambda x: x, dist, 1)  # antithetic: exactly one of the two outcomes is 1
    tensor([0.5000, 0.5000, 0.5000, 0.5000, 0.5000])

    References:
        | ARM: Augment-REINFORCE-Merge Gradient for Stochastic Binary Networks
        | (Yin and Zhou, 2019a)
        | https://arxiv.org/abs/1807.11143
    """
    variables = binary("arm", dist, k)
    pair = _antithetic(f, variables, k, generator)
    by_logit = -pair.difference.unsqueeze(-1) * (pair.u - 0.5)
    return _surrogate(variables, pair, by_logit)


def disarm(
    f: Cost, dist: Distribution, k: int, *, generator: torch.Generator | None = None
) -> Tensor:
    r"""DisARM, also called U2G: ARM averaged over the noise given the outcomes, for binary variables.

    $$g_i = \frac12 (f(b) - f(\tilde b)) (b_i - \tilde b_i) \, \sigma(|\varphi_i|), \qquad
    b = 1[u < \sigma(\varphi)], \quad \tilde b = 1[1 - u < \sigma(\varphi)]$$

    This is the gradient with respect to the logit $\varphi_i$; the noise u is uniform. The estimator is
    unbiased and uses 2k evaluations. Use it for many binary variables.

    Args:
        f: the cost, from values (*batch, 2k, *event) to (*batch, 2k).
        dist: Bernoulli or another distribution of two categories, or Independent of these.
        k: the number of pairs.
        generator: the source of randomness.

    Returns:
        (*batch,)

    >>> logits = torch.zeros((), requires_grad=True)
    >>> disarm(lambda x: x, torch.distributions.Bernoulli(logits=logits), 1).backward()
    >>> logits.grad
    tensor(0.2500)

    References:
        | DisARM: An Antithetic Gradient Estimator for Binary Latent Variables (Dong et al., 2020)
        | https://arxiv.org/abs/2006.10680

        | Probabilistic Best Subset Selection via Gradient-Based Optimization (Yin et al., 2020)
        | https://arxiv.org/abs/2006.06448
    """
    variables = binary("disarm", dist, k)
    pair = _antithetic(f, variables, k, generator)
    chance = torch.sigmoid(_logits(variables).abs()).unsqueeze(-2)
    by_logit = 0.5 * pair.difference.unsqueeze(-1) * pair.disagreement * chance
    return _surrogate(variables, pair, by_logit)


class _Pair(NamedTuple):
    u: Tensor  # (*batch, k, n)
    disagreement: Tensor  # b − b̃, (*batch, k, n)
    difference: Tensor  # f(b) − f(b̃), (*batch, k)
    cost: Tensor  # (*batch, 2k)


def _logits(variables: Factorized) -> Tensor:
    return (variables.log_probs[..., 1] - variables.log_probs[..., 0]).detach()


def _antithetic(f: Cost, variables: Factorized, k: int, generator: torch.Generator | None) -> _Pair:
    logits = _logits(variables).unsqueeze(-2)
    shape = (*variables.batch, k, variables.length)
    u = torch.rand(shape, generator=generator, dtype=logits.dtype, device=logits.device)
    u = u.clamp(min=TINY[u.dtype])
    noise = torch.logit(u)
    b, opposite = noise < logits, -noise < logits
    cost = evaluate(variables, f, torch.cat([b, opposite], dim=-2).long())
    first, second = cost.detach().chunk(2, dim=-1)
    return _Pair(u, b.to(u.dtype) - opposite.to(u.dtype), first - second, cost)


def _surrogate(variables: Factorized, pair: _Pair, by_logit: Tensor) -> Tensor:
    return surrogate(variables, pair.cost, torch.stack([-by_logit, by_logit], dim=-1))
