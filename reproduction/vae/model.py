r"""A variational auto-encoder whose latent variable is n categoricals of c categories."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import Independent, OneHotCategorical

from swor.samplers.distributions import support

Posterior: TypeAlias = "Independent[OneHotCategorical]"

CLAMP = 1e-3  # pixels that are white in all images would have a bias of -inf


class CategoricalVAE(nn.Module):
    r"""$q(z \mid x) = \prod_i q(z_i \mid x)$, $p(z) = c^{-n}$, $p(x \mid z) = \prod_j \text{Bernoulli}(x_j)$.

    The encoder is pixels-512-256-nc and the decoder nc-256-512-pixels, LeakyReLU of slope 0.1 between,
    Glorot-uniform weights, zero biases.

    Args:
        pixels: of an image.
        n: number of latent variables.
        c: number of categories of each.
        generator: of the initial weights.

    >>> vae = CategoricalVAE(64, 20, 10, generator=torch.Generator().manual_seed(0))
    >>> x = torch.ones(5, 64)
    >>> vae.negative_log_likelihood(x, vae.posterior(x).sample((4,)).transpose(0, 1)).shape
    torch.Size([5, 4])
    """

    def __init__(self, pixels: int, n: int, c: int, *, generator: torch.Generator) -> None:
        super().__init__()
        self.n, self.c = n, c
        self.encoder = _network(pixels, 512, 256, n * c, generator=generator)
        self.decoder = _network(n * c, 256, 512, pixels, generator=generator)

    @torch.no_grad()
    def set_output_bias(self, mean: Tensor) -> None:
        r"""Start the output of the decoder from a mean image $m$: $b_j = \operatorname{logit}(m_j)$.

        A zero bias makes every pixel equally likely to be black. Then the first steps of training move the
        decoder to the mean image, and the encoder may meanwhile come to ignore its input. The mean,
        (pixels,), is clamped to between 0.001 and 0.999.
        """
        *_, bias = self.decoder.parameters()
        bias.copy_(torch.logit(mean, eps=CLAMP))

    def posterior(self, x: Tensor) -> Posterior:
        """Return the distribution of the one-hot z, (*batch, n, c), given images (*batch, pixels)."""
        logits: Tensor = self.encoder(x)
        one_hot = OneHotCategorical(
            logits=logits.unflatten(-1, (self.n, self.c)), validate_args=False
        )
        return Independent(one_hot, 1, validate_args=False)

    def pixel_logits(self, z: Tensor) -> Tensor:
        """Decode all samples (*batch, k, n, c) in one pass, to (*batch, k, pixels)."""
        logits: Tensor = self.decoder(z.flatten(-2))
        return logits

    def negative_log_likelihood(self, x: Tensor, z: Tensor) -> Tensor:
        r"""$-\log p(x \mid z) = \sum_j \log(1 + e^{l_j}) - x_j l_j$ with pixel logits l, (*batch, k).

        If z is discrete and has fewer outcomes than there are samples, as in the small domain, then each
        outcome is decoded once for the whole batch.
        """
        if self.c**self.n < z[..., 0, 0].numel() and is_one_hot(z):
            return self.negative_log_likelihoods(x).gather(-1, self.outcome(z))
        return -F.logsigmoid(self.pixel_logits(z) * (2.0 * x - 1.0).unsqueeze(-2)).sum(-1)

    def negative_log_likelihoods(self, x: Tensor) -> Tensor:
        r"""$-\log p(x \mid z)$ of every outcome of z, (*batch, c^n)."""
        logits = self.pixel_logits(support(uniform(self.n, self.c)).value.squeeze(0).to(x))
        return F.softplus(logits).sum(-1) - x @ logits.mT

    def outcome(self, z: Tensor) -> Tensor:
        r"""$\sum_i c^{n - i} \arg\max z_i$: the indices of one-hot samples (*batch, k, n, c), (*batch, k)."""
        places = self.c ** torch.arange(self.n - 1, -1, -1, device=z.device)
        return (z.argmax(-1) * places).sum(-1)

    def divergence(self, posterior: Posterior) -> Tensor:
        r"""$KL(q(z \mid x) \,\|\, p(z)) = \sum_i \sum_j q_{ij} \log q_{ij} + n \log c$, (*batch,)."""
        log_q: Tensor = posterior.base_dist.logits
        return (log_q.exp() * log_q).sum((-1, -2)) + self.n * math.log(self.c)

    def sampled_divergence(self, posterior: Posterior, z: Tensor) -> Tensor:
        r"""$\log q(z \mid x) - \log p(z)$ of samples (*batch, k, n, c), (*batch, k)."""
        log_q: Tensor = posterior.base_dist.logits.unsqueeze(-3)
        return (log_q * z).sum((-1, -2)) + self.n * math.log(self.c)


def uniform(n: int, c: int) -> Posterior:
    """Return a uniform distribution over n one-hot variables of c categories, with a batch of one."""
    return Independent(OneHotCategorical(logits=torch.zeros(1, n, c)), 1)


def is_one_hot(z: Tensor) -> bool:
    """Return whether all samples (..., c) are discrete outcomes, without a gradient of their own."""
    return not z.requires_grad and bool((z.amax(-1) == 1.0).all())


def _network(*widths: int, generator: torch.Generator) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        linear = nn.Linear(before, after)
        nn.init.xavier_uniform_(linear.weight, generator=generator)
        nn.init.zeros_(linear.bias)
        layers += [linear, nn.LeakyReLU(0.1)]
    return nn.Sequential(*layers[:-1])
