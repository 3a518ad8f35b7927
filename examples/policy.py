"""Train a categorical policy over ten actions with four actions per state, distinct or independent.

Run it with `python examples/policy.py`. It prints means and standard errors over several seeds of

- the expected cost above that of the best actions, during training, which is computed exactly, and
- the variance of the gradient of both estimators, on the same policies.

Both gradients are unbiased. That of distinct actions has the lower variance. The difference grows as the
policy becomes more certain, because independent actions then repeat each other. Training is therefore faster
with distinct actions. In the end, the two come close to each other: the policies are nearly deterministic,
and further progress depends on the network and the learning rate more than on the samples. With many more
actions than samples, such as fifty actions and four samples, independent actions seldom repeat each other at
first, and the two train about equally fast.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn
from torch.distributions import Categorical

import swor

K, ACTIONS, STATE = 4, 10, 6
NAMES = ("unordered_set", "rloo")


def train(name: str, seed: int, steps: int) -> tuple[list[float], list[float]]:
    """Return the costs at three times of training, and the variances of both estimators at the end."""
    generator = torch.Generator().manual_seed(seed)
    targets = torch.randn(
        ACTIONS, STATE, generator=generator
    )  # the best action has the nearest one
    unseen = torch.randn(500, STATE, generator=generator)
    torch.manual_seed(seed)
    policy = nn.Sequential(nn.Linear(STATE, 64), nn.Tanh(), nn.Linear(64, ACTIONS))
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)
    costs = []
    for step in range(1, steps + 1):
        state = torch.randn(64, STATE, generator=generator)
        log_probs = policy(state).log_softmax(-1)
        if name == "unordered_set":
            sample = swor.gumbel_top_k(log_probs, K, generator=generator)
            weights = swor.unordered_set(sample)
        else:
            sample = swor.with_replacement(log_probs, K, generator=generator)
            weights = swor.rloo(sample)
        cost = (state.unsqueeze(1) - targets[sample.value]).square().sum(-1)  # (64, K)
        optimizer.zero_grad()
        weights.loss(cost).mean().backward()
        optimizer.step()
        if step in (steps // 4, steps // 2, steps):
            every = (unseen.unsqueeze(1) - targets).square().sum(-1)  # (500, ACTIONS)
            expected = (policy(unseen).softmax(-1) * every).sum(-1)
            costs.append(float((expected - every.amin(-1)).mean().detach()))
    return costs, variances(policy(unseen[:50]).detach(), unseen[:50], targets, generator)


def variances(
    logits: Tensor, state: Tensor, targets: Tensor, generator: torch.Generator
) -> list[float]:
    """The variance of the gradient with respect to the logits, by estimator."""
    logits.requires_grad_()

    def cost(action: Tensor) -> Tensor:
        return (state.unsqueeze(1) - targets[action]).square().sum(-1)

    found = []
    for name in NAMES:
        dist = Categorical(logits=logits)
        moments = swor.gradient_moments(
            name, cost, dist, [logits], k=K, repeats=50, generator=generator
        )
        found.append(float(moments.trace))
    return found


def show(title: str, rows: list[list[float]]) -> None:
    """Print means and standard errors over the seeds."""
    numbers = torch.tensor(rows)
    errors = numbers.std(0) / len(rows) ** 0.5
    cells = [f"{m:8.4f} ± {e:.4f}" for m, e in zip(numbers.mean(0), errors, strict=True)]
    print(f"{title:<34}{'   '.join(cells)}")


def main(steps: int = 200, seeds: int = 6) -> None:
    """Train with both estimators from the same starts, and print costs and variances."""
    times = ", ".join(str(step) for step in (steps // 4, steps // 2, steps))
    print(f"Expected cost above the best after {times} steps, over {seeds} seeds:")
    by_name = {name: [train(name, seed, steps) for seed in range(seeds)] for name in NAMES}
    for name, runs in by_name.items():
        show(f"  {name}", [costs for costs, _ in runs])
    pairs = zip(*by_name.values(), strict=True)
    less = [[b - a for a, b in zip(x[0], y[0], strict=True)] for x, y in pairs]
    show("  rloo minus unordered_set", less)
    show("Gradient variance, at the end:", [found for _, found in by_name["unordered_set"]])
    print(f"{'':34}{NAMES[0]:<20}{NAMES[1]}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=6)
    options = parser.parse_args()
    main(options.steps, options.seeds)
