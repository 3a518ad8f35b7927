"""Dispatched operations of a small loss, forward and backward, beside a hand-written RLOO.

Where tensors are small, the number of operations is what a loss costs. It is exact, so that it needs no
quiet machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from measure import report
from torch.utils._python_dispatch import TorchDispatchMode

import swor

BATCH = 128

T = TypeVar("T")


class Operations(TorchDispatchMode):
    """Counts the operations that are dispatched."""

    count = 0

    def __torch_dispatch__(self, function, types, arguments=(), options=None):  # type: ignore[no-untyped-def]
        self.count += 1
        return function(*arguments, **(options or {}))


def counted(function: Callable[[], T]) -> tuple[T, int]:
    """The result of a function, and the number of its operations."""
    with Operations() as operations:
        result = function()
    return result, operations.count


def plain(logits: torch.Tensor, table: torch.Tensor, k: int) -> torch.Tensor:
    """RLOO as one would write it by hand."""
    log_probs = logits.log_softmax(-1)
    index = torch.multinomial(log_probs.detach().exp(), k, replacement=True)
    cost = table.gather(-1, index)
    baseline = (cost.sum(-1, keepdim=True) - cost) / (k - 1)
    return (log_probs.gather(-1, index) * (cost - baseline)).mean()


def of_parts(logits: torch.Tensor, table: torch.Tensor, k: int) -> dict[str, int]:
    """The operations of a sampler, of the rule, of the loss, and of the gradient."""
    log_probs = logits.log_softmax(-1)
    sample, sampler = counted(lambda: swor.gumbel_top_k(log_probs, k))
    cost = table.gather(-1, sample.value)
    weights, rule = counted(lambda: swor.unordered_set(sample))
    loss, of_loss = counted(lambda: weights.loss(cost))
    _, backward = counted(loss.mean().backward)
    return {"sampler": sampler, "rule": rule, "loss": of_loss, "backward": backward}


def counts(n: int, k: int) -> dict[str, int]:
    """The operations for a categorical variable of n outcomes, with the ones by hand."""
    torch.manual_seed(0)
    logits, table = torch.randn(BATCH, n, requires_grad=True), torch.rand(BATCH, n)
    of_parts(logits, table, k)  # makes the constant tables
    parts = of_parts(logits, table, k)
    by_hand, forward = counted(lambda: plain(logits, table, k))
    _, backward = counted(by_hand.backward)
    return parts | {"by hand": forward, "by hand, backward": backward}


def main() -> None:
    """Counts with the checks of values, and without."""
    torch.set_num_threads(1)
    rows: list[dict[str, object]] = []
    for n in (100, 1000):
        for k in (4, 8, 16):
            for checks in (True, False):
                swor.set_validate_values(checks)
                rows.append(
                    {"outcomes": n, "k": k, "checks": "yes" if checks else "no"} | counts(n, k)
                )
    swor.set_validate_values(True)
    report(f"Dispatched operations of a loss, batch {BATCH}, float32", rows, "operations")


if __name__ == "__main__":
    main()
