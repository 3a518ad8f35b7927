"""Sample with a temperature, and estimate the gradient of the policy without the temperature.

The same works for samples from an older policy. For several temperatures, the example prints the measured
bias of the gradient, which is about as large as the noise of the measurement, and the variance.
Run it with `python examples/off_policy.py`.
"""

from __future__ import annotations

import argparse

import torch

import swor


def main(repeats: int = 20_000) -> None:
    """Compare several temperatures of the sampling distribution."""
    generator = torch.Generator().manual_seed(0)
    logits = (2.0 * torch.randn(12, generator=generator, dtype=torch.float64)).requires_grad_()
    costs = torch.rand(12, generator=generator, dtype=torch.float64)
    p = logits.softmax(-1)
    (truth,) = torch.autograd.grad((p * costs).sum(), logits)

    for temperature in (0.7, 1.0, 1.5, 3.0):
        batch = logits.detach().expand(repeats, -1).clone().requires_grad_()
        log_p = batch.log_softmax(-1)  # the policy
        log_q = (log_p.detach() / temperature).log_softmax(-1)  # the sampling distribution
        sample = swor.gumbel_top_k(log_q, 4, generator=generator)
        loss = swor.unordered_set(sample).loss(
            costs[sample.value], log_p=log_p.gather(-1, sample.value)
        )
        (gradient,) = torch.autograd.grad(loss.sum(), batch)  # one row for each repetition
        bias = (gradient.mean(0) - truth).norm()
        noise = (gradient.var(0).sum() / repeats).sqrt()
        print(
            f"temperature {temperature}: bias {bias:.1e} (noise {noise:.1e}), "
            f"variance {gradient.var(0).sum():.2e}"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=20_000)
    main(parser.parse_args().repeats)
