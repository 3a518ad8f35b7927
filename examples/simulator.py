"""A stochastic simulator that is no neural network: how large does an outbreak become?

Every infected person infects nobody, one or two others; the simulator stops after three generations. Any
program can take its place, if it makes its random choices by calling `choose`. Run it with
`python examples/simulator.py`.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor

import swor
from swor.samplers.programs import Choose

GENERATIONS, RUNS = 3, 20
SHARES = torch.tensor([0.6, 0.25, 0.15], dtype=torch.float64)  # infect nobody, one, two


def outbreak(choose: Choose, log_probs: Tensor) -> float:
    """The number of people infected, by as many choices as it takes."""
    newest = total = 1
    for _ in range(GENERATIONS):
        newest = sum(choose(log_probs) for _ in range(newest))
        total += newest
    return float(total)


def main(repeats: int = 200) -> None:
    logits = SHARES.log().requires_grad_()
    generator = torch.Generator().manual_seed(0)

    def runs() -> swor.DistinctRuns[float]:
        return swor.DistinctRuns(
            lambda choose: outbreak(choose, logits.log_softmax(-1)), generator=generator
        )

    every = runs()
    every.draw_until(coverage=1.0)
    exact = swor.unordered_set(every.sample()).mean(every.costs()).item()
    print(f"all {every.k} possible runs: expected size {exact:.4f}")

    def independently(log_probs: Tensor) -> int:
        return int(torch.multinomial(log_probs.exp(), 1, generator=generator))

    errors: dict[str, list[float]] = {"independent": [], "distinct": []}
    log_probs = SHARES.log()
    for _ in range(repeats):
        sizes = [outbreak(independently, log_probs) for _ in range(RUNS)]
        errors["independent"].append(sum(sizes) / RUNS - exact)
        some = runs()
        some.draw(RUNS)
        errors["distinct"].append(
            swor.unordered_set(some.sample()).mean(some.costs()).item() - exact
        )
    for name, differences in errors.items():
        error = torch.tensor(differences).square().mean().sqrt()
        print(f"{RUNS} {name} runs: root mean squared error {error:.4f}")

    loss = swor.unordered_set(some.sample()).loss(some.costs())
    loss.backward()
    covered = -torch.expm1(some.sample().log_rest).item()
    derivative = ", ".join(f"{x:.3f}" for x in logits.grad.tolist())
    print(f"the last {RUNS} distinct runs have {covered:.0%} of the probability mass")
    print(
        f"they estimate the size as {loss.item():.4f}, its derivative by the logits as {derivative}"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=200)
    main(parser.parse_args().repeats)
