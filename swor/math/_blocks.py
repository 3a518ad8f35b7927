"""Large batches in blocks whose intermediate results stay in the cache of the processor."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

CACHED = 2**21  # intermediate results of a block, a few megabytes


def split(x: Tensor, *, numbers: int) -> tuple[Tensor, ...]:
    """Blocks of the first axis, of which each element has so many numbers as intermediate results.

    Compiled code fuses its loops instead, and has only one block.
    """
    return (x,) if torch.compiler.is_compiling() else x.split(max(1, CACHED // numbers))


def in_blocks(
    function: Callable[[Tensor, Tensor], tuple[Tensor, ...]],
    log_p: Tensor,
    log_rest: Tensor,
    *,
    numbers: int,
) -> tuple[Tensor, ...]:
    """Apply a function without gradient to log_p (*batch, k) and log_rest (*batch,), in blocks.

    It maps (batch, k) and (batch,) to tensors (batch, …), each element of the batch by itself. The time is
    then linear in the batch, and the memory beyond that of the result is bounded: every block is copied into
    the result before the next one is computed.
    """
    if log_rest.dim() != 1:
        total, batch = log_rest.numel(), log_rest.shape
        flat = log_p.reshape(total, log_p.shape[-1]), log_rest.reshape(total)
        found = in_blocks(function, *flat, numbers=numbers)
        return tuple(x.reshape(*batch, *x.shape[1:]) for x in found)
    if torch.compiler.is_compiling() or len(log_rest) * numbers <= CACHED:
        return function(log_p, log_rest)
    blocks, rests = split(log_p, numbers=numbers), split(log_rest, numbers=numbers)
    found = function(blocks[0], rests[0])
    results = tuple(x.new_empty(len(log_rest), *x.shape[1:]) for x in found)
    for n, (block, rest) in enumerate(zip(blocks, rests, strict=True)):
        found = found if n == 0 else function(block, rest)
        start = n * len(blocks[0])
        for result, x in zip(results, found, strict=True):
            result[start : start + len(x)].copy_(x)
    return results
