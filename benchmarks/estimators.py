"""The whole loss, forward and backward, over a hand-written leave-one-out REINFORCE loss."""

from __future__ import annotations

import torch
from measure import report, timings

import swor

BATCH = 128


def plain(logits: torch.Tensor, table: torch.Tensor, k: int) -> torch.Tensor:
    """REINFORCE with replacement as one would write it by hand."""
    log_probs = logits.log_softmax(-1)
    index = torch.multinomial(log_probs.detach().exp(), k, replacement=True)
    cost = table.gather(-1, index)
    baseline = (cost.sum(-1, keepdim=True) - cost) / (k - 1)
    return (log_probs.gather(-1, index) * (cost - baseline)).mean()


def unordered(logits: torch.Tensor, table: torch.Tensor, k: int) -> torch.Tensor:
    """The unordered set estimator."""
    sample = swor.gumbel_top_k(logits.log_softmax(-1), k)
    return swor.unordered_set(sample).loss(table.gather(-1, sample.value)).mean()


def reinforce(logits: torch.Tensor, table: torch.Tensor, k: int) -> torch.Tensor:
    """The same plain loss through the library."""
    sample = swor.with_replacement(logits.log_softmax(-1), k)
    return swor.reinforce(sample).loss(table.gather(-1, sample.value)).mean()


def main() -> None:
    """Ratios for the sizes of a policy over many actions."""
    torch.set_num_threads(1)
    rows: list[dict[str, object]] = []
    compiled = torch.compile(unordered, fullgraph=True)
    for n in (100, 1000, 10_000):
        for k in (4, 8, 16):
            logits = torch.randn(BATCH, n, requires_grad=True)
            table = torch.rand(BATCH, n)

            def step(loss, logits=logits, table=table, k=k):
                logits.grad = None
                loss(logits, table, k).backward()

            losses = {"plain": plain, "reinforce": reinforce, "unordered": unordered}
            if n == 1000:
                losses["compiled"] = compiled
            took = timings({name: lambda f=f: step(f) for name, f in losses.items()}, repeats=60)
            base = took["plain"].median
            row: dict[str, object] = {"outcomes": n, "k": k, "plain ms": base * 1e3}
            row |= {
                f"{name} / plain": t.median / base for name, t in took.items() if name != "plain"
            }
            rows.append(row)
    report(f"Loss forward and backward, batch {BATCH}, float32", rows, "estimators")


if __name__ == "__main__":
    main()
