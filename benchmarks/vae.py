"""A training step of the categorical VAE, unordered set over RLOO, and its parts."""

from __future__ import annotations

import torch
from measure import report, timings

import swor
from reproduction.harness.images import Images
from reproduction.harness.task import Place, seeded
from reproduction.vae.settings import VAESettings
from reproduction.vae.task import VAETask

BATCH, K = 200, 4


def task(estimator: str, dims: int, k: int = K) -> VAETask:
    """A task on images of the size of MNIST's."""
    images = (torch.rand(BATCH, 784, generator=seeded("images")) > 0.87).to(torch.uint8)
    settings = VAESettings(estimator=estimator, k=k, dims=dims, batch_size=BATCH, cpu=True)
    return VAETask(settings, Images(images, images, images, (28, 28)))


def step(trained: VAETask) -> None:
    """What the training loop does in a step."""
    trained.optimizer.zero_grad(set_to_none=True)
    loss, _ = trained.loss(trained.batch(Place(0, 0, 0)), seeded("noise"))
    loss.backward()
    trained.optimizer.step()


def steps() -> list[dict[str, object]]:
    """Whole steps, in turns."""
    rows: list[dict[str, object]] = []
    for dims in (20, 2):
        names = ("rloo", "unordered_set", "sum_and_sample_shared_sampled_baseline")
        tasks = {name: task(name, dims) for name in names}
        tasks["arsm, k = 1"] = task("arsm", dims, 1)
        took = timings(
            {name: lambda t=t: step(t) for name, t in tasks.items()}, repeats=40, seconds=60
        )
        base = took["rloo"].median
        for name, t in took.items():
            ratio = t.median / base
            rows.append(
                {
                    "domain": f"10^{dims}",
                    "estimator": name,
                    "ms": t.median * 1e3,
                    "over rloo": ratio,
                    "examples/s": BATCH / t.median,
                }
            )
    return rows


def shares() -> list[dict[str, object]]:
    """Where the time of an unordered set step goes, and of a REINFORCE step."""
    trained = task("unordered_set", 20)
    x = trained.batch(Place(0, 0, 0))
    dist = trained.vae.posterior(x)
    without = swor.sample(dist, K, generator=seeded("noise"))
    independent = swor.sample(dist, K, replacement=True, generator=seeded("noise"))

    def model() -> None:
        trained.optimizer.zero_grad(set_to_none=True)
        posterior = trained.vae.posterior(x)
        cost = trained.vae.negative_log_likelihood(x, independent.value).mean(-1)
        (cost + trained.vae.divergence(posterior)).mean().backward()
        trained.optimizer.step()

    parts = {
        "sampling, without replacement": lambda: swor.sample(dist, K, generator=seeded("noise")),
        "sampling, with replacement": lambda: swor.sample(
            dist, K, replacement=True, generator=seeded("noise")
        ),
        "ratios, unordered set": lambda: swor.unordered_set(without),
        "weights, rloo": lambda: swor.rloo(independent),
        "model and optimiser": model,
        "whole step": lambda: step(trained),
    }
    took = timings(parts, repeats=40)
    whole = took["whole step"].median
    return [
        {"part": name, "ms": t.median * 1e3, "share of the step": t.median / whole}
        for name, t in took.items()
    ]


def decoding() -> list[dict[str, object]]:
    """The cost and its gradient at 10^2: every outcome decoded once, over every sample decoded.

    Samples that require a gradient are never replaced by outcomes.
    """
    rows: list[dict[str, object]] = []
    trained = task("rloo", 2)
    x = trained.batch(Place(0, 0, 0))
    for k in (1, 4, 46):
        z = swor.sample(trained.vae.posterior(x), k, replacement=True, generator=seeded()).value

        def cost(z: torch.Tensor) -> None:
            trained.vae.negative_log_likelihood(x, z).mean().backward()

        samples = z.clone().requires_grad_()
        took = timings(
            {"outcomes": lambda z=z: cost(z), "samples": lambda z=samples: cost(z)}, repeats=20
        )
        outcomes, direct = took["outcomes"].median, took["samples"].median
        rows.append(
            {
                "k": k,
                "outcomes, ms": outcomes * 1e3,
                "samples, ms": direct * 1e3,
                "samples over outcomes": direct / outcomes,
            }
        )
    return rows


def main() -> None:
    """All three tables."""
    torch.set_num_threads(1)
    title = f"batch {BATCH}, k = {K}, 784 pixels, float32"
    report(f"Training step of the VAE, {title}", steps(), "vae")
    report(f"Where the time goes, unordered set, 10^20, {title}", shares(), "vae-shares")
    report(f"Decoding outcomes or samples, 10^2, batch {BATCH}", decoding(), "vae-decoding")


if __name__ == "__main__":
    main()
