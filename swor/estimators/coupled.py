r"""ARM, DisARM and ARSM: several outcomes whose noise is coupled.

For binary variables with $u \sim U(0, 1)^n$ and logits φ, both $b = 1[u < \sigma(\varphi)]$ and
$\tilde b = 1[1 - u < \sigma(\varphi)]$ have the distribution p; ARM and DisARM compare their costs. ARSM
(augment-REINFORCE-swap-merge) compares the outcomes of all swaps of two entries of Dirichlet noise, for
variables with any number of categories.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributions import Distribution

from swor.estimators._variables import binary, evaluate, loss_with_gradient, variables_of
from swor.math._logspace import without_autocast
from swor.samplers._race import TINY, gumbel_like
from swor.samplers.products import Factorized
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
    return _binary_loss(variables, pair, by_logit)


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
    return _binary_loss(variables, pair, by_logit)


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


def _binary_loss(variables: Factorized, pair: _Pair, by_logit: Tensor) -> Tensor:
    return loss_with_gradient(variables, pair.cost, torch.stack([-by_logit, by_logit], dim=-1))


def arsm(
    f: Cost, dist: Distribution, k: int, *, generator: torch.Generator | None = None
) -> Tensor:
    r"""ARSM: an estimator from pairwise swaps of Dirichlet noise, for categorical variables.

    $$g_m = \sum_j \Bigl(f(x^{m j}) - \frac1c \sum_{m'} f(x^{m' j})\Bigr) \Bigl(\frac1c - \pi_j\Bigr),
    \qquad x^{m j} = \arg\min_i \pi^{m j}_i e^{-\varphi_i}$$

    This is the gradient with respect to the logit $\varphi_m$. The noise is
    $\pi \sim \text{Dirichlet}(1, \dots, 1)$, and $\pi^{m j}$ is π with the entries m and j swapped. In a
    product of variables, each variable has its own π, and the same entries are swapped in all of them.
    Every $x^{m j}$ has the distribution p, so the mean of f over all of them estimates E[f].

    The estimator is unbiased and uses k (c (c − 1) / 2 + 1) evaluations, independently of the number of
    variables. Use it for products of variables with few categories, if f is cheap to evaluate.

    Args:
        f: the cost, from values (*batch, k', *event) to (*batch, k').
        dist: Categorical, OneHotCategorical, Bernoulli, or Independent of these.
        k: the number of draws of π.
        generator: the source of randomness.

    Returns:
        (*batch,)

    >>> dist = torch.distributions.Categorical(logits=torch.zeros(5, 3))
    >>> arsm(lambda x: x.float(), dist, 2).shape
    torch.Size([5])

    References:
        | ARSM: Augment-REINFORCE-Swap-Merge Estimator for Gradient Backpropagation Through
        | Categorical Variables (Yin et al., 2019b)
        | https://arxiv.org/abs/1905.01413
    """
    variables = variables_of(dist, k)
    c = variables.categories
    log_probs = variables.log_probs.detach().unsqueeze(-3)
    log_probs = log_probs.expand(*variables.batch, k, variables.length, c)
    log_pi = torch.log_softmax(-gumbel_like(log_probs, generator), -1)  # log of Dirichlet
    orders, which = swaps(c, log_pi.device)
    x = (log_probs.unsqueeze(-2) - log_pi[..., orders]).argmax(-1)  # (*batch, k, n, swaps)
    cost = evaluate(variables, f, x.mT.flatten(-3, -2))
    table = cost.detach().unflatten(-1, (k, len(orders)))[..., which]  # (*batch, k, m, j)
    centred = (table - table.mean(-2, keepdim=True)).to(log_pi.dtype)
    with without_autocast(log_pi):
        gradient = (1.0 / c - log_pi.exp()) @ centred.mT
    return loss_with_gradient(variables, cost, gradient)


def swaps(c: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the identity and all swaps of two of c entries, and which of them swaps m and j.

    Args:
        c: the number of entries.
        device: of the result.

    Returns:
        The permutations, (c (c − 1) / 2 + 1, c), and a table (c, c) with the row of the swap of m and j.
    """
    m, j = torch.triu_indices(c, c, offset=1, device=device)
    row = torch.arange(1, len(m) + 1, device=device)
    orders = torch.arange(c, device=device).repeat(len(m) + 1, 1)
    orders[row, m], orders[row, j] = j, m
    which = torch.zeros(c, c, dtype=torch.long, device=device)
    which[m, j] = which[j, m] = row
    return orders, which
