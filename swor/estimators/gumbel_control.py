r"""The gradient of REINFORCE with a control variate that sees the Gumbel noise.

With $z = \log p + \text{Gumbel}$, $b = \arg\max z$, $\tilde z \sim p(z \mid b)$ and any differentiable $c$,

$$g = (f(b) - c(\tilde z)) \, \nabla \log p(b) + \nabla c(z) - \nabla c(\tilde z)$$

is unbiased. Given b, the race is a first time $E_b \sim \text{Exp}(1)$ and later times
$E_b + E_i / p_i$, so $\tilde z_i = -\log(E_b + E_i / p_i)$ for $i \ne b$ and $\tilde z_b = -\log E_b$: its
argmax is b, and $\partial \tilde z_i / \partial \log p_i = 1 - e^{\tilde z_i - \tilde z_b}$. The noise of
$\tilde z$ need not be independent of z: taking the noise behind z itself makes $\tilde z = z$ in
value, though not in gradient, so $\nabla c(z) - \nabla c(\tilde z) = c'(z) \, e^{z - z_b}$ and one evaluation
of c is enough.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from swor.checks import check_shape
from swor.estimators.relaxations import perturbed
from swor.math.logspace import without_autocast
from swor.samplers.factorized import Factorized
from swor.samplers.race import gumbel_like

Control = Callable[[Tensor], Tensor]


class Draw(NamedTuple):
    """The noise of k samples, and the outcomes that it decides."""

    z: Tensor  # (*batch, k, n, c)
    winners: Tensor  # b, (*batch, k, n)
    conditional: Tensor | None  # z̃, (*batch, k, n, c); None where it is z


def draw_noise(
    variables: Factorized, k: int, common_noise: bool, generator: torch.Generator | None
) -> Draw:
    """K independent draws of z, of its argmax, and of the z that goes with that argmax."""
    log_probs = variables.log_probs.detach()
    z = perturbed(log_probs, k, generator)
    index = z.argmax(-1)
    if common_noise:
        return Draw(z, index, None)
    return Draw(z, index, conditional_gumbel(log_probs.unsqueeze(-3), index, generator))


def conditional_gumbel(
    log_probs: Tensor, index: Tensor, generator: torch.Generator | None
) -> Tensor:
    r"""$z \mid \arg\max z = b$: $z_b = G_b$ and $z_i = -\log(e^{-G_b} + e^{-G_i} / p_i)$.

    Args:
        log_probs: normalised log-probabilities, broadcasts to (*index.shape, c).
        index: b, the argmax.
        generator: the source of randomness.

    Returns:
        (*index.shape, c); nowhere above its entry at b.
    """
    log_probs = log_probs.expand(*index.shape, log_probs.shape[-1])
    g = gumbel_like(log_probs, generator)
    top = g.gather(-1, index.unsqueeze(-1))
    later = top - nn.functional.softplus(top - g - log_probs, threshold=50.0)
    return later.scatter(-1, index.unsqueeze(-1), top)


def estimate_gradient(variables: Factorized, draw: Draw, cost: Tensor, control: Control) -> Tensor:
    """The estimate of the gradient by the log-probabilities, (*batch, k, n, c).

    It depends on the parameters of the control variate, and is to be detached for all else.
    """
    c, slope = _with_slope(control, draw.z, tuple(cost.shape))
    if draw.conditional is None:
        pathwise = slope * _behind(draw.z)
    else:
        c, later = _with_slope(control, draw.conditional, tuple(cost.shape))
        pathwise = slope - later * (1.0 - _behind(draw.conditional))
    advantage = (cost - c)[..., None, None]
    return advantage * variables.one_hot(draw.winners) + pathwise


def _with_slope(control: Control, z: Tensor, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """The control variate and its derivative by z."""
    z = z.detach().requires_grad_()
    with without_autocast(z):  # value and slope must belong to the same function
        c = control(z)
    check_shape("the control variate", c, shape, "one number for every sample")
    slope = None
    if c.requires_grad:
        (slope,) = torch.autograd.grad(c.sum(), z, create_graph=True, allow_unused=True)
    if slope is None:
        raise ValueError(
            "the control variate has no gradient by z; expected one that is differentiable, for "
            "rebar an f that is. Use relax with a ControlVariate, which takes any f."
        )
    return c, slope


def _behind(z: Tensor) -> Tensor:
    return torch.exp(z - z.amax(-1, keepdim=True))


def squared_gradient(variables: Factorized, gradient: Tensor) -> Tensor:
    """The squared gradient by the logits, (*batch,): how a normalised table moves with them."""
    p = variables.log_probs.detach().exp().unsqueeze(-3)
    by_logits = gradient - p * gradient.sum(-1, keepdim=True)
    return by_logits.square().sum((-1, -2)).mean(-1)
