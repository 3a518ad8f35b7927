r"""Control variates with a known mean, under any rule and any scheme.

Every rule is linear in the cost. So for a function $g$ whose mean $\bar g(\theta) = E[g]$ is known,

$$L(f - g) + \bar g$$

estimates what $L(f)$ estimates, without additional bias, and with less variance if g resembles f. Here g is
held: $\nabla \bar g = \nabla \sum_x p_\theta(x) g(x)$ differentiates the probabilities alone. Whatever g
learns must come from earlier steps, never from the sample that it is applied to.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributions import Distribution

from swor._checks import check_finite, check_same, check_shape, kind
from swor.samplers.distributions import factorized
from swor.samplers.products import Factorized
from swor.types import Weights, check_numbers, without_impossible


class KnownMean(NamedTuple):
    r"""A control variate at every sample, and its mean.

    Attributes:
        value: $g$ of every sample, (*batch, k). If it carries the gradient of parameters that g learns,
            :func:`swor.controlled` trains them.
        mean: $\bar g = E[g]$, (*batch,), with the gradient $\sum_x g(x) \nabla p(x)$ of the model alone.
    """

    value: Tensor
    mean: Tensor


def controlled(weights: Weights, cost: Tensor, control: KnownMean) -> Tensor:
    r"""The surrogate loss of a rule with a control variate under it.

    $$L(f - g) + \bar g$$

    L is the loss of the weights, with their built-in baseline. The result is as unbiased as the rule, for any
    g that does not depend on the sample. Use it if something cheap predicts the cost, in particular where
    samples never coincide, so that distinct samples have no advantage.

    One ``backward`` also trains g: the gradient that reaches the parameters of g is that of
    $\sum_s w_s (r_s - b_s)^2$, where $r = f - g$ and $b$ is the built-in baseline of r. No other gradient
    reaches them, and this one reaches nothing else. Its step changes g for the next samples, and not for the
    present ones.

    Args:
        weights: the result of any rule, for a sample by any scheme.
        cost: the cost $f$ of every sample, (*batch, k).
        control: the control variate and its mean, for instance :func:`swor.additive`.

    Returns:
        (*batch,)

    >>> import swor
    >>> logits = torch.zeros(5, 3, requires_grad=True)
    >>> table = torch.zeros(5, 1, 3, requires_grad=True)  # in practice, a network's
    >>> dist = torch.distributions.Categorical(logits=logits)
    >>> s = swor.sample(dist, 2)
    >>> g = swor.additive(dist, s.value, table)
    >>> swor.controlled(swor.unordered_set(s), s.value.sqrt(), g).mean().backward()
    """
    if not isinstance(control, KnownMean):
        raise TypeError(
            f"control is {kind(control)}; expected a KnownMean: g of every sample, and its mean. Make it "
            "with swor.additive(dist, value, table), or swor.KnownMean(value, mean) if you know the mean."
        )
    check_numbers("cost", cost, weights.weight, "the weights")
    check_numbers("control.value", control.value, weights.log_p, "the weights")
    check_shape(
        "the mean of the control variate",
        control.mean,
        tuple(weights.log_p.shape[:-1]),
        "one number for every element of the batch. Sum over the axis of the samples only in the value",
    )
    check_finite("control.value", control.value)
    loss = weights.loss(cost - control.value.detach()) + control.mean
    if control.value.requires_grad and torch.is_grad_enabled():
        loss = loss + _lesson(weights, cost.detach(), control.value)
    return loss.to(torch.promote_types(cost.dtype, weights.log_p.dtype))


def _lesson(weights: Weights, cost: Tensor, g: Tensor) -> Tensor:
    """Return 0, (*batch,), with the gradient of the squared leave-one-out residuals of f − g."""
    residual = without_impossible(cost, weights.log_p) - g
    residual = residual - weights.baseline(residual)
    known = residual.detach()
    return 2.0 * (weights.weight * known * (residual - known)).sum(-1)


def additive(dist: Distribution | Factorized, value: Tensor, table: Tensor) -> KnownMean:
    r"""A control variate that is a sum over the variables of a product.

    $$g(x) = \sum_i c_i(x_i) - \sum_i \sum_j \pi_{ij} c_{ij}, \qquad
    \nabla \bar g = \sum_i \sum_j c_{ij} \nabla \pi_{ij}$$

    The table c has a number for every category of every variable. It is centred, so that the mean of g is 0,
    and its gradient is known exactly. A single variable is a product of one. Use it with a network from a
    context, such as the image, the prompt or the state, to the table; :class:`swor.AdditiveTable` is one.

    Args:
        dist: Categorical, OneHotCategorical, Bernoulli, Independent of these, or :class:`swor.Factorized`.
        value: the samples, (*batch, k, *event), in the encoding of ``dist``.
        table: c, (*batch, n, c); n = 1 if ``dist`` is a single variable. Detach what the network reads from
            the model.

    Returns:
        g of every sample, which carries the gradient of the table, and its mean, which carries that of the
        model.

    >>> dist = torch.distributions.Bernoulli(probs=torch.tensor(0.25))
    >>> g = additive(dist, torch.tensor([0.0, 1.0]), torch.tensor([[0.0, 4.0]]))
    >>> g.value, g.mean
    (tensor([-1.,  3.]), tensor(0.))
    """
    variables = _product(dist).in_working_precision()
    log_probs = variables.log_probs
    check_shape(
        "table",
        table,
        tuple(log_probs.shape),
        "a number for every category of every variable. Give the network a context with the batch of "
        "the distribution, and reshape its output",
    )
    check_same("table", table, "the log-probabilities", log_probs)
    check_finite("table", table)
    p, table = log_probs.exp(), table.to(log_probs.dtype)
    centred = table - (p.detach() * table).sum(-1, keepdim=True)
    g = centred.gather(-1, variables.decode(value).mT).sum(-2)
    return KnownMean(g, (p * centred.detach()).sum((-1, -2)))


def _product(dist: Distribution | Factorized) -> Factorized:
    if isinstance(dist, Factorized):
        return dist
    try:
        return factorized(dist)
    except TypeError as error:
        raise TypeError(
            f"additive was given {dist!r}; expected a product of independent variables: Categorical, "
            "OneHotCategorical, Bernoulli, Independent of these, or Factorized. For another model, pass "
            "swor.controlled a KnownMean of your own: a function whose mean you know, and this mean."
        ) from error
