"""Operations on a product of categorical variables: codes of its values, masses, and merged variables."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from swor.math.logspace import without_autocast


def codes(value: Tensor, categories: int) -> Tensor:
    """Return integers (batch, draws) that are equal where the values (batch, draws, n) of a row are."""
    digits = 1
    while categories ** (digits + 1) < 2**62:
        digits += 1
    powers: Tensor = categories ** torch.arange(digits, device=value.device)
    code: Tensor
    code, *others = [(x * powers[: x.shape[-1]]).sum(-1) for x in value.split(digits, dim=-1)]
    for part in others:
        code = _rank(code) * value.shape[-2] + _rank(part)
    return code


def _rank(code: Tensor) -> Tensor:
    """Replace integers by small ones that are equal where they are, within each row."""
    ordered, position = code.sort(dim=-1)
    rank = F.pad((ordered[:, 1:] != ordered[:, :-1]).cumsum(-1), (1, 0))
    return torch.empty_like(code).scatter_(-1, position, rank)


def log_mass_outside(log_probs: Tensor, value: Tensor) -> Tensor:
    """Return the log of the mass outside distinct values of a product, as a sum, so that nothing cancels.

    It is the sum, over the prefixes of the values, of the mass of the next symbols that no value takes.

    Args:
        log_probs: (batch, n, c).
        value: (batch, k, n), distinct.
    """
    k = value.shape[-2]
    equal = value.unsqueeze(-2) == value.unsqueeze(-3)  # (batch, k, k, n)
    together = torch.cat([torch.ones_like(equal[..., :1]), equal[..., :-1]], dim=-1).cumprod(-1)
    together = together.bool()  # the same prefix before variable t
    taken = F.one_hot(value, log_probs.shape[-1])  # (batch, k, n, c)
    with without_autocast(log_probs):
        shared = together.to(log_probs.dtype)
        taken = torch.einsum("bstn,btnc->bsnc", shared, taken.to(log_probs.dtype))
    left = log_probs.unsqueeze(-3).masked_fill(taken > 0, -torch.inf).logsumexp(-1)
    chosen = log_probs.gather(-1, value.mT).mT
    prefix = torch.cat([torch.zeros_like(chosen[..., :1]), chosen[..., :-1]], dim=-1).cumsum(-1)
    before = torch.ones(k, k, dtype=torch.bool, device=value.device).tril(-1).unsqueeze(-1)
    counted = (together & before).any(-2)  # an earlier sample has this prefix
    return (prefix + left).masked_fill(counted, -torch.inf).flatten(-2).logsumexp(-1)


def fuse(log_probs: Tensor, size: int) -> Tensor:
    """Merge every ``size`` variables into one: from (*batch, n, c) to (*batch, groups, c**size)."""
    n, c = log_probs.shape[-2:]
    padded, missing = log_probs, -n % size
    if missing:
        certain = torch.full_like(log_probs[..., :1, :], -torch.inf)
        certain[..., 0] = 0.0
        padded = torch.cat([log_probs, certain.expand(*log_probs.shape[:-2], missing, c)], dim=-2)
    groups = padded.unflatten(-2, (-1, size))
    table: Tensor = groups[..., 0, :]
    for i in range(1, size):
        table = (table.unsqueeze(-1) + groups[..., i, :].unsqueeze(-2)).flatten(-2)
    return table


def unfuse(symbols: Tensor, categories: int, size: int) -> Tensor:
    """Split merged symbols into variables: from (*batch, k, groups) to (*batch, k, groups * size)."""
    powers = torch.tensor([categories**i for i in reversed(range(size))], device=symbols.device)
    digits = torch.floor_divide(symbols.unsqueeze(-1), powers).remainder(categories)
    return digits.flatten(-2)
