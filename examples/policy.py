"""Train a categorical policy over fifty actions with four different actions per state.

Run it with `python examples/policy.py`. It prints the expected cost during training.
"""

from __future__ import annotations

import argparse

import torch
from torch import nn

import swor


def main(steps: int = 300) -> None:
    """Train one policy with distinct actions, and one with independent actions."""
    generator = torch.Generator().manual_seed(0)
    targets = torch.randn(50, 6, generator=generator)  # the best action has the nearest target

    for name in ("unordered_set", "reinforce"):
        torch.manual_seed(0)
        policy = nn.Sequential(nn.Linear(6, 64), nn.Tanh(), nn.Linear(64, 50))
        optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)
        noise = torch.Generator().manual_seed(1)
        for step in range(steps):
            state = torch.randn(64, 6, generator=noise)
            log_probs = policy(state).log_softmax(-1)
            if name == "unordered_set":
                sample = swor.gumbel_top_k(log_probs, 4, generator=noise)
                weights = swor.unordered_set(sample)
            else:
                sample = swor.with_replacement(log_probs, 4, generator=noise)
                weights = swor.reinforce(sample)
            cost = (state.unsqueeze(1) - targets[sample.value]).square().sum(-1)  # (64, 4)
            optimizer.zero_grad()
            weights.loss(cost).mean().backward()
            optimizer.step()
            if step + 1 in (1, steps // 2, steps):
                every = (state.unsqueeze(1) - targets).square().sum(-1)
                expected = (log_probs.exp() * every).sum(-1).mean()
                print(f"{name:>14}, step {step + 1:>4}: expected cost {expected:.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    main(parser.parse_args().steps)
