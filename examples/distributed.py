"""Compare estimators over many seeds in parallel, on this machine or on a Ray or Dask cluster.

Run it with `python examples/distributed.py --jobs 4`. The options `--backend ray` and `--backend dask` need
the extra `cluster`. Each process has one thread.

It trains a policy over a few actions, of which four are drawn in every step. The costs lie between 0 and 1,
and in a second training 1 is subtracted from all of them, which leaves the optimum as it is. `unordered_set`
and `rloo` compare each cost with a baseline, so the constant cancels, and both trainings are the same.
`sum_and_sample` has no baseline. With positive costs, it lowers the probability of every action that it
draws, which keeps the policy exploring. With negative costs, it raises the probability of these actions, and
the policy commits to the first actions that it tries.

With `--actions 30`, four independent actions seldom repeat each other, so `unordered_set` and `rloo` are
about equal. Exploration matters most there, and `sum_and_sample` comes first, but only with positive costs.
"""

from __future__ import annotations

import argparse

import torch
from joblib import delayed
from torch.distributions import Categorical

import swor
from reproduction.reproduce.execution import workers

NAMES = ("unordered_set", "rloo", "sum_and_sample")
SHIFTS = {"costs from 0 to 1": 0.0, "costs from -1 to 0": -1.0}


def train(seed: int, actions: int) -> dict[tuple[str, str], float]:
    """Train with each estimator from the same start, and return the final costs above the best one."""
    torch.set_num_threads(1)
    reached = {}
    for (title, shift), name in ((item, name) for item in SHIFTS.items() for name in NAMES):
        generator = torch.Generator().manual_seed(seed)
        costs = torch.rand(actions, dtype=torch.float64, generator=generator) + shift
        logits = torch.zeros(actions, dtype=torch.float64, requires_grad=True)
        optimizer = torch.optim.Adam([logits], lr=0.1)
        for _ in range(100):
            dist = Categorical(logits=logits)
            loss = swor.ESTIMATORS[name](lambda x, c=costs: c[x], dist, 4, generator=generator)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        reached[title, name] = float(logits.detach().softmax(-1) @ costs - costs.min())
    return reached


def main(seeds: int, jobs: int, backend: str, address: str | None, actions: int = 12) -> None:
    """Train with all seeds, and print the means and standard errors."""
    with workers(backend, jobs, address) as parallel:
        results = list(parallel(delayed(train)(seed, actions) for seed in range(seeds)))
    for title in SHIFTS:
        print(f"Above the best action, {title}, over {seeds} seeds:")
        for name in NAMES:
            gaps = torch.tensor([result[title, name] for result in results])
            print(f"{name:>16}: {gaps.mean():.4f} ± {gaps.std() / len(gaps) ** 0.5:.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--backend", choices=("loky", "ray", "dask"), default="loky")
    parser.add_argument("--address")
    parser.add_argument("--actions", type=int, default=12)
    options = parser.parse_args()
    main(options.seeds, options.jobs, options.backend, options.address, options.actions)
