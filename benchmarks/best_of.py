"""The best of m, forward and backward, over the unordered set estimator on the same samples."""

from __future__ import annotations

import torch
from measure import report, timings

import swor

SIZES = [*((k, m) for k in (4, 8, 16) for m in (2, 4)), (64, 8), (64, 32), (256, 8), (256, 32)]


def main() -> None:
    """Ratios of the loss with its gradient, and of the value alone, as in an evaluation."""
    torch.set_num_threads(1)
    rows: list[dict[str, object]] = []
    for k, m in SIZES:
        batch = max(2, 1024 // k)
        log_probs = torch.randn(batch, 4 * k).log_softmax(-1)
        drawn = swor.gumbel_top_k(log_probs, k)
        log_p = drawn.log_p.requires_grad_()
        sample = swor.Sample(drawn.value, log_p, drawn.log_rest, scheme=drawn.scheme)
        reward = torch.rand(batch, k)

        def step(loss, log_p=log_p):
            log_p.grad = None
            loss().sum().backward()

        unordered = lambda s=sample, r=reward: swor.unordered_set(s).loss(r)  # noqa: E731
        best = lambda s=sample, r=reward, m=m: swor.best_of(s, m).loss(r)  # noqa: E731
        took = timings(
            {
                "unordered": lambda step=step, f=unordered: step(f),
                "best of m": lambda step=step, f=best: step(f),
                "unordered value": lambda s=sample, r=reward: swor.unordered_set(s).mean(r),
                "best of m value": lambda s=sample, r=reward, m=m: swor.best_of(s, m).mean(r),
            },
            repeats=30,
        )
        rows.append(
            {
                "k": k,
                "m": m,
                "batch": batch,
                "unordered ms": took["unordered"].median * 1e3,
                "best of m / unordered": took["best of m"].median / took["unordered"].median,
                "value: best of m / unordered": took["best of m value"].median
                / took["unordered value"].median,
            }
        )
    report("The best of m, loss and gradient, and value alone, float32", rows, "best_of")


if __name__ == "__main__":
    main()
