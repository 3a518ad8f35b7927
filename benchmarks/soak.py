"""Memory stays flat: training steps of every kind of sampler for minutes, and the memory they hold.

    python benchmarks/soak.py [--minutes 10]

The process may have grown by 2 % and 8 MB between the first and the last fifth of the time (after a
fifth of warming up), and the number of live tensors not at all; otherwise the script fails.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch
from measure import report

import swor

BATCH, K, MB = 64, 4, 2**20
Step = Callable[[torch.nn.Module, torch.Generator], torch.Tensor]


def resident() -> float:
    """Memory of this process, in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / MB


def tensors() -> int:
    """The tensors that are alive."""
    return sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())


def categorical(model: torch.nn.Module, noise: torch.Generator) -> torch.Tensor:
    """Distinct outcomes of one large categorical."""
    drawn = swor.gumbel_top_k(model(inputs(noise)).log_softmax(-1), K, generator=noise)
    return swor.unordered_set(drawn).loss(drawn.value.float().sin()).mean()


def product(model: torch.nn.Module, noise: torch.Generator) -> torch.Tensor:
    """Stochastic beam search over 20 variables of 10 categories."""
    log_probs = model(inputs(noise))[:, :200].unflatten(-1, (20, 10)).log_softmax(-1)
    drawn = swor.stochastic_beam_search(swor.Factorized(log_probs), K, generator=noise)
    return swor.unordered_set(drawn).loss(drawn.value.float().mean(-1)).mean()


def by_name(name: str) -> Step:
    """An estimator of the registry on a product of categoricals."""

    def step(model: torch.nn.Module, noise: torch.Generator) -> torch.Tensor:
        logits = model(inputs(noise))[:, :24].unflatten(-1, (6, 4))
        dist = torch.distributions.OneHotCategorical(logits=logits)
        dist = torch.distributions.Independent(dist, 1)
        f = lambda x: (x[..., 0].sum(-1) - 2.0).square()  # noqa: E731
        estimator = swor.ESTIMATORS[name].make(dist, generator=noise)
        return estimator(f, dist, K, generator=noise).mean()

    return step


def inputs(noise: torch.Generator) -> torch.Tensor:
    return torch.randn(BATCH, 16, generator=noise)


NAMES = ("rloo", "sum_and_sample", "importance_weighted", "rebar", "straight_through", "vimco")
STEPS = {"categorical": categorical, "product": product} | {n: by_name(n) for n in NAMES}


def soak(minutes: float) -> list[dict[str, object]]:
    """Steps in turn, and what the process holds, thirty times in all."""
    model, noise = torch.nn.Linear(16, 2000), torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam(model.parameters())
    start, count, rows = time.monotonic(), 0, []
    while len(rows) < 30:
        for step in STEPS.values():
            optimizer.zero_grad()
            step(model, noise).backward()
            optimizer.step()
            count += 1
        seconds = time.monotonic() - start
        if seconds >= (len(rows) + 1) * minutes * 2:
            gc.collect()
            rows.append(
                {"seconds": round(seconds), "steps": count, "MB": resident(), "tensors": tensors()}
            )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows = soak(given.minutes)
    report(f"Memory over {given.minutes:g} min of {len(STEPS)} kinds of steps", rows, "soak")
    first, last = rows[6:12], rows[-6:]
    before, after = (median(float(row["MB"]) for row in part) for part in (first, last))
    more = max(row["tensors"] for row in last) - max(row["tensors"] for row in first)
    print(f"from {before:.1f} to {after:.1f} MB; {more:+d} tensors")
    if after > 1.02 * before + 8 or more > 0:
        sys.exit("memory grew; expected it flat. Look for what keeps the tensors of earlier steps.")


if __name__ == "__main__":
    main()
