"""Exact variances of estimates of the best of m, from distinct and from independent samples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, combinations_with_replacement
from math import factorial, prod
from pathlib import Path
from typing import Literal

import pandas as pd
import torch
from matplotlib.figure import Figure
from torch import Tensor

import swor
from reproduction.harness.appearance import Appearance
from reproduction.harness.drawing import legend_below, panels
from reproduction.harness.folder import open_folder

OUTCOMES, M, SIZES = 10, 3, range(3, 10)
ENTROPY = {"high": 0.3, "low": 3.0}  # the spread of the logits
VALUES = ("distinct", "none")  # all estimates from independent samples have the same value


@dataclass(frozen=True, kw_only=True)
class BestOfVariance:
    """Compute exact variances of estimates of the best of 3 by enumeration, and draw them.

    Writes variances.csv, best_of.png and settings.json.

    Attributes:
        out: folder to write to; by default a new one in runs/.
    """

    out: Path | None = None


Name = Literal["distinct", "centred", "fewer", "leave_one_out", "none"]
LOOKS: dict[Name, Appearance] = {
    "distinct": Appearance("distinct", "#0072b2", "-", "o"),
    "centred": Appearance("independent, centred", "#008a64", "-", "v"),
    "fewer": Appearance("independent, PKPO equation (33)", "#e69f00", "-", "^"),
    "leave_one_out": Appearance("independent, PKPO equation (29)", "#d55e00", "-", "D"),
    "none": Appearance("independent, no baseline (Chen et al.)", "#000000", "-", "s"),
}
"""Distinct samples, and the baselines of independent ones."""
ONE_MORE: tuple[Name, ...] = ("centred", "leave_one_out")  # need a sample more than m


def best_of_variance(settings: BestOfVariance) -> Path:
    """Write the table and the figure, and return their folder."""
    folder = open_folder(settings, "best-of-variance", out=settings.out)
    rows = list(variances())
    folder.write_csv("variances.csv", rows)
    folder.write_figure("best_of.png", variance_figure(pd.DataFrame(rows)))
    print(f"The table and the figure are in {folder.path}")
    return folder.path


def variances() -> Iterator[dict[str, object]]:
    """Compute the rows of the table, for a policy of high and one of low entropy."""
    generator = torch.Generator().manual_seed(1)
    noise = torch.randn(OUTCOMES, generator=generator, dtype=torch.float64)
    f = torch.randperm(OUTCOMES, generator=generator).double() / (OUTCOMES - 1)
    for entropy, scale in ENTROPY.items():
        log_probs = (scale * noise).log_softmax(-1)
        for name in LOOKS:
            for k in SIZES[name in ONE_MORE :]:
                value, gradient = moments(name, log_probs, f, k)
                about = {"entropy": entropy, "estimator": name, "k": k}
                yield about | {"value_variance": value, "gradient_variance": gradient}


def moments(name: Name, log_probs: Tensor, f: Tensor, k: int) -> tuple[float, float]:
    """Return the variance of the value, and that of the gradient by the logits in total."""
    sample, chance = samples(log_probs, k, distinct=name == "distinct")
    if name == "distinct":
        loss = swor.best_of(sample, M).loss(f[sample.value])
    else:
        loss = swor.best_of_independent(sample, M, baseline=name).loss(f[sample.value])
    (by_sample,) = torch.autograd.grad(loss.sum(), sample.log_p)
    by_outcome = torch.zeros(len(loss), len(f), dtype=f.dtype)
    by_outcome = by_outcome.scatter_add(-1, sample.value, by_sample)
    score = torch.eye(len(f), dtype=f.dtype) - log_probs.exp()
    return _variance(loss.detach().unsqueeze(-1), chance), _variance(by_outcome @ score, chance)


def samples(log_probs: Tensor, k: int, *, distinct: bool) -> tuple[swor.Sample, Tensor]:
    """Return every set or multiset of k outcomes, and its probability."""
    n = len(log_probs)
    rows = combinations(range(n), k) if distinct else combinations_with_replacement(range(n), k)
    value = torch.tensor(list(rows))
    log_p = log_probs[value].requires_grad_()
    if distinct:
        outside = torch.ones(len(value), n, dtype=torch.bool).scatter(-1, value, False)
        log_rest = log_probs.where(outside, -torch.inf).logsumexp(-1)
        chance = swor.log_prob_set(log_p, log_rest).exp()
        scheme = swor.Scheme.WITHOUT_REPLACEMENT
        return swor.Sample(value, log_p, log_rest, scheme=scheme), chance.detach()
    counts = torch.nn.functional.one_hot(value, n).sum(-2).tolist()
    ways = log_p.new_tensor([factorial(k) / prod(map(factorial, row)) for row in counts])
    sample = swor.Sample(value, log_p, scheme=swor.Scheme.WITH_REPLACEMENT)
    return sample, ways * log_p.detach().sum(-1).exp()


def _variance(x: Tensor, chance: Tensor) -> float:
    return float((chance @ (x - chance @ x).square()).sum())


def variance_figure(rows: pd.DataFrame) -> Figure:
    """Plot the variances of values above those of gradients, for high and for low entropy."""
    figure, axes = panels(9.0, 7.0, 2, 2, sharex=True)
    for column, entropy in zip(axes.T, ENTROPY, strict=True):
        for ax, part in zip(column, ("value", "gradient"), strict=True):
            for name, look in LOOKS.items():
                mine = rows[(rows["entropy"] == entropy) & (rows["estimator"] == name)]
                if part == "gradient" or name in VALUES:
                    style = look.line_style | look.point_style | {"markersize": 5}
                    ax.plot(mine["k"], mine[f"{part}_variance"], label=look.label, **style)
            ax.set_yscale("log")
        column[0].set_title(f"{entropy} entropy")
        column[1].set_xlabel(f"samples k, of {OUTCOMES} outcomes")
    axes[0, 0].set_ylabel(f"variance of the estimate\nof the best of {M}")
    axes[1, 0].set_ylabel(f"variance of the gradient\nof the best of {M}")
    legend_below(figure, axes[1, 0], title="samples")
    return figure
