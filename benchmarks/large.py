"""Large domains: time and peak memory of a loss over up to 10^7 outcomes, against other ways.

    python benchmarks/large.py [--outcomes 10000000] [--k 8]

Time is a ratio of medians over interleaved repeats; memory is that of a process of its own for every
way, in multiples of the memory of the logits.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from measure import report, timings

import swor

Way = Callable[[torch.Tensor, int], torch.Tensor]


def blocks(log_probs: torch.Tensor, k: int) -> torch.Tensor:
    """The library: blocks race by their mass, the best are opened."""
    return swor.gumbel_top_k(log_probs, k).log_p


def every_gumbel(log_probs: torch.Tensor, k: int) -> torch.Tensor:
    """A Gumbel for every outcome, as one would write it by hand."""
    noise = -torch.log(-torch.log(torch.rand_like(log_probs)))
    return log_probs.gather(-1, (log_probs.detach() + noise).topk(k + 1).indices[..., :k])


def multinomial(log_probs: torch.Tensor, k: int) -> torch.Tensor:
    """torch.multinomial without replacement, which gives no threshold and no mass outside."""
    return log_probs.gather(-1, torch.multinomial(log_probs.detach().exp(), k))


def softmax_alone(log_probs: torch.Tensor, k: int) -> torch.Tensor:
    """No sampling at all: what the normalised logits and their gradient take."""
    return log_probs[..., :k]


WAYS: dict[str, Way] = {
    "blocks": blocks,
    "every_gumbel": every_gumbel,
    "multinomial": multinomial,
    "softmax_alone": softmax_alone,
}


def loss(logits: torch.Tensor, way: Way, k: int) -> None:
    """From logits to the gradient by them."""
    logits.grad = None
    way(logits.log_softmax(-1), k).sum().backward()


def peak() -> int:
    """The most memory that this process has had, in bytes, not counting that of who started it."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise OSError("this system does not tell the peak memory of a process; expected Linux.")


def passes(name: str, n: int, k: int, step: str) -> float:
    """Peak memory beyond the input, in multiples of it, in a process that does nothing else."""
    command = [sys.executable, __file__, "--outcomes", str(n), "--k", str(k), "--peak", name, step]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout)


def print_passes(name: str, n: int, k: int, step: str) -> None:
    """What :func:`passes` reads: of sampling alone, or of the loss with its gradient."""
    loss(torch.zeros(1000, requires_grad=True), WAYS[name], k)  # what a first call loads
    uniform = torch.full((n,), -math.log(n))
    before = peak()
    if step == "sample":
        WAYS[name](uniform, k)
    else:
        loss(uniform.requires_grad_(), WAYS[name], k)
    print((peak() - before) / (4 * n))


def main() -> None:
    """Time and memory for domains of growing size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--outcomes", type=int, default=10**7, help="the largest domain")
    parser.add_argument("--k", type=int, default=8)
    parser.add_argument("--peak", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.peak:
        return print_passes(given.peak[0], given.outcomes, given.k, given.peak[1])
    sizes = [n for n in (10**5, 10**6, 10**7, 10**8) if n < given.outcomes] + [given.outcomes]
    rows: list[dict[str, object]] = []
    for n in sizes:
        logits = torch.randn(n, requires_grad=True)
        took = timings(
            {name: lambda w=w, x=logits: loss(x, w, given.k) for name, w in WAYS.items()},
            repeats=20,
        )
        for name, t in took.items():
            row: dict[str, object] = {"outcomes": n, "k": given.k, "way": name}
            row |= {"ms": t.median * 1e3, "over blocks": t.median / took["blocks"].median}
            if n == given.outcomes:
                row |= {f"passes, {s}": passes(name, n, given.k, s) for s in ("sample", "gradient")}
            rows.append(row)
    report("Loss over a large domain, forward and backward, float32", rows, "large")


if __name__ == "__main__":
    main()
