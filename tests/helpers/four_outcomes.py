"""A categorical over four outcomes, and a cost that has parameters of its own."""

from __future__ import annotations

import torch
from problems import seeded
from torch.distributions import Categorical

import swor

N = 4


class Problem:
    """A categorical over N outcomes, and a cost that has parameters of its own."""

    def __init__(self, scale=1.0, seed=0):
        self.theta = scale * torch.randn(N, dtype=torch.float64, generator=seeded(seed))
        self.phi = torch.randn(N, dtype=torch.float64, generator=seeded(seed + 1))
        self.parameters = [self.theta.requires_grad_(), self.phi.requires_grad_()]

    @property
    def dist(self):
        return Categorical(logits=self.theta)

    def cost(self, x):
        return torch.sin(self.phi)[x] * (1.0 + x) + self.theta.square()[x]

    def gradient(self):
        value = swor.exact(self.cost, self.dist)
        return value, torch.cat(torch.autograd.grad(value, self.parameters))
