"""What a caller does to logits: processors of transformers, as calls that know the prompt of a row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

Processor = Callable[[Tensor, Tensor], Tensor]  # (token ids, logits) -> logits
Step = Callable[[Tensor, Tensor, Tensor], Tensor]  # likewise, and the prompt of every row


def steps_of(processor: Processor | None) -> list[Step]:
    """The processors of a list, or one alone, in order.

    ``PrefixConstrainedLogitsProcessor`` takes the number of a row for that of its prompt, as it is in
    ``generate``. Here completions that have ended have no row, so it is told the prompt.
    """
    if processor is None:
        return []
    given: Any = processor
    several = list(given) if isinstance(given, list) else [given]
    constraint = "_prefix_allowed_tokens_fn"
    return [
        _constrained(getattr(x, constraint)) if hasattr(x, constraint) else _plain(x)
        for x in several
    ]


def _constrained(allowed: Callable[[int, Tensor], Sequence[int]]) -> Step:

    def step(tokens: Tensor, logits: Tensor, owners: Tensor) -> Tensor:
        masked = torch.ones_like(logits, dtype=torch.bool)
        for row, (owner, context) in enumerate(zip(owners.tolist(), tokens, strict=True)):
            masked[row, torch.as_tensor(allowed(owner, context), dtype=torch.long)] = False
        return logits.masked_fill(masked, -torch.inf)

    return step


def _plain(processor: Processor) -> Step:
    def step(tokens: Tensor, logits: Tensor, owners: Tensor) -> Tensor:
        return processor(tokens, logits)

    return step
