"""The VAE is the paper's, and its costs are those of torch."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from small_vae import fixed_posterior, small
from torch.distributions import kl_divergence

from reproduction.harness.task import seeded
from reproduction.vae.model import CategoricalVAE
from swor.diagnostics.enumeration import exact
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


@pytest.mark.parametrize(("images", "decoded"), [(1, 4), (2, 8), (3, 9), (50, 9)])
def test_each_outcome_is_decoded_once(images: int, decoded: int) -> None:
    vae = small()  # with 3^2 = 9 outcomes
    x = torch.bernoulli(torch.full((images, 6), 0.5, dtype=torch.float64), generator=seeded("x"))
    z = support(vae.posterior(x)).value[:, torch.tensor([7, 0, 5, 5])].detach()
    costs = -F.logsigmoid(vae.pixel_logits(z) * (2.0 * x - 1.0).unsqueeze(-2)).sum(-1)
    weights = torch.rand(images, 4, generator=seeded("weights"), dtype=torch.float64)
    parameters = list(vae.decoder.parameters())
    expected = torch.autograd.grad((costs * weights).sum(), parameters)
    rows: list[int] = []
    vae.decoder.register_forward_hook(lambda _, args, __: rows.append(args[0][..., 0].numel()))
    actual = vae.negative_log_likelihood(x, z)
    assert rows == [decoded]
    torch.testing.assert_close(actual, costs)
    torch.testing.assert_close(torch.autograd.grad((actual * weights).sum(), parameters), expected)


@pytest.mark.parametrize("with_gradient", [False, True])
def test_relaxed_samples_are_decoded_as_they_are(with_gradient: bool) -> None:
    vae, x = small(), torch.ones(50, 6, dtype=torch.float64)
    z = torch.rand(50, 4, 2, 3, generator=seeded("z"), dtype=torch.float64).softmax(-1)
    z.requires_grad_(with_gradient)
    expected = -F.logsigmoid(vae.pixel_logits(z)).sum(-1)
    actual = vae.negative_log_likelihood(x, z)
    torch.testing.assert_close(actual, expected)
    if with_gradient:
        assert all(g.any() for g in torch.autograd.grad(actual.sum(), z))
