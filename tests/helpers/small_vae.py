"""A VAE small enough to sum over its outcomes, for several tests."""

from __future__ import annotations

from torch import Tensor
from torch.distributions import Independent, OneHotCategorical

from reproduction.harness.task import seeded
from reproduction.vae.model import CategoricalVAE
from reproduction.vae.settings import VAESettings
from swor.diagnostics.enumeration import exact

DIGITS = VAESettings(dims=2, epochs=2, keep_every=1, cpu=True)


def small() -> CategoricalVAE:
    return CategoricalVAE(6, 2, 3, generator=seeded("small")).double()


def fixed_posterior(logits: Tensor) -> Independent:
    return Independent(OneHotCategorical(logits=logits, validate_args=False), 1)


def exact_negative_elbo(vae: CategoricalVAE, x: Tensor, posterior: Independent) -> Tensor:
    cost = exact(lambda z: vae.negative_log_likelihood(x, z), posterior)
    return cost + vae.divergence(posterior)
