r"""Draws by inversion of the cumulative probability, exact for any number of outcomes.

$$x = \min \{i : p_1 + \dots + p_i \ge u \, (p_1 + \dots + p_n)\}, \qquad u \sim U(0, 1]$$

The sums and $u$ are in double precision. In float32, a sum near 1 has steps of $6 \cdot 10^{-8}$, so outcomes
of about this size would lose their mass or gain that of others: with a vocabulary of 50 000 tokens, one of
which has the probability 0.999, no other token would ever be drawn. An outcome of probability 0 is never
drawn.

Many outcomes are drawn in two levels, first a block by its mass and then an outcome of the block, so that the
probabilities are read once and only few of them are converted.
"""

from __future__ import annotations

import torch
from torch import Tensor

from swor._checks import check_generator
from swor.math._logspace import wide_dtype
from swor.samplers._tables import near_root

DIRECT = 4096  # largest number of outcomes whose cumulative sum is cheaper than two levels
SMALLEST_BLOCK = 8  # number of outcomes in a block below which two levels save nothing


def uniform_like(x: Tensor, generator: torch.Generator | None) -> Tensor:
    """Draw uniform noise from [0, 1), of the shape of ``x``, in double precision."""
    dtype = wide_dtype(x.device)
    if generator is None:
        return torch.rand_like(x, dtype=dtype)  # unlike torch.rand, it takes symbolic shapes
    check_generator(generator)
    return torch.rand(x.shape, generator=generator, dtype=dtype, device=x.device)


def draw(p: Tensor, k: int, generator: torch.Generator | None) -> Tensor:
    """Draw indices that may repeat, (*batch, k), from masses (*batch, n) that need not sum to 1."""
    n = p.shape[-1]
    if p.numel() == 0:
        return torch.empty((*p.shape[:-1], k), dtype=torch.long, device=p.device)
    if n > DIRECT:
        size = near_root(n // k)
        if size >= SMALLEST_BLOCK:
            return _draw_in_blocks(p, k, size, generator)
    elif p.device.type == "cpu":  # the same inversion in one call; elsewhere its u has 24 bits
        if p.dim() > 2:
            return draw(p.reshape(-1, n), k, generator).reshape(*p.shape[:-1], k)
        check_generator(generator)
        rows = p.to(wide_dtype(p.device))
        return torch.multinomial(rows, k, replacement=True, generator=generator)
    return invert(p, fractions(p, k, generator))


def invert(mass: Tensor, u: Tensor) -> Tensor:
    """Return the outcomes, (*batch, k), at fractions u in (0, 1] of the cumulative mass (*batch, n)."""
    cumulative = mass.cumsum(-1, dtype=wide_dtype(mass.device))
    return torch.searchsorted(cumulative, u * cumulative[..., -1:])


def invert_one(mass: Tensor, generator: torch.Generator | None) -> Tensor:
    """Draw one outcome, (*batch, 1), from masses (*batch, n) by a comparison, which compiled code fuses."""
    cumulative = mass.cumsum(-1, dtype=wide_dtype(mass.device))
    total = cumulative[..., -1:]
    below = cumulative < (1.0 - uniform_like(total, generator)) * total
    return below.sum(-1, keepdim=True)


def fractions(p: Tensor, k: int, generator: torch.Generator | None) -> Tensor:
    """Draw u from (0, 1], (*batch, k)."""
    return 1.0 - uniform_like(p[..., :1].expand(*p.shape[:-1], k), generator)


def _draw_in_blocks(p: Tensor, k: int, size: int, generator: torch.Generator | None) -> Tensor:
    """Draw a block of ``size`` neighbours by its mass, and then one of them."""
    n = p.shape[-1]
    whole = n - n % size
    mass = p[..., :whole].unflatten(-1, (-1, size)).sum(-1)
    if whole < n:
        mass = torch.cat([mass, p[..., whole:].sum(-1, keepdim=True)], dim=-1)
    block = invert(mass, fractions(p, k, generator))
    member = block.unsqueeze(-1) * size + torch.arange(size, device=p.device)
    inside = p.gather(-1, member.clamp(max=n - 1).flatten(-2)).view(member.shape)
    inside = inside.masked_fill(member >= n, 0.0)
    return block * size + invert(inside, fractions(inside, 1, generator)).squeeze(-1)
