"""Draws of a categorical variable as indices: independent ones, and distinct ones by two methods."""

from __future__ import annotations

import torch
from torch import Tensor

from swor.checks import check_normalized, check_possible, may_inspect
from swor.math.logspace import working_dtype
from swor.samplers.model import DistinctValues
from swor.samplers.one_by_one import draw_one_by_one
from swor.samplers.stream import distinct_values, log_rest_and_kappa
from swor.samplers.tree_race import log_mass_outside, top_k_outcomes

SPARSE = 15  # a stream is used if there are at least this many outcomes per sample
FEW = 16  # largest number of samples that compiled code draws one by one
LARGEST_TABLE = 2**22  # number of probabilities beyond which a race in blocks saves a copy of them


@torch.no_grad()
def independent(log_probs: Tensor, k: int, generator: torch.Generator | None) -> Tensor:
    """Draw indices that may repeat, (*batch, k)."""
    p = log_probs.to(working_dtype(log_probs.dtype)).exp()
    check_normalized(p.sum(-1), log_probs.dtype)
    rows = p.reshape(-1, p.shape[-1])
    if rows.shape[0] == 0:
        return torch.empty((*p.shape[:-1], k), dtype=torch.long, device=p.device)
    drawn = torch.multinomial(rows, k, replacement=True, generator=generator)
    return drawn.reshape(*p.shape[:-1], k)


@torch.no_grad()
def distinct(
    log_probs: Tensor,
    k: int,
    generator: torch.Generator | None,
    *,
    dtype: torch.dtype | None = None,
    factors: int = 1,
) -> DistinctValues:
    """Draw k distinct indices, (*batch, k), by the faster of two methods with the same distribution.

    If tensor values may be inspected, they come from a stream of independent draws. The exponential race
    serves for the rest: on an accelerator, in compiled code, for very many outcomes, and for so few that
    a stream would mostly repeat itself.

    Args:
        log_probs: (*batch, n); −inf masks an outcome.
        k: the number of indices.
        generator: the source of randomness.
        dtype: the dtype in which the probabilities were normalised, if it is another one.
        factors: the number of variables of whose product these are the outcomes.
    """
    full = log_probs.to(working_dtype(log_probs.dtype))
    n, dtype = full.shape[-1], dtype or log_probs.dtype
    if may_inspect(full) and SPARSE * k <= n and 0 < full.numel() <= LARGEST_TABLE:
        p = full.exp()
        total = p.sum(-1, keepdim=True)
        check_normalized(total, dtype, steps=factors)
        found = _from_stream(full, p, total, k, generator)
    elif torch.compiler.is_compiling() and k <= FEW:
        return draw_one_by_one(full, k, generator)
    else:
        top = top_k_outcomes(full, k, generator)
        found = DistinctValues(top.indices, top.log_p, top.log_rest, top.kappa)
        check_normalized(found.total(), dtype, steps=factors)
    check_possible(found.log_p)
    return found


def _from_stream(
    log_probs: Tensor, p: Tensor, total: Tensor, k: int, generator: torch.Generator | None
) -> DistinctValues:
    """Draw from probabilities (*batch, n) with the sum ``total`` (*batch, 1)."""
    batch, n = p.shape[:-1], p.shape[-1]
    log_probs = log_probs.reshape(-1, n)

    def race(rows: Tensor) -> Tensor:
        return top_k_outcomes(log_probs[rows], k, generator).indices

    def log_outside(rows: Tensor) -> Tensor:
        return log_mass_outside(log_probs[rows], value[rows])

    draws = k + 3 + 16 * k * k // n  # enough for most: about k² / n of them repeat
    stream = torch.multinomial(p.reshape(-1, n), draws, replacement=True, generator=generator)
    value = distinct_values(stream, k, code=lambda x: x, longer=[race])
    log_p = log_probs.gather(-1, value)
    log_rest, kappa = log_rest_and_kappa(log_p, total.reshape(-1, 1), log_outside, generator)
    if len(batch) == 1:
        return DistinctValues(value, log_p, log_rest, kappa)
    value, log_p = value.reshape(*batch, k), log_p.reshape(*batch, k)
    return DistinctValues(value, log_p, log_rest.reshape(batch), kappa.reshape(batch))
