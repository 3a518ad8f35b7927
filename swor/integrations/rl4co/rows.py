"""rl4co keeps the solutions of a batch of instances in rows, all instances of a beam after another.

Row ``beam · batch + instance`` of a TensorDict belongs to that beam of that instance.
"""

from __future__ import annotations

import torch
from torch import Tensor


def to_rows(x: Tensor) -> Tensor:
    """From (batch, beams, ...) to (beams · batch, ...).

    >>> to_rows(torch.tensor([[1, 2, 3], [4, 5, 6]]))
    tensor([1, 4, 2, 5, 3, 6])
    """
    return x.transpose(0, 1).flatten(0, 1)


def from_rows(x: Tensor, batch: int) -> Tensor:
    """From (beams · batch, ...) to (batch, beams, ...).

    >>> from_rows(torch.tensor([1, 4, 2, 5, 3, 6]), batch=2)
    tensor([[1, 2, 3],
            [4, 5, 6]])
    """
    return x.reshape(-1, batch, *x.shape[1:]).transpose(0, 1)


def rows_of(beams: Tensor) -> Tensor:
    """The rows of some beams of every instance, from (batch, beams) to (beams · batch,).

    >>> rows_of(torch.tensor([[0, 2], [1, 1]]))
    tensor([0, 3, 4, 3])
    """
    batch = beams.shape[0]
    instances = torch.arange(batch, device=beams.device).unsqueeze(-1)
    return to_rows(beams * batch + instances)
