"""A small model of sequences of different lengths."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from problems import log_probabilities


@dataclass
class TwoLevels:
    """Sequences of one or two symbols over {a, b, end}: a, b, or end; then a, b, or end."""

    first: torch.Tensor  # (3,)
    second: torch.Tensor  # (3, 3), by the first symbol
    batch: tuple[int, ...] = ()
    length: int = 2
    end: int = 2

    def start(self):
        return None

    def step(self, state):
        if state is None:
            return self.first.expand(*self.batch, 1, 3), state
        return self.second[state], state

    def select(self, state, parents, symbols):
        return symbols

    def sequences(self):
        """Every sequence and its log-probability."""
        out = {(2, 2): self.first[2]}
        out |= {(i, j): self.first[i] + self.second[i, j] for i in (0, 1) for j in range(3)}
        return out


def two_levels(batch=(), dtype=torch.float64):
    return TwoLevels(
        log_probabilities(3, seed=1, dtype=dtype).requires_grad_(),
        log_probabilities(3, 3, seed=2, dtype=dtype),
        batch,
    )
