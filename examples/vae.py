"""Train a categorical VAE with 10^8 latent outcomes, of which it samples four different ones per image.

Run it with `python examples/vae.py`. It needs scikit-learn for the images (extra `reproduction`).
"""

from __future__ import annotations

import argparse

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import Independent, OneHotCategorical

import swor

VARIABLES, CATEGORIES = 8, 10


def network(inputs: int, outputs: int) -> nn.Sequential:
    """Return a network with one hidden layer."""
    return nn.Sequential(nn.Linear(inputs, 128), nn.LeakyReLU(0.1), nn.Linear(128, outputs))


def digits() -> Tensor:
    """Return binary images, (1797, 64)."""
    from sklearn.datasets import load_digits

    return (torch.as_tensor(load_digits().data) > 8).float()


def main(epochs: int = 20) -> None:
    """Train the model, and print the −ELBO of each epoch."""
    torch.manual_seed(0)
    images = digits()
    encoder = network(64, VARIABLES * CATEGORIES)
    decoder = network(VARIABLES * CATEGORIES, 64)
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=1e-3)

    for epoch in range(epochs):
        total = 0.0
        for x in images[torch.randperm(len(images))].split(100):
            logits = encoder(x).unflatten(-1, (VARIABLES, CATEGORIES)).log_softmax(-1)
            dist = Independent(OneHotCategorical(logits=logits), 1)
            sample = swor.sample(dist, k=4)  # (batch, 4, variables, categories), all different

            pixels = decoder(sample.value.flatten(-2))
            target = x.unsqueeze(1).expand_as(pixels)
            cost = F.binary_cross_entropy_with_logits(pixels, target, reduction="none").sum(-1)
            divergence = (logits.exp() * (logits + torch.tensor(CATEGORIES).log())).sum((-1, -2))

            loss = (swor.unordered_set(sample).loss(cost) + divergence).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(x)
        print(f"epoch {epoch + 1:>2}: −ELBO {total / len(images):.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=20)
    main(parser.parse_args().epochs)
