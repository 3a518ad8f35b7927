r"""The race: perturbed log-probabilities, of outcomes and of the children of a node.

Outcome $i$ wins its race at time $T_i \sim \text{Exp}(p_i)$; the perturbed log-probability is
$g_i = -\log T_i = \log p_i + \text{Gumbel}$, and the $k$ largest are an ordered sample without
replacement (the Gumbel-top-$k$ trick). The maximum over a group is itself the race of the group's
mass, so a tree can be searched from its root: draw a node's $g$, then its children's given that
their maximum is $g$. By the lack of memory of the exponential the children's times are those of an
unconditional race, all shifted by what moves the first one to $e^{-g}$.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from swor.math.logspace import expm1

TINY = {torch.float32: 2.0**-25, torch.float64: 2.0**-54}  # the middle of the cell around 0


def gumbel_like(x: Tensor, generator: torch.Generator | None) -> Tensor:
    r"""Standard Gumbel noise $-\log E$, $E \sim \text{Exp}(1)$, of the shape of ``x``; finite."""
    if generator is None:
        u = torch.rand_like(x)  # unlike torch.rand with a generator, it takes symbolic shapes
    else:
        u = torch.rand(x.shape, generator=generator, dtype=x.dtype, device=x.device)
    return -torch.log(-torch.log1p(-u.clamp(min=TINY[x.dtype])))


def perturb_children(
    log_probs: Tensor, log_mass: Tensor, g: Tensor, generator: torch.Generator | None
) -> Tensor:
    r"""Perturbed log-probabilities of children whose maximum is exactly their parent's, $g$.

    With $u_c = \log p_c + \text{Gumbel}$, $Z = \max_c u_c$ and the parent's noise
    $e = g - \log \text{mass}$,

    $$g_c = g - \log\bigl(1 + e^{e - u_c} - e^{e - Z}\bigr),$$

    computed from the differences $Z - u_c$, so the maximum is $g$ to the last bit.

    Args:
        log_probs: of each child given its parent, (*batch, children); −inf for impossible ones.
        log_mass: log-probability of the parent, (*batch,).
        g: perturbed log-probability of the parent, (*batch,); −inf for an impossible parent.
        generator: the source of randomness.

    Returns:
        (*batch, children)
    """
    u = log_probs + gumbel_like(log_probs, generator)
    top = u.amax(-1, keepdim=True)
    top = top.masked_fill(top == -torch.inf, 0.0)  # no child is possible, and none wins
    noise = (g - log_mass).masked_fill(g == -torch.inf, 0.0).unsqueeze(-1)
    behind = top - u
    later = (noise - top) + behind + torch.log(-expm1(-behind))
    return g.unsqueeze(-1) - F.softplus(later, threshold=50.0)
