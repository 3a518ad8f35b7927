r"""The gradient of REINFORCE with a control variate that depends on the Gumbel noise.

With $z = \log p + \text{Gumbel}$, $b = \arg\max z$, $\tilde z \sim p(z \mid b)$ and any differentiable $c$,

$$g = (f(b) - c(\tilde z)) \, \nabla \log p(b) + \nabla c(z) - \nabla c(\tilde z)$$

is unbiased. In terms of exponential clocks, the clock of b rings first, at a time
$E_b \sim \text{Exp}(1)$, and the others ring at $E_b + E_i / p_i$. So $\tilde z_b = -\log E_b$ and
$\tilde z_i = -\log(E_b + E_i / p_i)$ for $i \ne b$. The argmax of $\tilde z$ is b, and
$\partial \tilde z_i / \partial \log p_i = 1 - e^{\tilde z_i - \tilde z_b}$.

The noise of $\tilde z$ need not be independent of z. If the noise of z itself is used, $\tilde z$ equals z
in value but not in gradient. Then $\nabla c(z) - \nabla c(\tilde z) = c'(z) \, e^{z - z_b}$, and one
evaluation of c is enough.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from swor._checks import check_shape
from swor.estimators._variables import perturbed
from swor.math._logspace import without_autocast
from swor.samplers._race import gumbel_like
from swor.samplers.products import Factorized

Control = Callable[[Tensor], Tensor]


class GumbelNoise(NamedTuple):
    """The noise of k samples, and the outcomes that it determines."""

    z: Tensor  # (*batch, k, n, c)
    winners: Tensor  # b, (*batch, k, n)
    conditional: Tensor | None  # z̃, (*batch, k, n, c); None if it has the noise of z


def draw_noise(
    variables: Factorized, k: int, common_noise: bool, generator: torch.Generator | None
) -> GumbelNoise:
    """Draw k independent pairs of z and its argmax, and for each a z given this argmax."""
    log_probs = variables.log_probs.detach()
    z = perturbed(log_probs, k, generator)
    index = z.argmax(-1)
    if common_noise:
        return GumbelNoise(z, index, None)
    return GumbelNoise(z, index, conditional_gumbel(log_probs.unsqueeze(-3), index, generator))


def conditional_gumbel(
    log_probs: Tensor, index: Tensor, generator: torch.Generator | None
) -> Tensor:
    r"""Draw $z \mid \arg\max z = b$: $z_b = G_b$ and $z_i = -\log(e^{-G_b} + e^{-G_i} / p_i)$.

    Args:
        log_probs: normalised log-probabilities that broadcast to (*index.shape, c).
        index: the argmax b.
        generator: the source of randomness.

    Returns:
        (*index.shape, c), with its maximum at b.
    """
    log_probs = log_probs.expand(*index.shape, log_probs.shape[-1])
    g = gumbel_like(log_probs, generator)
    top = g.gather(-1, index.unsqueeze(-1))
    later = top - nn.functional.softplus(top - g - log_probs, threshold=50.0)
    return later.scatter(-1, index.unsqueeze(-1), top)


def estimate_gradient(
    variables: Factorized, noise: GumbelNoise, cost: Tensor, control: Control
) -> Tensor:
    """Return the estimate of the gradient with respect to the log-probabilities, (*batch, k, n, c).

    It carries gradient with respect to the parameters of the control variate. Detach it for any other use.
    """
    c, slope = _with_slope(control, noise.z, tuple(cost.shape))
    if noise.conditional is None:
        pathwise = slope * _behind(noise.z)
    else:
        c, later = _with_slope(control, noise.conditional, tuple(cost.shape))
        pathwise = slope - later * (1.0 - _behind(noise.conditional))
    advantage = (cost - c)[..., None, None]
    return advantage * variables.one_hot(noise.winners) + pathwise


def _with_slope(control: Control, z: Tensor, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Return the control variate and its derivative with respect to z."""
    z = z.detach().requires_grad_()
    with without_autocast(z):  # value and slope must belong to the same function
        c = control(z)
    check_shape("the control variate", c, shape, "one number for every sample")
    slope = None
    if c.requires_grad:
        (slope,) = torch.autograd.grad(c.sum(), z, create_graph=True, allow_unused=True)
    if slope is None:
        raise ValueError(
            "the control variate has no gradient with respect to z; expected a differentiable one, "
            "which for rebar means a differentiable f. Use relax with a ControlVariate, which "
            "accepts any f."
        )
    return c, slope


def _behind(z: Tensor) -> Tensor:
    return torch.exp(z - z.amax(-1, keepdim=True))


def squared_gradient(variables: Factorized, gradient: Tensor) -> Tensor:
    """Return the squared norm of the gradient with respect to the logits, (*batch,).

    The chain rule gives it from the gradient with respect to the normalised log-probabilities.
    """
    p = variables.log_probs.detach().exp().unsqueeze(-3)
    by_logits = gradient - p * gradient.sum(-1, keepdim=True)
    return by_logits.square().sum((-1, -2)).mean(-1)
