"""Stochastic beam search over ancestral sampling of the same number of samples."""

from __future__ import annotations

import torch
from measure import report, timings
from operations import counted

import swor

BATCH = 200


def main() -> None:
    """Ratios for products of categoricals, without gradient and with it."""
    torch.set_num_threads(1)
    rows: list[dict[str, object]] = []
    for n, c in ((2, 10), (20, 10), (20, 2), (50, 10)):
        for k in (4, 8):
            log_probs = torch.randn(BATCH, n, c).log_softmax(-1)
            model = swor.Factorized(log_probs)
            took = timings(
                {
                    "ancestral": lambda model=model, k=k: swor.ancestral_sample(model, k),
                    "beams": lambda model=model, k=k: swor.stochastic_beam_search(model, k),
                },
                repeats=40,
            )
            base = took["ancestral"].median
            rows.append(
                {
                    "variables": n,
                    "categories": c,
                    "k": k,
                    "ancestral ms": base * 1e3,
                    "stochastic beams / ancestral": took["beams"].median / base,
                    "ancestral, operations": counted(
                        lambda m=model, k=k: swor.ancestral_sample(m, k)
                    )[1],
                    "beams, operations": counted(
                        lambda m=model, k=k: swor.stochastic_beam_search(m, k)
                    )[1],
                }
            )
    report(f"Sampling a product of categoricals, batch {BATCH}, float32", rows, "samplers")


if __name__ == "__main__":
    main()
