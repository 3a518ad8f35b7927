r"""Perturbed log-probabilities as an exponential race, for outcomes and for the children of a node.

Outcome $i$ arrives at time $T_i \sim \text{Exp}(p_i)$. Its perturbed log-probability is
$g_i = -\log T_i = \log p_i + \text{Gumbel}$, and the $k$ largest are an ordered sample without replacement
(the Gumbel-top-$k$ trick). The maximum over a group has the distribution of a single outcome with the
mass of the group. A tree can therefore be searched from its root: draw the $g$ of a node, and then
those of its children given that their maximum is $g$. Because the exponential distribution has no
memory, the times of the children are those of an unconditional race, all shifted by the same amount, so
that the first arrives at $e^{-g}$. See Kool et al. (2019c) and Maddison et al. (2014).

Large races are run in blocks. The outcomes of a categorical variable are the children of a root, and a
search over sequences extends its beams by their children. A block of children is a node between parent and
child. The blocks race by their mass, given the time of their parent; then the children of the best $k$
blocks race, given the times of their blocks. The result has the same distribution as a race of all
children. For $m$ nodes of $n$ children each, only about $2 \sqrt{m n k}$ numbers are perturbed.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from swor.math._logspace import expm1
from swor.samplers._inversion import uniform_like
from swor.samplers._tables import (
    block_masses,
    block_members,
    block_of,
    force_symbol,
    log_mass_outside,
)

TINY = {torch.float32: 2.0**-25, torch.float64: 2.0**-54}  # the middle of the cell around 0
LARGEST_WITHOUT_BLOCKS = 256  # number of children that race without blocks


def exponential_like(x: Tensor, generator: torch.Generator | None) -> Tensor:
    r"""Draw standard exponential noise $E \sim \text{Exp}(1)$ of the shape of ``x``; always positive.

    Uniform noise is drawn in double precision, because an outcome of probability $10^{-8}$ wins a race with
    an $E$ of about this size, which float32 noise does not resolve.
    """
    u = uniform_like(x, generator)
    largest = 1.0 - 0.5 * torch.finfo(x.dtype).eps  # below 1 also when it is rounded
    return u.clamp(TINY[u.dtype], largest).to(x.dtype).neg_().log1p_().neg_()


def gumbel_like(x: Tensor, generator: torch.Generator | None) -> Tensor:
    r"""Draw standard Gumbel noise $-\log E$, $E \sim \text{Exp}(1)$, of the shape of ``x``; always finite."""
    return exponential_like(x, generator).log_().neg_()


def _perturb(log_probs: Tensor, generator: torch.Generator | None) -> Tensor:
    r"""Add Gumbel noise to log-probabilities, $\log p - \log E$."""
    return log_probs - exponential_like(log_probs, generator).log_()


def perturb_children(
    log_probs: Tensor, log_mass: Tensor, g: Tensor, generator: torch.Generator | None
) -> Tensor:
    r"""Draw perturbed log-probabilities of children whose maximum is exactly that of their parent, $g$.

    With $u_c = \log p_c + \text{Gumbel}$, $Z = \max_c u_c$ and the parent's noise
    $e = g - \log \text{mass}$,

    $$g_c = g - \log\bigl(1 + e^{e - u_c} - e^{e - Z}\bigr).$$

    It is computed from the differences $Z - u_c$, so the maximum equals $g$ without rounding error.
    ``log_probs``, (*batch, children), is that of each child given its parent, and ``log_mass`` and ``g``,
    (*batch,), belong to the parent; $g$ is −inf if it is impossible.
    """
    u = _perturb(log_probs, generator)
    top = u.amax(-1, keepdim=True)
    top = top.masked_fill(top == -torch.inf, 0.0)  # where no child is possible
    noise = (g - log_mass).masked_fill(g == -torch.inf, 0.0).unsqueeze(-1)
    behind = top - u
    later = (noise - top) + behind + torch.log(-expm1(-behind))
    return g.unsqueeze(-1) - F.softplus(later, threshold=50.0)


class Parents(NamedTuple):
    """Nodes of a tree whose children race, (*batch, nodes)."""

    log_p: Tensor
    g: Tensor  # perturbed


class Ended(NamedTuple):
    """Nodes that have only one child, because sequences that have ended repeat their last symbol."""

    nodes: Tensor  # (*batch, nodes), true where ended
    symbol: int


class TopK(NamedTuple):
    """The k largest perturbed log-probabilities, and the mass and the maximum of all others."""

    indices: Tensor  # (*batch, k), of outcomes, or of the concatenated children of all nodes
    log_p: Tensor  # (*batch, k)
    g: Tensor  # (*batch, k)
    log_rest: Tensor  # (*batch,), log of the mass of the others
    kappa: Tensor  # (*batch,), the best g of the others


def top_k_outcomes(log_probs: Tensor, k: int, generator: torch.Generator | None) -> TopK:
    """Return the k outcomes with the largest perturbed log-probabilities, or all if there are fewer.

    If the probabilities, (*batch, n), do not sum to 1, the results are relative to their sum.
    """
    if log_probs.shape[-1] > LARGEST_WITHOUT_BLOCKS:
        return top_k_children(log_probs.unsqueeze(-2), None, k, generator)
    return _best(log_probs, _perturb(log_probs, generator), k)


def top_k_children(
    log_probs: Tensor,
    parents: Parents | None,
    k: int,
    generator: torch.Generator | None,
    ended: Ended | None = None,
) -> TopK:
    """Return the k children with the largest perturbed log-probabilities, or all if there are fewer.

    Args:
        log_probs: of the children given their node, (*batch, nodes, n), or (*batch, 1, n) if they are the
            same for all nodes.
        parents: the nodes; None for a root, whose children race without a condition.
        k: the number of children.
        generator: the source of randomness.
        ended: nodes that have only one child.
    """
    if parents is not None:
        log_probs = log_probs.expand(*parents.g.shape, log_probs.shape[-1])
    *_, m, n = log_probs.shape
    size = 1
    while 4 * size * size * k <= m * n:  # about the square root of m n / k
        size *= 2
    if n > LARGEST_WITHOUT_BLOCKS and m * (n // size) > k:
        return _top_k_in_blocks(log_probs, parents, k, generator, ended, size)
    if ended is not None:
        log_probs = force_symbol(log_probs, *ended)
    return _race(log_probs, parents, k, generator)


def top_k_of(log_p: Tensor, g: Tensor, k: int) -> TopK:
    """Return the k largest g of (*batch, nodes, n)."""
    return _best(log_p.flatten(-2), g.flatten(-2), k)


def _best(log_p: Tensor, g: Tensor, k: int) -> TopK:
    """Return the k largest g of (*batch, n)."""
    top, index = g.topk(min(k + 1, g.shape[-1]), dim=-1)
    if top.shape[-1] > k:
        kappa, top, index = top[..., k], top[..., :k], index[..., :k]
    else:
        kappa = torch.full_like(top[..., 0], -torch.inf)
    return TopK(index, log_p.gather(-1, index), top, log_mass_outside(log_p, index), kappa)


def _race(
    log_probs: Tensor, parents: Parents | None, k: int, generator: torch.Generator | None
) -> TopK:
    """Perturb every child, and return the best k of them."""
    if parents is None:
        return top_k_of(log_probs, _perturb(log_probs, generator), k)
    g = perturb_children(log_probs, parents.log_p, parents.g, generator)
    return top_k_of(parents.log_p.unsqueeze(-1) + log_probs, g, k)


def _top_k_in_blocks(
    log_probs: Tensor,
    parents: Parents | None,
    k: int,
    generator: torch.Generator | None,
    ended: Ended | None,
    size: int,
) -> TopK:
    """Race the blocks, and then the children of the best k blocks."""
    n = log_probs.shape[-1]
    log_mass = block_masses(log_probs, size)
    count = log_mass.shape[-1]
    if ended is not None:
        log_mass = force_symbol(log_mass, ended.nodes, block_of(ended.symbol, n, size))
    block = _race(log_mass, parents, k, generator)
    parent, column = block.indices // count, block.indices % count
    member = block_members(column, n, size)
    index = (parent * n).unsqueeze(-1) + member.clamp(max=n - 1)
    inside = log_probs.flatten(-2).gather(-1, index.flatten(-2)).view(index.shape)
    mass = log_mass.flatten(-2).gather(-1, block.indices).unsqueeze(-1)
    inside = (inside - mass).masked_fill((member >= n) | (mass == -torch.inf), -torch.inf)
    if ended is not None:
        inside = _force_inside(inside, member, parent, ended)
    found = _race(inside, Parents(block.log_p, block.g), k, generator)
    return found._replace(
        indices=index.flatten(-2).gather(-1, found.indices),
        log_rest=torch.logaddexp(block.log_rest, found.log_rest),
        kappa=torch.maximum(block.kappa, found.kappa),
    )


def _force_inside(inside: Tensor, member: Tensor, parent: Tensor, ended: Ended) -> Tensor:
    """Give the only child of ended nodes the probability 1 within its block."""
    only = torch.zeros_like(inside).masked_fill(member != ended.symbol, -torch.inf)
    return torch.where(ended.nodes.gather(-1, parent).unsqueeze(-1), only, inside)
