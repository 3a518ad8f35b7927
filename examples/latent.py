"""Train a mixture of experts whose router is a discrete latent variable of torch.distributions.

The router samples which of eight experts makes the prediction. One loss trains both the router and the
experts.
Run it with `python examples/latent.py`.
"""

from __future__ import annotations

import argparse

import torch
from torch import nn
from torch.distributions import Categorical

import swor


def main(steps: int = 400) -> None:
    """Fit a curve with eight linear pieces."""
    torch.manual_seed(0)
    router = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 8))
    slope, offset = nn.Parameter(torch.randn(8)), nn.Parameter(torch.randn(8))
    parameters = [*router.parameters(), slope, offset]
    optimizer = torch.optim.Adam(parameters, lr=1e-2)

    for step in range(steps):
        x = 4.0 * torch.rand(128, 1) - 2.0
        y = torch.sin(3.0 * x)

        sample = swor.sample(Categorical(logits=router(x)), k=3)  # three different experts
        expert = sample.value  # (128, 3)
        predicted = slope[expert] * x + offset[expert]
        error = (predicted - y).square()  # carries the gradient for the experts
        loss = swor.unordered_set(sample).loss(error)  # adds the gradient for the router

        optimizer.zero_grad()
        loss.mean().backward()
        optimizer.step()
        if (step + 1) % max(steps // 4, 1) == 0:
            spread = swor.murthy_variance(sample, error.detach()).mean().sqrt()
            print(
                f"step {step + 1}: error {loss.mean():.3f}, standard error per point {spread:.3f}"
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    main(parser.parse_args().steps)
