"""The training step of the README over the same step with a hand-written RLOO loss."""

from __future__ import annotations

from functools import partial

import torch
from estimators import Loss, unordered
from measure import report, timings
from operations import counted, plain

STATES, ACTIONS = 32, 100  # as in the README


def training(loss: Loss, k: int) -> partial[None]:
    """A function that makes one step."""
    logits = torch.nn.Parameter(torch.zeros(STATES, ACTIONS))
    optimizer = torch.optim.Adam([logits], lr=0.1)
    return partial(step, loss, logits, torch.rand(STATES, ACTIONS), optimizer, k)


def step(
    loss: Loss,
    logits: torch.nn.Parameter,
    cost: torch.Tensor,
    optimizer: torch.optim.Optimizer,
    k: int,
) -> None:
    """One step of the README."""
    optimizer.zero_grad()
    loss(logits, cost, k).backward()
    optimizer.step()


def main() -> None:
    """The step as it is in the README, k = 4, and with more samples."""
    torch.set_num_threads(1)
    rows: list[dict[str, object]] = []
    for k in (4, 8, 16):
        ways = {"by hand": training(plain, k), "unordered set": training(unordered, k)}
        took = timings(ways, repeats=1000)
        row: dict[str, object] = {"k": k}
        row |= {f"{name}, ms": t.median * 1e3 for name, t in took.items()}
        row["ratio"] = took["unordered set"].median / took["by hand"].median
        row |= {f"{name}, operations": counted(way)[1] for name, way in ways.items()}
        rows.append(row)
    title = f"A training step over {ACTIONS} actions for {STATES} states, with Adam, float32"
    report(title, rows, "readme")


if __name__ == "__main__":
    main()
