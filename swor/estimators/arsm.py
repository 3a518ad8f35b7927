"""ARSM (augment-REINFORCE-swap-merge), for categorical variables with any number of categories."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributions import Distribution

from swor.estimators.variables import evaluate, surrogate, variables_of
from swor.math.logspace import without_autocast
from swor.samplers.race import gumbel_like
from swor.types import Cost


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
    return surrogate(variables, cost, gradient)


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
