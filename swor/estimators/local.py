r"""Local estimators, which change one variable of a product at a time.

For a product, $\nabla_i E[f] = E_{x_{\setminus i}}\bigl[\nabla_i E_{x_i}[f(x_i, x_{\setminus i})]\bigr]$.
A local estimator draws x once and estimates the inner gradient of every variable by changing that
variable alone. The value is the mean of the n inner estimates.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from swor._checks import check_k
from swor.estimators._variables import evaluate, variables_of
from swor.rules.unordered_set import unordered_set
from swor.samplers.categorical import gumbel_top_k
from swor.types import Cost, Weights


def local_expectation(
    f: Cost, dist: Distribution, k: int, *, generator: torch.Generator | None = None
) -> Tensor:
    r"""Local expectation gradients: an exact sum over the categories of each variable, given the others.

    $$\nabla_i = \frac1k \sum_s \sum_{v} \nabla p_i(v) \, f(v, x_{s, \setminus i})$$

    The estimator is unbiased, and exact for a single variable. It uses k (n (c − 1) + 1) evaluations for n
    variables of c categories, because all variables share the cost of x itself. A category of probability 0
    is evaluated too, but its cost may be infinite or NaN. Use it for products of variables if f is cheap to
    evaluate.

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

    References:
        | Local Expectation Gradients for Black Box Variational Inference
        | (Titsias and Lázaro-Gredilla, 2015)
        | https://proceedings.neurips.cc/paper/2015/hash/1373b284bc381890049e92d324f56de0-Abstract.html

        | Differentiable Sampling of Categorical Distributions Using the CatLog-Derivative Trick
        | (De Smet et al., 2023), where it is called IndeCateR
        | https://arxiv.org/abs/2311.12569
    """
    variables = variables_of(dist, k)
    x = variables.independent(k, generator)
    categories = torch.arange(variables.categories, device=x.device)
    # (*batch, k, n, c), with x itself first.
    index = (x.unsqueeze(-1) + categories) % variables.categories
    log_p = variables.log_probs.unsqueeze(-3).expand_as(index).gather(-1, index)
    masked = nn.functional.pad((log_p[..., 1:] == -torch.inf).flatten(-2), (1, 0))
    cost = evaluate(variables, f, _neighbours(index).flatten(-3, -2), impossible=masked.flatten(-2))
    cost = _per_variable(cost.unflatten(-1, (k, -1)), *index.shape[-2:])
    estimate = _combine(_enumerated(log_p), cost)
    return estimate.mean(-1).to(variables.value_dtype or estimate.dtype)


def local_unordered_set(
    f: Cost, dist: Distribution, k: int, *, generator: torch.Generator | None = None
) -> Tensor:
    r"""The unordered set estimator of each variable, given the others.

    $$\nabla_i = \sum_{v \in S_i} w_v \nabla \log p_i(v) \, (f(v, x_{\setminus i}) - b_v), \qquad |S_i| = k$$

    $S_i$ are k categories of variable i, drawn without replacement, and $x_i$ is the first of them. The
    weights and the baseline are those of :func:`swor.unordered_set`. The estimator is unbiased: for k = 1
    it is REINFORCE, and for k = c it is :func:`local_expectation`. It uses n (k − 1) + 1 evaluations for n
    variables. Use it in place of :func:`local_expectation` where a variable has many categories.

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

    References:
        | Estimating Gradients for Discrete Random Variables by Sampling without Replacement
        | (Kool et al., 2020), equation (17)
        | https://arxiv.org/abs/2002.06043

        | Local Expectation Gradients for Black Box Variational Inference
        | (Titsias and Lázaro-Gredilla, 2015)
        | https://proceedings.neurips.cc/paper/2015/hash/1373b284bc381890049e92d324f56de0-Abstract.html
    """
    variables = variables_of(dist, k)
    check_k(k, variables.categories)
    drawn = gumbel_top_k(variables.log_probs, k, generator=generator)  # (*batch, n, k)
    cost = evaluate(variables, f, _neighbours(drawn.value))
    cost = _per_variable(cost, variables.length, k).to(drawn.log_p.dtype)
    estimate = _combine(unordered_set(drawn), cost)
    return estimate.to(variables.value_dtype or estimate.dtype)


def _neighbours(index: Tensor) -> Tensor:
    """Return x and all outcomes that differ from it in one variable.

    Args:
        index: the categories that each variable takes, (*batch, n, k); x consists of the first ones.

    Returns:
        (*batch, 1 + n (k − 1), n), with x first.
    """
    n = index.shape[-2]
    x = index[..., 0]
    changed = torch.eye(n, dtype=torch.bool, device=index.device).unsqueeze(-2)
    others = torch.where(changed, index[..., 1:, None], x[..., None, None, :])
    return torch.cat([x.unsqueeze(-2), others.flatten(-3, -2)], dim=-2)


def _per_variable(cost: Tensor, n: int, k: int) -> Tensor:
    """Arrange the costs of x and its neighbours by variable, (*batch, n, k)."""
    shared = cost[..., :1].unsqueeze(-2).expand(*cost.shape[:-1], n, 1)
    return torch.cat([shared, cost[..., 1:].reshape(*cost.shape[:-1], n, k - 1)], dim=-1)


def _enumerated(log_p: Tensor) -> Weights:
    """Return the weights of all categories: their probabilities, with the mean cost as the baseline."""
    p = log_p.detach().exp()
    return Weights(p, p.unsqueeze(-2).expand(*p.shape, p.shape[-1]), log_p)


def _combine(weights: Weights, cost: Tensor) -> Tensor:
    """Return the mean of the values of all variables, with the sum of their gradients."""
    constant = cost.detach()
    scores = weights.loss(constant) - weights.mean(constant)  # 0, with gradient
    return weights.mean(cost).mean(-1) + scores.sum(-1)
