"""A training step of the categorical VAE with a control variate, over the step without one."""

from __future__ import annotations

import torch
from measure import report, timings
from vae import BATCH, step, task

from reproduction.harness.task import Place
from swor.estimators.additive import AdditiveTable

DIMS, CATEGORIES, PIXELS = 20, 10, 784
PLAIN = {
    "rloo_additive": "rloo",
    "unordered_set_additive": "unordered_set",
    "double_control": "rloo",
    "unordered_set_double_control": "unordered_set",
    "rloo_tangents": "rloo",
    "unordered_set_tangents": "unordered_set",
    "carms": "rloo",
    "relax": "rloo",
    "rodeo": "rloo",
}


def network_step(network: AdditiveTable, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> None:
    """What the network costs by itself: a table, its gradient, and a step of the optimiser."""
    optimizer.zero_grad(set_to_none=True)
    network(x).square().sum((-1, -2)).mean().backward()
    optimizer.step()


def main() -> None:
    """Time all steps in turns. Beyond the network, a step should take at most 1.1 times that without it."""
    torch.set_num_threads(1)
    tasks = {name: task(name, DIMS) for name in {*PLAIN, *PLAIN.values()}}
    network = AdditiveTable(DIMS, CATEGORIES, context=PIXELS)
    optimizer = torch.optim.Adam(network.parameters())
    x = tasks["rloo"].batch(Place(0, 0, 0))
    ways = {name: lambda t=t: step(t) for name, t in tasks.items()}
    ways["network"] = lambda: network_step(network, optimizer, x)
    took = {name: t.median for name, t in timings(ways, repeats=40, seconds=120).items()}
    rows: list[dict[str, object]] = []
    for name, plain in PLAIN.items():
        own = took["network"] if name.endswith("additive") else 0.0
        rows.append(
            {
                "estimator": name,
                "ms": took[name] * 1e3,
                "over": plain,
                "ratio": took[name] / took[plain],
                "network ms": own * 1e3,
                "ratio beyond the network": (took[name] - own) / took[plain],
            }
        )
    report(f"A step of the VAE with a control variate, 10^{DIMS}, batch {BATCH}", rows, "control")


if __name__ == "__main__":
    main()
