r"""Control variates from the tangents at the other samples: double control variates, and one of our own.

$$\varphi(x, x') = \nabla \log p(x) \bigl[f(x) - f(x') - \alpha \langle \nabla f(x'), x - \mu \rangle
+ \beta \langle \nabla f(x'), x' - \mu \rangle\bigr] + \alpha \nabla \langle \nabla f(x'), \mu \rangle$$

Here x and x' are one-hot, $\nabla f$ is the gradient of f by its input, and $\mu = \pi$ is the mean of x. For
β = α, the bracket is f(x) minus its tangent at x', and 0 if f is linear. Two independent draws give an
unbiased gradient, for any α and β, so :func:`swor.pair_weights` makes the mean over pairs an estimator for
independent samples and one for distinct ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from swor._checks import may_validate
from swor.estimators._variables import relaxable
from swor.math._logspace import without_autocast
from swor.rules.reinforce import rloo
from swor.rules.unordered_set import unordered_set
from swor.samplers.distributions import draw
from swor.samplers.products import Factorized
from swor.types import Cost, Sample, Scheme, Weights, check_numbers, score

LARGEST = 2.0  # of a scale; 1 is the whole of the linear prediction


class LearnedScales(nn.Module):
    r"""The scales of control variates, from the gradients of earlier steps.

    $$\alpha = -S^{-1} r$$

    The gradient of a step is $A + \sum_i \alpha_i B_i$. Its mean does not depend on α, so this α minimises
    its variance. $S_{ij}$ and $r_i$ are moving averages of the inner products $\langle B_i, B_j \rangle$ and
    $\langle B_i, A \rangle$ over the steps *before* the present one, so α is 0 at the first step. Every
    $\alpha_i$ stays between −2 and 2, because B is nothing but rounding where the gradient has no variance.
    The averages are buffers, so they are saved with the model.

    Args:
        count: the number of control variates.
        decay: of the moving averages, from 0 to below 1.

    >>> scales = LearnedScales(1)
    >>> a, b = torch.tensor([[3.0, 4.0]]), torch.tensor([[[-2.0, 0.0]]])
    >>> scales(a, b).abs(), scales(a, b)
    (tensor([0.]), tensor([1.5000]))
    """

    cross: Tensor
    square: Tensor

    def __init__(self, count: int = 2, decay: float = 0.99) -> None:
        super().__init__()
        if not 0.0 <= decay < 1.0:
            raise ValueError(f"decay is {decay}; expected 0 <= decay < 1. Use 0.99, for instance.")
        self.decay = decay
        self.register_buffer("cross", torch.zeros(count))
        self.register_buffer("square", torch.zeros(count, count))

    @torch.no_grad()
    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """Return α of the earlier steps, (count,), and add the gradients of this step.

        Args:
            a: the gradient without control variates, (*batch, …).
            b: what each of the scales is multiplied by, (count, *batch, …).
        """
        if len(b) != len(self.cross):
            raise ValueError(
                f"the scales are those of {len(self.cross)} control variates; expected {len(b)}. Pass "
                f"scales=LearnedScales({len(b)})."
            )
        norm = self.square.diagonal().sqrt()
        norm = torch.where(norm > 0.0, norm, 1.0)  # the control variates may have different units
        inverse = torch.linalg.pinv(self.square / torch.outer(norm, norm), hermitian=True)
        alpha: Tensor = -(inverse @ (self.cross / norm)) / norm
        flat = b.flatten(1)
        new = (flat @ a.flatten()).to(self.cross), (flat @ flat.mT).to(self.square)
        usable = new[1].isfinite().all() & new[0].isfinite().all()
        for average, number in zip((self.cross, self.square), new, strict=True):
            later = self.decay * average + (1.0 - self.decay) * number
            average.copy_(torch.where(usable, later, average))
        return alpha.clamp(-LARGEST, LARGEST).to(a)


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
    return _estimate(rloo, draw(Scheme.WITH_REPLACEMENT, dist, k, generator), f, variables, scales)


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
    return _estimate(unordered_set, drawn, f, variables, scales)


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
    return _estimate(rloo, drawn, f, variables, scales, _by_parts)


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
    return _estimate(unordered_set, drawn, f, variables, scales, _by_parts)


class _Prediction(NamedTuple):
    """What the tangents at the samples predict: tables, and numbers that a baseline may use."""

    tables: Tensor  # (tables, *batch, k, n, c)
    numbers: Tensor  # (numbers, *batch, k)


_Predict = Callable[[Tensor, Tensor, Tensor, Tensor], _Prediction]


def _linear(x: Tensor, p: Tensor, slope: Tensor, cost: Tensor) -> _Prediction:
    """Return the tangent, and its distance from its mean at the sample itself."""
    return _Prediction(slope.unsqueeze(0), (slope * (x - p)).sum((-1, -2)).unsqueeze(0))


def _by_parts(x: Tensor, p: Tensor, slope: Tensor, cost: Tensor) -> _Prediction:
    """Return the predicted changes and their positive parts, and their means beside the cost."""
    change = slope - (slope * x).sum(-1, keepdim=True)
    tables = torch.stack([change, change.clamp(min=0.0)])
    return _Prediction(tables, torch.cat([(p * tables).sum((-1, -2)), cost.unsqueeze(0)]))


def _estimate(
    rule: Callable[[Sample], Weights],
    drawn: Sample,
    f: Cost,
    variables: Factorized,
    scales: LearnedScales,
    predict: _Predict = _linear,
) -> Tensor:
    weights = rule(drawn)
    rows = weights.baseline_weights
    if rows is None or not torch.is_grad_enabled():
        return weights.loss(f(drawn.value))
    value = drawn.value.detach().requires_grad_()
    cost = f(value)
    check_numbers("cost", cost, weights.weight, "the weights")
    baseline = weights.baseline(cost.detach())
    x, p = variables.one_hot(variables.decode(value)), variables.log_probs.detach().exp()
    slope = slope_of(variables, cost, value)
    known = cost.detach().to(p.dtype)
    control = _controls(weights.weight, rows, x, p, predict(x, p.unsqueeze(-3), slope, known))
    advantage = weights.weight * (cost.detach() - baseline)
    learned = scales(_by_logits(x, p, advantage), control.gradients)
    alpha, beta = learned.split([len(control.of_cost), len(control.of_baseline)])
    loss: Tensor = weights.loss(
        cost - torch.tensordot(alpha, control.of_cost, 1),
        baseline=baseline - torch.tensordot(beta, control.of_baseline, 1),
    )
    change = score(variables.log_probs) * p  # 0, with the gradient of p
    loss = loss + (change * torch.tensordot(alpha, control.mean_table, 1)).sum((-1, -2))
    return loss.to(torch.promote_types(cost.dtype, drawn.log_p.dtype))


def slope_of(variables: Factorized, cost: Tensor, value: Tensor) -> Tensor:
    """Return the gradient of every cost by its one-hot input, (*batch, k, n, c)."""
    slope: Tensor | None = None
    if cost.requires_grad:
        (slope,) = torch.autograd.grad(cost.sum(), value, retain_graph=True, allow_unused=True)
    if slope is None:
        raise ValueError(
            "the cost has no gradient with respect to its input; expected a differentiable f, because the "
            "control variate is its linear approximation. Compute the cost from the values without "
            "detaching or rounding them, or use unordered_set_additive, which accepts any f."
        )
    if may_validate(slope) and not bool(slope.isfinite().all()):
        raise ValueError(
            "the gradient of the cost with respect to its input contains NaN or infinity; expected finite "
            "slopes, because the control variate is a linear approximation. Use an f that is smooth at 0 and "
            "1, or use unordered_set_additive, which accepts any f."
        )
    by_category: Tensor = slope.to(variables.log_probs.dtype)
    if variables.encoding == "binary":
        by_category = torch.stack([torch.zeros_like(by_category), by_category], dim=-1)
    return by_category.reshape(*cost.shape, variables.length, variables.categories)


class _Controls(NamedTuple):
    of_cost: Tensor  # Σ_s' M_ss' g(s; s') of every table, centred, (tables, *batch, k)
    of_baseline: Tensor  # Σ_s' M_ss' of every number of s', (numbers, *batch, k)
    mean_table: Tensor  # Σ_ss' w_s M_ss' c(s'), (tables, *batch, n, c)
    gradients: Tensor  # what the scales multiply by the logits, (tables + numbers, *batch, n, c)


def _controls(w: Tensor, rows: Tensor, x: Tensor, p: Tensor, given: _Prediction) -> _Controls:
    with without_autocast(x):
        change = (x - p.unsqueeze(-3)).flatten(-2) @ given.tables.flatten(-2).mT  # (…, k, k)
    of_cost = (rows * change).sum(-1)
    of_baseline = (rows * given.numbers.unsqueeze(-2)).sum(-1)
    by_other = (w.unsqueeze(-1) * rows).sum(-2)
    table = (by_other[..., None, None] * given.tables).sum(-3)
    of_mean = p * (table - (p * table).sum(-1, keepdim=True))
    by_alpha = of_mean - _by_logits(x, p, w * of_cost)
    gradients = torch.cat([by_alpha, _by_logits(x, p, w * of_baseline)])
    return _Controls(of_cost, of_baseline, table, gradients)


def _by_logits(x: Tensor, p: Tensor, coefficient: Tensor) -> Tensor:
    """Return the gradient by the logits of a weighted sum of log-probabilities, (*batch, n, c)."""
    return (coefficient[..., None, None] * (x - p.unsqueeze(-3))).sum(-3)


class Tangents(nn.Module):
    """Control variates from tangents with their scales, which the module stores.

    Args:
        function: :func:`swor.double_control`, :func:`swor.rloo_tangents` or one for distinct samples.
        count: the number of its scales.
    """

    def __init__(self, function: Callable[..., Tensor], count: int) -> None:
        super().__init__()
        self.function = function
        self.scales = LearnedScales(count)

    def forward(
        self, f: Cost, dist: Distribution, k: int, *, generator: torch.Generator | None = None
    ) -> Tensor:
        """Return an estimate of E[f] whose gradient is an estimate of ∇E[f], (*batch,)."""
        return self.function(f, dist, k, scales=self.scales, generator=generator)


def make_double_control(dist: Distribution, generator: torch.Generator | None) -> Tangents:
    """Return double control variates with scales that have learned nothing yet."""
    return Tangents(double_control, 2)


def make_unordered_set_double_control(
    dist: Distribution, generator: torch.Generator | None
) -> Tangents:
    """Return double control variates for distinct samples with scales that have learned nothing yet."""
    return Tangents(unordered_set_double_control, 2)


def make_rloo_tangents(dist: Distribution, generator: torch.Generator | None) -> Tangents:
    """Return control variates from tangents with scales that have learned nothing yet."""
    return Tangents(rloo_tangents, 5)


def make_unordered_set_tangents(dist: Distribution, generator: torch.Generator | None) -> Tangents:
    """Return control variates from tangents for distinct samples, with scales that have learned nothing."""
    return Tangents(unordered_set_tangents, 5)
