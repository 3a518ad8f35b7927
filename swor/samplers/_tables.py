"""Tables of log-probabilities, (*batch, n), and the distinct values that are drawn from them."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

LARGEST_TEMPORARY = 2**22  # elements of a table beyond which its blocks are summed in parts


class DistinctValues(NamedTuple):
    """Distinct values in the order in which they were sampled, without gradient."""

    value: Tensor  # (*batch, k, *event)
    log_p: Tensor  # (*batch, k)
    log_rest: Tensor  # (*batch,)
    kappa: Tensor  # (*batch,)

    def padded(self, k: int) -> DistinctValues:
        """Return k values, with the value 0 and the log-probability −inf where fewer are possible."""
        missing, event = k - self.log_p.shape[-1], self.value.dim() - self.log_p.dim()
        value = F.pad(self.value, (0, 0) * event + (0, missing))
        log_p = F.pad(self.log_p, (0, missing), value=-torch.inf)
        impossible = (log_p == -torch.inf).reshape(*log_p.shape, *(1,) * event)
        return self._replace(value=value.masked_fill(impossible, 0), log_p=log_p)

    def total(self) -> Tensor:
        """Return the mass of the values and of all others, (*batch,), which is 1 up to rounding."""
        return self.log_p.exp().sum(-1) + self.log_rest.exp()


def log_mass_outside(log_probs: Tensor, index: Tensor) -> Tensor:
    """Return the log of the mass that was not selected, (*batch,), as a sum, so that nothing cancels."""
    return log_probs.scatter(-1, index, -torch.inf).logsumexp(-1)


def force_symbol(log_probs: Tensor, rows: Tensor, symbol: int) -> Tensor:
    """Give a symbol the probability 1 in some rows, and leave the other rows unchanged."""
    only = torch.arange(log_probs.shape[-1], device=log_probs.device) == symbol
    certain = torch.where(only, 0.0, -torch.inf).to(log_probs.dtype)
    return torch.where(rows.unsqueeze(-1), certain, log_probs)


def near_root(n: int) -> int:
    """Return a whole number near √n, by comparisons in compiled code, for which n may be symbolic."""
    if not torch.compiler.is_compiling():
        return math.isqrt(n)
    root = 1
    while 2 * root * root < n:
        root *= 2
    return root


def block_masses(log_probs: Tensor, size: int) -> Tensor:
    """Return the log of the mass of every block, (*batch, blocks).

    A block is a column of the outcomes written in ``size`` rows, so that sums run along memory. Outcomes that
    do not fill a row form a last block of their own. Temporary tensors are a fraction of the input.
    """
    count = log_probs.shape[-1] // size
    rows = log_probs[..., : size * count].unflatten(-1, (size, count))
    if rows.numel() > LARGEST_TEMPORARY:
        across = max(rows.numel() // size, 1)
        parts = rows.split(max(LARGEST_TEMPORARY // across, near_root(size)), dim=-2)
        log_mass = torch.stack([part.logsumexp(-2) for part in parts]).logsumexp(0)
    else:
        log_mass = rows.logsumexp(-2)
    left = log_probs[..., size * count :]
    if left.shape[-1] == 0:
        return log_mass
    return torch.cat([log_mass, left.logsumexp(-1, keepdim=True)], dim=-1)


def block_members(block: Tensor, n: int, size: int) -> Tensor:
    """Return the outcomes in each block, (*batch, blocks, size); n or more marks a missing one."""
    count, row = n // size, torch.arange(size, device=block.device)
    block = block.unsqueeze(-1)
    if n % size == 0:
        return block + count * row
    return torch.where(block == count, size * count + row, block + count * row)


def block_of(outcome: int, n: int, size: int) -> int:
    """Return the block that contains an outcome."""
    count = n // size
    return outcome % count if outcome < size * count else count
