r"""Perturbed log-probabilities as an exponential race, for outcomes and for the children of a node.

Outcome $i$ arrives at time $T_i \sim \text{Exp}(p_i)$. Its perturbed log-probability is
$g_i = -\log T_i = \log p_i + \text{Gumbel}$, and the $k$ largest are an ordered sample without replacement
(the Gumbel-top-$k$ trick). The maximum over a group has the distribution of a single outcome with the
mass of the group. A tree can therefore be searched from its root: draw the $g$ of a node, and then
those of its children given that their maximum is $g$. Because the exponential distribution has no
memory, the times of the children are those of an unconditional race, all shifted by the same amount, so
that the first arrives at $e^{-g}$. See Kool et al. (2019c) and Maddison et al. (2014).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from swor.math.logspace import expm1

TINY = {torch.float32: 2.0**-25, torch.float64: 2.0**-54}  # the middle of the cell around 0


def uniform_like(x: Tensor, generator: torch.Generator | None) -> Tensor:
    """Draw uniform noise from [0, 1), of the shape of ``x``."""
    if generator is None:
        return torch.rand_like(x)  # unlike torch.rand with a generator, it takes symbolic shapes
    return torch.rand(x.shape, generator=generator, dtype=x.dtype, device=x.device)


def exponential_like(x: Tensor, generator: torch.Generator | None) -> Tensor:
    r"""Draw standard exponential noise $E \sim \text{Exp}(1)$ of the shape of ``x``; always positive."""
    return uniform_like(x, generator).clamp(min=TINY[x.dtype]).neg_().log1p_().neg_()


def gumbel_like(x: Tensor, generator: torch.Generator | None) -> Tensor:
    r"""Draw standard Gumbel noise $-\log E$, $E \sim \text{Exp}(1)$, of the shape of ``x``; always finite."""
    return exponential_like(x, generator).log_().neg_()


def perturb_children(
    log_probs: Tensor, log_mass: Tensor, g: Tensor, generator: torch.Generator | None
) -> Tensor:
    r"""Draw perturbed log-probabilities of children whose maximum is exactly that of their parent, $g$.

    With $u_c = \log p_c + \text{Gumbel}$, $Z = \max_c u_c$ and the parent's noise
    $e = g - \log \text{mass}$,

    $$g_c = g - \log\bigl(1 + e^{e - u_c} - e^{e - Z}\bigr).$$

    It is computed from the differences $Z - u_c$, so the maximum equals $g$ without rounding error.

    Args:
        log_probs: the log-probability of each child given its parent, (*batch, children); −inf if
            impossible.
        log_mass: the log-probability of the parent, (*batch,).
        g: the perturbed log-probability of the parent, (*batch,); −inf if the parent is impossible.
        generator: the source of randomness.

    Returns:
        (*batch, children)
    """
    u = log_probs + gumbel_like(log_probs, generator)
    top = u.amax(-1, keepdim=True)
    top = top.masked_fill(top == -torch.inf, 0.0)  # where no child is possible
    noise = (g - log_mass).masked_fill(g == -torch.inf, 0.0).unsqueeze(-1)
    behind = top - u
    later = (noise - top) + behind + torch.log(-expm1(-behind))
    return g.unsqueeze(-1) - F.softplus(later, threshold=50.0)
