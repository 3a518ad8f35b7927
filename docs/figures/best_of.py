"""Exact variances of estimates of the best of m, from distinct and from independent samples.

Writes docs/assets/best_of.png. Run it with `python docs/figures/best_of.py`; it needs matplotlib.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations, combinations_with_replacement
from math import factorial
from pathlib import Path
from typing import NamedTuple

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

import swor

OUTPUT = Path(__file__).parent.parent / "assets" / "best_of.png"
OUTCOMES, M, SIZES = 10, 3, range(3, 10)
ENTROPY = {"high entropy": 0.3, "low entropy": 3.0}  # the spread of the logits


class Curve(NamedTuple):
    """An estimator, and how it is drawn; colours of Okabe and Ito (2008)."""

    label: str
    make: Callable[[swor.Sample], object]
    smallest_k: int
    colour: str
    marker: str
    distinct: bool = False


def independent(baseline: str) -> Callable[[swor.Sample], object]:
    return lambda sample: swor.best_of_independent(sample, M, baseline=baseline)


CURVES = [
    Curve("distinct (best_of)", lambda s: swor.best_of(s, M), M, "#0072B2", "o", True),
    Curve("independent, centred", independent("centred"), M + 1, "#009E73", "v"),
    Curve("independent, PKPO equation (33)", independent("fewer"), M, "#E69F00", "^"),
    Curve("independent, PKPO equation (29)", independent("leave_one_out"), M + 1, "#D55E00", "D"),
    Curve("independent, no baseline (Chen et al.)", independent("none"), M, "#000000", "s"),
]


def samples(log_probs: Tensor, k: int, *, distinct: bool) -> tuple[swor.Sample, Tensor]:
    """Every set or multiset of k outcomes, and its probability."""
    n = len(log_probs)
    rows = combinations(range(n), k) if distinct else combinations_with_replacement(range(n), k)
    value = torch.tensor(list(rows))
    log_p = log_probs[value].requires_grad_()
    if distinct:
        outside = torch.ones(len(value), n, dtype=torch.bool).scatter(-1, value, False)
        log_rest = log_probs.where(outside, -torch.inf).logsumexp(-1)
        sample = swor.Sample(value, log_p, log_rest, scheme="without_replacement")
        return sample, swor.log_prob_set(log_p, log_rest).exp()
    counts = torch.nn.functional.one_hot(value, n).sum(-2)
    ways = torch.tensor([factorial(k) / _factorials(row) for row in counts.tolist()])
    sample = swor.Sample(value, log_p, scheme=swor.Scheme.WITH_REPLACEMENT)
    return sample, ways.to(log_p.dtype) * log_p.sum(-1).exp()


def _factorials(counts: list[int]) -> int:
    product = 1
    for count in counts:
        product *= factorial(count)
    return product


def variances(curve: Curve, log_probs: Tensor, f: Tensor, k: int) -> tuple[float, float]:
    """Of the value, and of the gradient by the logits in total."""
    sample, probability = samples(log_probs, k, distinct=curve.distinct)
    loss = curve.make(sample).loss(f[sample.value])
    (by_sample,) = torch.autograd.grad(loss.sum(), sample.log_p)
    by_outcome = torch.zeros(len(loss), len(f), dtype=f.dtype)
    by_outcome = by_outcome.scatter_add(-1, sample.value, by_sample)
    score = torch.eye(len(f), dtype=f.dtype) - log_probs.exp()
    spreads = (
        _variance(x.detach(), probability.detach())
        for x in (loss.unsqueeze(-1), by_outcome @ score)
    )
    value, gradient = spreads
    return value, gradient


def _variance(x: Tensor, probability: Tensor) -> float:
    centred = x - probability @ x
    return float((probability @ centred.square()).sum())


def measured(
    log_probs: Tensor, f: Tensor
) -> Iterator[tuple[Curve, list[tuple[int, float, float]]]]:
    """Every curve with its k, the variance of the value and that of the gradient."""
    for curve in CURVES:
        sizes = [k for k in SIZES if k >= curve.smallest_k]
        yield curve, [(k, *variances(curve, log_probs, f, k)) for k in sizes]


def panels(value: Axes, gradient: Axes, log_probs: Tensor, f: Tensor) -> None:
    for curve, points in measured(log_probs, f):
        style = {"color": curve.colour, "marker": curve.marker, "markersize": 5}
        ks = [point[0] for point in points]
        gradient.plot(ks, [point[2] for point in points], label=curve.label, **style)
        print(curve.label, *(f"k={k}: {v:.2e} {g:.2e}" for k, v, g in points), sep="  ")
        if curve.distinct or "Chen" in curve.label:  # the others have the same value
            value.plot(ks, [point[1] for point in points], **style)


def main() -> None:
    torch.set_default_dtype(torch.float64)
    generator = torch.Generator().manual_seed(1)
    noise = torch.randn(OUTCOMES, generator=generator)
    f = torch.randperm(OUTCOMES, generator=generator) / (OUTCOMES - 1)
    figure = Figure(figsize=(9.0, 7.0), layout="constrained")
    axes = figure.subplots(2, 2, sharex=True)
    for column, (title, scale) in enumerate(ENTROPY.items()):
        value, gradient = axes[0][column], axes[1][column]
        panels(value, gradient, (scale * noise).log_softmax(-1), f)
        value.set_title(title)
        gradient.set_xlabel(f"samples k, of {OUTCOMES} outcomes")
        for ax in (value, gradient):
            ax.set_yscale("log")
            ax.grid(alpha=0.25)
    axes[0][0].set_ylabel(f"variance of the estimate of $J_{M}$")
    axes[1][0].set_ylabel(rf"variance of the estimate of $\nabla J_{M}$")
    handles, labels = axes[1][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    figure.savefig(OUTPUT, dpi=150)


if __name__ == "__main__":
    main()
