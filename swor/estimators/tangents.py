r"""Control variates from the tangents at the other samples: with one scale, or with two.

$$\varphi(x, x') = \nabla \log p(x) \bigl[f(x) - f(x') - g(x) + \bar g + \beta(x')\bigr] + \nabla \bar g$$

The tangent of f at x' predicts how the cost changes from x' to x. This prediction $g(x)$ is a sum over the
variables, so its mean $\bar g$ is known. Double control variates scale it as a whole; the others scale its
increases by another number, because a convex f changes by more where it increases. Two independent draws give
an unbiased gradient for any scales, so :func:`swor.pair_weights` makes the mean over pairs an estimator for
independent samples and one for distinct ones.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.distributions import Distribution

from swor.estimators._tangents import Prediction, tangent_loss
from swor.estimators._variables import relaxable
from swor.estimators.learning import LearnedScales, WithState
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


def rloo_tangents(
    f: Cost,
    dist: Distribution,
    k: int,
    *,
    scales: LearnedScales,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""RLOO with control variates from the tangents at the other samples, variable by variable.

    $$\frac{1}{k (k - 1)} \sum_s \sum_{s' \ne s} \varphi(x_s, x_{s'}), \qquad
    t_{ij}(x') = \partial_{ij} f(x') - \langle \nabla_i f(x'), x'_i \rangle$$

    The notation is that of :func:`swor.double_control`. The tangent at x' predicts that f changes by
    $t_{ij}$ if variable i becomes j. A convex f changes by more where it increases. So the prediction is

    $$g(x) = \sum_i \alpha t_{i x_i} + \alpha_+ \max(t_{i x_i}, 0),$$

    with two scales. It is a sum over the variables, so its mean is known, as that of :func:`swor.additive`:

    $$\varphi(x, x') = \nabla \log p(x) \bigl[f(x) - f(x') - g(x) + \bar g + \beta(x')\bigr] + \nabla \bar g$$

    The baseline $\beta(x')$ is the sum of $f(x')$ and of the means of both parts of g, with three more
    scales. The estimator is unbiased for any scales, and they come from earlier steps. It uses k evaluations
    and their backward pass. Use it like double control variates, which it has as a special case.
    ``ESTIMATORS["rloo_tangents"].make(dist)`` keeps the scales for you.

    Args:
        f: the cost, from values (*batch, k, *event) to (*batch, k); it must be differentiable by the values.
        dist: OneHotCategorical, Bernoulli, or Independent of these.
        k: the number of samples.
        scales: learns the five scales; pass the same ``LearnedScales(5)`` to every call.
        generator: the source of randomness.

    Returns:
        (*batch,)

    >>> dist = torch.distributions.OneHotCategorical(logits=torch.zeros(5, 3))
    >>> rloo_tangents(lambda x: x[..., 0] ** 2, dist, 2, scales=LearnedScales(5)).shape
    torch.Size([5])

    References:
        | Double Control Variates for Gradient Estimation in Discrete Latent Variable Models
        | (Titsias and Shi, 2022)
        | https://arxiv.org/abs/2111.05300

        | Gradient Estimation with Discrete Stein Operators (Shi et al., 2022)
        | https://arxiv.org/abs/2202.09497
    """
    variables = relaxable("rloo_tangents", dist, k)
    drawn = draw(Scheme.WITH_REPLACEMENT, dist, k, generator)
    return tangent_loss(rloo, drawn, f, variables, scales, _by_parts)


def unordered_set_tangents(
    f: Cost,
    dist: Distribution,
    k: int,
    *,
    scales: LearnedScales,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""The unordered set estimator with control variates from the tangents at the other samples.

    $$\sum_s \sum_{s'} w_s M_{ss'} \, \varphi(s, s'), \qquad
    \varphi(x, x') = \nabla \log p(x) \bigl[f(x) - f(x') - g(x) + \bar g + \beta(x')\bigr] + \nabla \bar g$$

    The function of two samples is that of :func:`swor.rloo_tangents`, and the weights of the pairs are those
    of :func:`swor.pair_weights`, so for the same scales its variance is never larger than that of
    :func:`swor.rloo_tangents`. The estimator is unbiased for any scales, and they come from earlier steps. It
    uses k evaluations and their backward pass. Use it if f is differentiable.
    ``ESTIMATORS["unordered_set_tangents"].make(dist)`` keeps the scales for you.

    Args:
        f: the cost, from values (*batch, k, *event) to (*batch, k); it must be differentiable by the values.
        dist: OneHotCategorical, Bernoulli, or Independent of these.
        k: the number of distinct samples.
        scales: learns the five scales; pass the same ``LearnedScales(5)`` to every call.
        generator: the source of randomness.

    Returns:
        (*batch,)

    >>> dist = torch.distributions.OneHotCategorical(logits=torch.zeros(5, 3))
    >>> scales = LearnedScales(5)
    >>> unordered_set_tangents(lambda x: x[..., 0] ** 2, dist, 2, scales=scales).shape
    torch.Size([5])

    References:
        | Double Control Variates for Gradient Estimation in Discrete Latent Variable Models
        | (Titsias and Shi, 2022)
        | https://arxiv.org/abs/2111.05300

        | Estimating Gradients for Discrete Random Variables by Sampling without Replacement
        | (Kool et al., 2020), equation (17)
        | https://arxiv.org/abs/2002.06043
    """
    variables = relaxable("unordered_set_tangents", dist, k)
    drawn = draw(Scheme.WITHOUT_REPLACEMENT, dist, k, generator)
    return tangent_loss(unordered_set, drawn, f, variables, scales, _by_parts)


def _by_parts(x: Tensor, p: Tensor, slope: Tensor, cost: Tensor) -> Prediction:
    """Return the predicted changes and their positive parts, and their means beside the cost."""
    change = slope - (slope * x).sum(-1, keepdim=True)
    tables = torch.stack([change, change.clamp(min=0.0)])
    return Prediction(tables, torch.cat([(p * tables).sum((-1, -2)), cost.unsqueeze(0)]))


def make_tangents(
    function: Callable[..., Tensor],
    count: int,
    dist: Distribution,
    generator: torch.Generator | None,
) -> WithState:
    """Return an estimator with so many scales that have learned nothing yet."""
    return WithState(function, "scales", LearnedScales(count))
