r"""Double control variates.

$$\varphi(x, x') = \nabla \log p(x) \bigl[f(x) - f(x') - \alpha \langle \nabla f(x'), x - \mu \rangle
+ \beta \langle \nabla f(x'), x' - \mu \rangle\bigr] + \alpha \nabla \langle \nabla f(x'), \mu \rangle$$

Here x and x' are one-hot, $\nabla f$ is the gradient of f by its input, and $\mu = \pi$ is the mean of x. For
β = α, the bracket is f(x) minus its tangent at x', and 0 if f is linear. Two independent draws give an
unbiased gradient, for any α and β, so :func:`swor.pair_weights` makes the mean over pairs an estimator for
independent samples and one for distinct ones.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributions import Distribution

from swor.estimators._tangents import Prediction, tangent_loss
from swor.estimators._variables import relaxable
from swor.estimators.learned_scales import LearnedScales
from swor.rules.reinforce import rloo
from swor.rules.unordered_set import unordered_set
from swor.samplers.distributions import draw
from swor.types import Cost, Scheme


def double_control(
    f: Cost,
    dist: Distribution,
    k: int,
    *,
    scales: LearnedScales,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Double control variates: RLOO with a linear prediction of each cost from the other samples.

    $$\frac{1}{k (k - 1)} \sum_s \sum_{s' \ne s} \varphi(x_s, x_{s'})$$

    $$\varphi(x, x') = \nabla \log p(x) \bigl[f(x) - f(x') - \alpha \langle \nabla f(x'), x - \mu \rangle
    + \beta \langle \nabla f(x'), x' - \mu \rangle\bigr] + \alpha \nabla \langle \nabla f(x'), \mu \rangle$$

    Here x is one-hot or binary, $\nabla f$ is the gradient of f by its input, and μ is the mean of x. The
    estimator is unbiased for any α and β, and both come from earlier steps. It uses k evaluations and their
    backward pass. Use it if f is differentiable and smooth; it is :func:`swor.rloo` for α = β = 0, and has no
    baseline for k = 1. ``ESTIMATORS["double_control"].make(dist)`` keeps the scales for you.

    Args:
        f: the cost, from values (*batch, k, *event) to (*batch, k); it must be differentiable by the values.
        dist: OneHotCategorical, Bernoulli, or Independent of these.
        k: the number of samples.
        scales: learns α and β; pass the same object to every call.
        generator: the source of randomness.

    Returns:
        (*batch,)

    >>> dist = torch.distributions.OneHotCategorical(logits=torch.zeros(5, 3))
    >>> double_control(lambda x: x[..., 0] ** 2, dist, 2, scales=LearnedScales()).shape
    torch.Size([5])

    References:
        | Double Control Variates for Gradient Estimation in Discrete Latent Variable Models
        | (Titsias and Shi, 2022)
        | https://arxiv.org/abs/2111.05300
    """
    variables = relaxable("double_control", dist, k)
    drawn = draw(Scheme.WITH_REPLACEMENT, dist, k, generator)
    return tangent_loss(rloo, drawn, f, variables, scales, _linear)


def unordered_set_double_control(
    f: Cost,
    dist: Distribution,
    k: int,
    *,
    scales: LearnedScales,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Double control variates for distinct samples.

    $$\sum_s \sum_{s'} w_s M_{ss'} \, \varphi(s, s')$$

    $$\varphi(x, x') = \nabla \log p(x) \bigl[f(x) - f(x') - \alpha \langle \nabla f(x'), x - \mu \rangle
    + \beta \langle \nabla f(x'), x' - \mu \rangle\bigr] + \alpha \nabla \langle \nabla f(x'), \mu \rangle$$

    The weights of the pairs are those of :func:`swor.pair_weights`, so for the same α and β its variance is
    never larger than that of :func:`swor.double_control`. The estimator is unbiased for any α and β, and both
    come from earlier steps. It uses k evaluations and their backward pass; it is :func:`swor.unordered_set`
    for α = β = 0, and has no baseline for k = 1. ``ESTIMATORS["unordered_set_double_control"].make(dist)``
    keeps the scales for you.

    Args:
        f: the cost, from values (*batch, k, *event) to (*batch, k); it must be differentiable by the values.
        dist: OneHotCategorical, Bernoulli, or Independent of these.
        k: the number of distinct samples.
        scales: learns α and β; pass the same object to every call.
        generator: the source of randomness.

    Returns:
        (*batch,)

    >>> dist = torch.distributions.OneHotCategorical(logits=torch.zeros(5, 3))
    >>> unordered_set_double_control(
    ...     lambda x: x[..., 0] ** 2, dist, 2, scales=LearnedScales()
    ... ).shape
    torch.Size([5])

    References:
        | Double Control Variates for Gradient Estimation in Discrete Latent Variable Models
        | (Titsias and Shi, 2022)
        | https://arxiv.org/abs/2111.05300

        | Estimating Gradients for Discrete Random Variables by Sampling without Replacement
        | (Kool et al., 2020), equation (17)
        | https://arxiv.org/abs/2002.06043
    """
    variables = relaxable("unordered_set_double_control", dist, k)
    drawn = draw(Scheme.WITHOUT_REPLACEMENT, dist, k, generator)
    return tangent_loss(unordered_set, drawn, f, variables, scales, _linear)


def _linear(x: Tensor, p: Tensor, slope: Tensor, cost: Tensor) -> Prediction:
    """Return the tangent, and its distance from its mean at the sample itself."""
    return Prediction(slope.unsqueeze(0), (slope * (x - p)).sum((-1, -2)).unsqueeze(0))
