"""Draws of the gradient of the −ELBO, whose variance is measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from swor.estimators.learned import warm_up
from swor.experiments.task import seeded
from swor.experiments.vae.methods import Method
from swor.experiments.vae.model import CategoricalVAE
from swor.experiments.vae.task import surrogate

if TYPE_CHECKING:
    from swor.experiments.vae.variance import Variance


class Gradient:
    """Draws of the gradient of the mean −ELBO of a minibatch: encoder, decoder and both."""

    def __init__(
        self, settings: Variance, vae: CategoricalVAE, images: Tensor, name: str, k: int
    ) -> None:
        self.settings, self.vae, self.images, self.k = settings, vae, images, k
        weights = seeded(settings.seed, "method", name, k)
        self.method = Method(name, vae.n, vae.c, generator=weights)
        with torch.no_grad():
            self.evaluations = self.method.entry.evaluations(k, vae.posterior(self.minibatch(0)))
        self.train_control()

    def minibatch(self, number: int) -> Tensor:
        """The first records, or those of a draw."""
        records = self.settings.records
        if not self.settings.new_minibatch:
            return self.images[:records].float()
        generator = seeded(self.settings.seed, "minibatch", number)
        rows = torch.randint(len(self.images), (records,), generator=generator)
        return self.images[rows].float()

    def loss(self, number: int, purpose: str) -> Tensor:
        """The surrogate of a draw, averaged over the minibatch."""
        x = self.minibatch(number)
        noise = seeded(self.settings.seed, purpose, self.method.name, self.k, number)
        posterior = self.vae.posterior(x)
        kl = self.vae.divergence(posterior)
        return surrogate(self.vae, self.method, x, posterior, kl, self.k, noise).mean()

    def train_control(self) -> None:
        """Let the estimator learn what it learns, while the model stays as it is."""
        steps = self.settings.control_steps
        warm_up(self.method.estimator, lambda number: self.loss(number, "control"), steps)

    def __call__(self, number: int) -> tuple[Tensor, Tensor, Tensor]:
        """The gradient of a draw, flattened."""
        encoder, decoder = list(self.vae.encoder.parameters()), list(self.vae.decoder.parameters())
        gradients = torch.autograd.grad(self.loss(number, "noise"), encoder + decoder)
        both = torch.cat([g.flatten() for g in gradients])
        split = sum(p.numel() for p in encoder)
        return both[:split], both[split:], both
