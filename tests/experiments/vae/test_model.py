"""The VAE is the paper's, and its costs are those of torch."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from small_vae import fixed_posterior, small
from torch.distributions import kl_divergence

from swor.diagnostics.enumeration import exact
from swor.experiments.runs.task import seeded
from swor.experiments.vae.model import CategoricalVAE
from swor.samplers.distributions import support


def test_the_model_is_the_papers() -> None:
    vae = CategoricalVAE(784, 20, 10, generator=seeded("paper"))
    linear = [m for m in vae.modules() if isinstance(m, torch.nn.Linear)]
    widths = [784, 512, 256, 200, 256, 512, 784]
    assert [m.out_features for m in linear] == widths[1:]
    for layer in linear:
        bound = (6 / (layer.in_features + layer.out_features)) ** 0.5
        assert 0.99 * bound < float(layer.weight.detach().abs().max()) <= bound
        assert not layer.bias.any()
    slopes = [m.negative_slope for m in vae.modules() if isinstance(m, torch.nn.LeakyReLU)]
    assert slopes == [0.1] * 4


def test_the_output_may_start_from_the_mean_image() -> None:
    vae, x = small(), torch.tensor([0.0, 0.2, 0.5, 0.9, 1.0, 0.3], dtype=torch.float64)
    before = {name: weight.clone() for name, weight in vae.state_dict().items()}
    vae.set_output_bias(x)
    clamped = torch.tensor([0.001, 0.2, 0.5, 0.9, 0.999, 0.3], dtype=torch.float64)
    changed = [n for n, w in vae.state_dict().items() if not torch.equal(w, before[n])]
    assert changed == ["decoder.4.bias"]
    torch.testing.assert_close(vae.decoder[-1].bias.sigmoid(), clamped)


def test_costs_are_those_of_torch() -> None:
    vae = small()
    x = torch.bernoulli(torch.full((5, 6), 0.5, dtype=torch.float64), generator=seeded("x"))
    posterior = vae.posterior(x)
    z = support(posterior).value
    logits = vae.pixel_logits(z)
    expected = F.binary_cross_entropy_with_logits(
        logits, x.unsqueeze(1).expand_as(logits), reduction="none"
    ).sum(-1)
    torch.testing.assert_close(vae.negative_log_likelihood(x, z), expected)
    prior = fixed_posterior(torch.zeros(5, 2, 3, dtype=torch.float64))
    kl = vae.divergence(posterior)
    torch.testing.assert_close(kl, kl_divergence(posterior, prior))
    torch.testing.assert_close(kl, exact(lambda z: vae.sampled_divergence(posterior, z), posterior))
