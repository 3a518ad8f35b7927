r"""Local estimators: one variable of a product at a time, with the others fixed.

For a product, $\nabla_i E[f] = E_{x_{\setminus i}}\bigl[\nabla_i E_{x_i}[f(x_i, x_{\setminus i})]\bigr]$:
draw x once, and estimate the inner gradient of every variable by changing that variable alone. The
value is the mean of the n inner estimates.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributions import Distribution

from swor.checks import check_k
from swor.estimators.unordered import unordered_set
from swor.estimators.variables import evaluate, variables_of
from swor.samplers.categorical import gumbel_top_k
from swor.types import Cost, Weights


def local_expectation(
    f: Cost, dist: Distribution, k: int, *, generator: torch.Generator | None = None
) -> Tensor:
    r"""$\nabla_i = \frac1k \sum_s \sum_{v} \nabla p_i(v) \, f(v, x_{s, \setminus i})$: every category.

    Local expectation gradients (Titsias and Lázaro-Gredilla 2015). Unbiased; exact for a single
    variable. Uses k (n (c − 1) + 1) evaluations, as all variables share the cost of x itself.

    Args:
        f: the cost, from values (*batch, k', *event) to (*batch, k').
        dist: Categorical, OneHotCategorical, Bernoulli, or Independent of these.
        k: the number of draws of x.
        generator: the source of randomness.

    Returns:
        (*batch,)

    >>> dist = torch.distributions.Categorical(probs=torch.tensor([0.5, 0.25, 0.25]))
    >>> local_expectation(lambda x: x.float(), dist, 1)
    tensor(0.7500)
    """
    variables = variables_of(dist, k)
    x = variables.independent(k, generator)
    categories = torch.arange(variables.categories, device=x.device)
    index = (
        x.unsqueeze(-1) + categories
    ) % variables.categories  # (*batch, k, n, c), x itself first
    cost = evaluate(variables, f, _neighbours(index).flatten(-3, -2))
    cost = _per_variable(cost.unflatten(-1, (k, -1)), *index.shape[-2:])
    log_probs = variables.log_probs.unsqueeze(-3).expand_as(index)
    estimate = _combine(_enumerated(log_probs.gather(-1, index)), cost)
    return estimate.mean(-1).to(variables.value_dtype or estimate.dtype)


def local_unordered_set(
    f: Cost, dist: Distribution, k: int, *, generator: torch.Generator | None = None
) -> Tensor:
    r"""$\nabla_i = \sum_{v \in S_i} w_v \nabla \log p_i(v) \, (f(v, x_{\setminus i}) - b_v)$, $|S_i| = k$.

    The unordered set estimator with its built-in baseline for every variable, with the others
    fixed: $S_i$ are k categories of variable i without replacement, and x the first of each. Unbiased.
    From REINFORCE at k = 1 to :func:`local_expectation` at k = c. Uses n (k − 1) + 1 evaluations.

    Args:
        f: the cost, from values (*batch, k', *event) to (*batch, k').
        dist: Categorical, OneHotCategorical, Bernoulli, or Independent of these.
        k: the number of distinct categories of each variable, at most c.
        generator: the source of randomness.

    Returns:
        (*batch,)

    >>> base = torch.distributions.Categorical(logits=torch.zeros(5, 20, 10))
    >>> dist = torch.distributions.Independent(base, 1)
    >>> local_unordered_set(lambda x: x.float().mean(-1), dist, 3).shape
    torch.Size([5])
    """
    variables = variables_of(dist, k)
    check_k(k, variables.categories)
    drawn = gumbel_top_k(variables.log_probs, k, generator=generator)  # (*batch, n, k)
    cost = evaluate(variables, f, _neighbours(drawn.value))
    cost = _per_variable(cost, variables.length, k).to(drawn.log_p.dtype)
    estimate = _combine(unordered_set(drawn), cost)
    return estimate.to(variables.value_dtype or estimate.dtype)


def _neighbours(index: Tensor) -> Tensor:
    """From the values that each variable takes, (*batch, n, k), to x and all that differ in one.

    Returns:
        (*batch, 1 + n (k − 1), n), x first: the first value of every variable.
    """
    n = index.shape[-2]
    x = index[..., 0]
    changed = torch.eye(n, dtype=torch.bool, device=index.device).unsqueeze(-2)
    others = torch.where(changed, index[..., 1:, None], x[..., None, None, :])
    return torch.cat([x.unsqueeze(-2), others.flatten(-3, -2)], dim=-2)


def _per_variable(cost: Tensor, n: int, k: int) -> Tensor:
    """From the costs of x and its neighbours to (*batch, n, k)."""
    shared = cost[..., :1].unsqueeze(-2).expand(*cost.shape[:-1], n, 1)
    return torch.cat([shared, cost[..., 1:].reshape(*cost.shape[:-1], n, k - 1)], dim=-1)


def _enumerated(log_p: Tensor) -> Weights:
    """All categories: each counts by its probability, and the baseline is the mean."""
    p = log_p.detach().exp()
    return Weights(p, p.unsqueeze(-2).expand(*p.shape, p.shape[-1]), log_p)


def _combine(weights: Weights, cost: Tensor) -> Tensor:
    """The mean of the values of all variables, with the sum of their gradients."""
    constant = cost.detach()
    scores = weights.loss(constant) - weights.mean(constant)  # 0, with gradient
    return weights.mean(cost).mean(-1) + scores.sum(-1)
