"""The whole loss, forward and backward, over a hand-written RLOO loss."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from statistics import median

import torch
from measure import report, timings
from operations import BATCH, counted, plain

import swor

Loss = Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor]


def unordered(logits: torch.Tensor, table: torch.Tensor, k: int) -> torch.Tensor:
    """The unordered set estimator."""
    sample = swor.gumbel_top_k(logits.log_softmax(-1), k)
    return swor.unordered_set(sample).loss(table.gather(-1, sample.value)).mean()


def rloo(logits: torch.Tensor, table: torch.Tensor, k: int) -> torch.Tensor:
    """The same plain loss through the library."""
    sample = swor.with_replacement(logits.log_softmax(-1), k)
    return swor.rloo(sample).loss(table.gather(-1, sample.value)).mean()


def softmax_alone(logits: torch.Tensor, table: torch.Tensor, k: int) -> torch.Tensor:
    """No sampling: the normalised logits and their gradient, which every such loss needs."""
    return logits.log_softmax(-1)[:, :k].mean()


def exponentials(logits: torch.Tensor, table: torch.Tensor, k: int) -> torch.Tensor:
    """One exponential per outcome, which every sampler needs."""
    return logits.detach().exp()


def noise_and_top_k(logits: torch.Tensor, table: torch.Tensor, k: int) -> torch.Tensor:
    """A number per outcome and the k + 1 largest of them, which every race of all outcomes needs."""
    return torch.rand(logits.shape, dtype=torch.float64).topk(k + 1).values


def sampler(logits: torch.Tensor, table: torch.Tensor, k: int) -> torch.Tensor:
    """The sampler, and the softmax before it."""
    return swor.gumbel_top_k(logits.detach().log_softmax(-1), k).log_p


def sampler_and_rule(logits: torch.Tensor, table: torch.Tensor, k: int) -> torch.Tensor:
    """The softmax, the sampler and the rule: what is left of the loss is the surrogate and its gradient."""
    return swor.unordered_set(swor.gumbel_top_k(logits.detach().log_softmax(-1), k)).weight


def losses(outcomes: int) -> dict[str, Loss]:
    """The losses to time, and the limits beside them; compiled ones up to 1000 outcomes."""
    named = {"plain": plain, "rloo": rloo, "unordered": unordered}
    if outcomes <= 1000:
        torch.compiler.reset()  # so that k is a constant, as it is in a program
        named["compiled"] = torch.compile(unordered, fullgraph=True)
    parts = {"sampler": sampler, "sampler and rule": sampler_and_rule}
    limits = {
        "softmax alone": softmax_alone,
        "exponentials": exponentials,
        "noise and top-k": noise_and_top_k,
    }
    return named | parts | limits


def step(loss: Loss, logits: torch.Tensor, table: torch.Tensor, k: int) -> None:
    """A loss, and its gradient if it has one."""
    logits.grad = None
    result = loss(logits, table, k)
    if result.requires_grad:
        result.backward()


def ratios(named: dict[str, Loss], n: int, k: int) -> dict[str, float]:
    """The time of each loss over that of the first, after the time of the first in milliseconds.

    Only two alternate at a time, since what runs before a loss may slow it down.
    """
    logits, table = torch.randn(BATCH, n, requires_grad=True), torch.rand(BATCH, n)
    ways = {name: partial(step, loss, logits, table, k) for name, loss in named.items()}
    first, *others = named
    pairs = {x: timings({first: ways[first], x: ways[x]}, repeats=200) for x in others}
    base = median(pair[first].median for pair in pairs.values())
    over = {f"{x} / {first}": pair[x].median / pair[first].median for x, pair in pairs.items()}
    return {f"{first} ms": base * 1e3} | over


def operations(n: int, k: int) -> dict[str, int]:
    """The dispatched operations of both losses, forward and backward."""
    logits, table = torch.randn(BATCH, n, requires_grad=True), torch.rand(BATCH, n)
    named = {"plain": plain, "unordered": unordered}
    for loss in named.values():
        step(loss, logits, table, k)  # what a first call makes
    return {
        f"{name}, operations": counted(partial(step, loss, logits, table, k))[1]
        for name, loss in named.items()
    }


def without_checks(n: int, k: int) -> dict[str, float]:
    """The unordered set estimator without checks of values, which a switch for the process turns off."""
    swor.set_validate_values(False)
    found = ratios({"plain": plain, "unchecked": unordered}, n, k)
    swor.set_validate_values(True)
    return {"unchecked / plain": found["unchecked / plain"]}


def main() -> None:
    """Ratios for the sizes of a policy over many actions."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--outcomes", type=int, nargs="+", default=[100, 1000, 10_000])
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, object]] = [
        {"outcomes": n, "k": k} | ratios(losses(n), n, k) | without_checks(n, k) | operations(n, k)
        for n in given.outcomes
        for k in (4, 8, 16)
    ]
    report(f"Loss forward and backward, batch {BATCH}, float32", rows, "estimators")


if __name__ == "__main__":
    main()
