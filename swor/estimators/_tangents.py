r"""What the tangents at the other samples predict, as control variates under a rule.

$$\sum_s \sum_{s'} w_s M_{ss'} \Bigl\{ \nabla \log p(s) \Bigl[f(s) - f(s')
- \sum_a \alpha_a \bigl(g_a(s; s') - \bar g_a(s')\bigr) + \sum_b \beta_b h_b(s')\Bigr]
+ \sum_a \alpha_a \nabla \bar g_a(s') \Bigr\}$$

The weights w and M are those of a rule (:func:`swor.pair_weights`). A table $g_a(\cdot; s')$ has a number for
every category of every variable, so its mean $\bar g_a$ is known, and the numbers $h_b(s')$ are a baseline.
Both come from the gradient of f at s', and their scales α and β from earlier steps. The gradient is therefore
unbiased for any tables, numbers and scales.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from swor._checks import may_validate
from swor.estimators.learning import LearnedScales
from swor.math._logspace import without_autocast
from swor.samplers.products import Factorized
from swor.types import Cost, Rule, Sample, check_numbers, score


class Prediction(NamedTuple):
    """What the tangents at the samples predict: tables, and numbers that a baseline may use."""

    tables: Tensor  # (tables, *batch, k, n, c)
    numbers: Tensor  # (numbers, *batch, k)


Predict = Callable[[Tensor, Tensor, Tensor, Tensor], Prediction]
"""From one-hot values, probabilities that broadcast against them, slopes and costs to a prediction."""


def tangent_loss(
    rule: Rule,
    drawn: Sample,
    f: Cost,
    variables: Factorized,
    scales: LearnedScales,
    predict: Predict,
) -> Tensor:
    """Return the loss of a rule with what the tangents at the samples of a draw predict, (*batch,)."""
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


def _controls(w: Tensor, rows: Tensor, x: Tensor, p: Tensor, given: Prediction) -> _Controls:
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
