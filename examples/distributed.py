"""Compare estimators over many seeds in parallel, on this machine or on a Ray or Dask cluster.

Run it with `python examples/distributed.py --jobs 4`. The options `--backend ray` and `--backend dask` need
the extra `cluster`. Each process has one thread.
"""

from __future__ import annotations

import argparse

import torch
from torch.distributions import Categorical

import swor
from swor.experiments.reproduce.execution import as_completed, processes

NAMES = ("unordered_set", "reinforce", "sum_and_sample")


def train(seed: int) -> dict[str, float]:
    """Train with each estimator from the same start, and return the final cost above the best one."""
    torch.set_num_threads(1)
    reached = {}
    for name in NAMES:
        generator = torch.Generator().manual_seed(seed)
        costs = torch.rand(30, generator=generator)
        logits = torch.zeros(30, requires_grad=True)
        optimizer = torch.optim.Adam([logits], lr=0.1)
        for _ in range(100):
            dist = Categorical(logits=logits)
            loss = swor.ESTIMATORS[name](lambda x, c=costs: c[x], dist, 4, generator=generator)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        reached[name] = float(logits.detach().softmax(-1) @ costs - costs.min())
    return reached


def main(seeds: int, jobs: int, backend: str, address: str | None) -> None:
    """Train with all seeds, and print the means and standard errors."""
    with processes(backend, jobs, address):
        results = list(as_completed(train, range(seeds), backend))
    for name in NAMES:
        gaps = torch.tensor([result[name] for result in results])
        error = gaps.std() / len(gaps) ** 0.5
        print(f"{name:>14}: {gaps.mean():.4f} ± {error:.4f} above the best, over {seeds} seeds")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=16)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--backend", choices=("loky", "ray", "dask"), default="loky")
    parser.add_argument("--address")
    options = parser.parse_args()
    main(options.seeds, options.jobs, options.backend, options.address)
