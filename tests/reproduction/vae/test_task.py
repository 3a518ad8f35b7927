"""What the VAE is trained by: unbiased surrogates, shared batches, what estimators learn."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small_vae import DIGITS, exact_negative_elbo, fixed_posterior, small
from torch import Tensor

from reproduction.harness.images import Images, load
from reproduction.harness.task import Place, seeded
from reproduction.vae.settings import METHODS
from reproduction.vae.task import VAETask, evaluate, surrogate
from swor.diagnostics.enumeration import exact

UNBIASED = [
    ("unordered_set", 3),
    ("rloo", 4),
    ("reinforce_no_baseline", 1),
    ("reinforce_shared_sampled_baseline", 1),
    ("sum_and_sample", 3),
    ("sum_and_sample_shared_sampled_baseline", 3),
    ("importance_weighted", 3),
    ("local_unordered_set", 2),
    ("relax", 1),
    ("arsm", 1),
    ("reinforce_moving_average", 2),
]


@pytest.mark.parametrize(("name", "k"), UNBIASED)
def test_the_surrogate_estimates_the_elbo_and_its_gradient(name: str, k: int) -> None:
    """By z-scores over many copies of an image, each with its own noise."""
    vae, copies = small(), 4000
    x = torch.tensor([1.0, 0, 0, 1, 1, 0], dtype=torch.float64).expand(copies, 6)
    logits = torch.randn(2, 3, dtype=torch.float64, generator=seeded("logits"))
    logits = logits.expand(copies, 2, 3).clone().requires_grad_()
    posterior = fixed_posterior(logits)
    truth = exact_negative_elbo(vae, x[:1], fixed_posterior(logits[:1]))
    (true_gradient,) = torch.autograd.grad(truth.sum(), logits)
    true_gradient = true_gradient[0]
    estimator = METHODS[name].make(posterior)
    if name == "relax":  # a control variate that is not zero
        torch.nn.init.normal_(estimator.control.layers[-1].weight, generator=seeded("control"))
    kl = vae.divergence(posterior)
    estimate = surrogate(vae, name, estimator, x, posterior, kl, k, seeded("noise", name))
    error = estimate.detach().std() / copies**0.5
    assert abs(float(estimate.detach().mean() - truth.detach())) < 4 * float(error) + 1e-9
    (gradient,) = torch.autograd.grad(estimate.sum(), logits)
    z = (gradient.mean(0) - true_gradient) / (gradient.std(0) / copies**0.5 + 1e-12)
    assert float(z.abs().max()) < 4


def test_the_decoder_learns_from_the_pathwise_term() -> None:
    vae, name = small(), "unordered_set"
    x = torch.tensor([1.0, 0, 0, 1, 1, 0], dtype=torch.float64).expand(4000, 6)
    posterior = vae.posterior(x)
    kl = vae.divergence(posterior)
    decoder = list(vae.decoder.parameters())
    truth = torch.autograd.grad(exact_negative_elbo(vae, x[:1], vae.posterior(x[:1])), decoder)
    loss = surrogate(vae, name, METHODS[name], x, posterior, kl, 4, seeded("path"))
    for estimate, expected in zip(torch.autograd.grad(loss.mean(), decoder), truth, strict=True):
        assert float((estimate - expected).norm() / expected.norm()) < 0.02


def test_the_output_bias_is_that_of_the_training_images() -> None:
    images = load("digits")
    zero, mean = (
        VAETask(replace(DIGITS, output_bias=bias), images).vae for bias in ("zero", "mean-image")
    )
    assert not zero.decoder[-1].bias.any()
    clamped = images.train.float().mean(0).clamp(1e-3, 1 - 1e-3)
    torch.testing.assert_close(mean.decoder[-1].bias.sigmoid(), clamped)
    torch.testing.assert_close(mean.decoder[-1].weight, zero.decoder[-1].weight)


@pytest.mark.parametrize(
    ("dims", "decoded"), [(20, (200, 4, 200)), (2, (100, 20))], ids=["samples", "outcomes"]
)
def test_the_encoder_and_the_decoder_run_once(dims: int, decoded: tuple[int, ...]) -> None:
    task = VAETask(replace(DIGITS, dims=dims), load("digits"))
    shapes: dict[str, list[torch.Size]] = {"encoder": [], "decoder": []}
    for name, seen in shapes.items():
        getattr(task.vae, name).register_forward_hook(
            lambda module, given, out, seen=seen: seen.append(given[0].shape)
        )
    task.loss(task.batch(Place(0, 0, 0)), seeded("noise"))
    assert shapes == {"encoder": [(200, 64)], "decoder": [decoded]}


def test_an_epoch_has_every_image_once_and_processes_share_it() -> None:
    images = torch.arange(40).reshape(20, 2).to(torch.uint8)
    task = VAETask(replace(DIGITS, batch_size=4), Images(images, images, images, (1, 2)))
    assert task.steps == 5
    epochs = []
    for epoch in (0, 1):
        places = [Place(0, epoch, step, rank, 2) for step in range(5) for rank in (0, 1)]
        epochs.append(torch.cat([task.batch(p) for p in places])[:, 0])
    assert sorted(epochs[0].tolist()) == sorted(epochs[1].tolist()) == images[:, 0].tolist()
    assert not torch.equal(epochs[0], epochs[1])


def test_two_shares_have_the_gradient_of_the_joined_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = replace(METHODS["rloo"], function=lambda f, dist, k, generator=None: exact(f, dist))
    monkeypatch.setitem(METHODS, "rloo", entry)
    task = VAETask(replace(DIGITS, estimator="rloo", batch_size=8), load("digits"))
    task.model.double()

    def gradient(place: Place) -> Tensor:
        loss, _ = task.loss(task.batch(place).double(), seeded("noise"))
        return torch.cat([g.flatten() for g in torch.autograd.grad(loss, task.model.parameters())])

    shares = [gradient(Place(0, 0, 0, rank, 2)) for rank in (0, 1)]
    torch.testing.assert_close(sum(shares) / 2, gradient(Place(0, 0, 0)))


def test_evaluation_is_the_elbo_with_the_analytic_kl() -> None:
    vae = small()
    images = torch.ones(2500, 6, dtype=torch.uint8)
    x = torch.ones(1, 6, dtype=torch.float64)
    truth = float(exact_negative_elbo(vae, x, vae.posterior(x)).detach())
    found = evaluate(vae.float(), images, seeded("evaluate"))
    assert found["negative_elbo"] == pytest.approx(truth, abs=0.05)
    assert found["kl"] == pytest.approx(
        float(vae.divergence(vae.posterior(x.float())).detach()), rel=1e-4
    )


def test_the_seed_decides_what_an_estimator_starts_from() -> None:
    images = load("digits")
    first, again, other = (
        VAETask(replace(DIGITS, estimator="relax", k=1, seed=seed), images).estimate.state_dict()
        for seed in (0, 0, 1)
    )
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)


def test_a_moving_average_is_kept_from_step_to_step(tmp_path: Path) -> None:
    gradients = {}
    for name in ("reinforce_moving_average", "reinforce_no_baseline"):
        task = VAETask(replace(DIGITS, estimator=name, k=2), load("digits"))
        for step in range(2):
            task.model.zero_grad()
            loss, _ = task.loss(task.batch(Place(0, 0, step)), seeded("noise", step))
            loss.backward()
        gradients[name] = torch.cat([p.grad.flatten() for p in task.vae.encoder.parameters()])
    first, second = gradients.values()
    assert float(first.norm()) < 0.5 * float(second.norm())
    assert "estimator.average.average" in task_state("reinforce_moving_average")


def task_state(name: str) -> dict[str, Tensor]:
    return VAETask(replace(DIGITS, estimator=name), load("digits")).model.state_dict()
