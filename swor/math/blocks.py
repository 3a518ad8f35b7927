"""Large batches in blocks whose intermediate results stay in the cache of the processor."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil

import torch
from torch import Tensor

CACHED = 2**21  # numbers, a few megabytes


def in_blocks(
    function: Callable[[Tensor, Tensor], tuple[Tensor, ...]],
    log_p: Tensor,
    log_rest: Tensor,
    *,
    numbers: int,
) -> tuple[Tensor, ...]:
    """Apply a function that treats the elements of the batch independently, a block at a time.

    The time is then linear in the batch, and the memory beyond that of the result is bounded. Compiled code
    fuses its loops instead, and is not divided.

    Args:
        function: maps log_p (*batch, k) and log_rest (*batch,) to tensors (*batch, …).
        log_p: (*batch, k).
        log_rest: (*batch,).
        numbers: how many intermediate results there are for one element of the batch.
    """
    total = log_rest.numel()
    count = ceil(total * numbers / CACHED)
    if torch.compiler.is_compiling() or count < 2:
        return function(log_p, log_rest)
    size = ceil(total / count)
    rows = log_p.reshape(total, -1).split(size), log_rest.reshape(total).split(size)
    found = zip(*(function(*block) for block in zip(*rows, strict=True)), strict=True)
    return tuple(torch.cat(x).reshape(*log_rest.shape, *x[0].shape[1:]) for x in found)
