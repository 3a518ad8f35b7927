"""Exact variances of estimates of the best of m and of log P, from distinct and from independent samples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
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
from swor.diagnostics.all_samples import all_samples

OUTCOMES, M, SIZES = 10, 3, range(3, 10)
ENTROPY = {"high": 0.3, "low": 3.0}  # the spread of the logits
VALUES = ("distinct", "none")  # all estimates from independent samples have the same value


@dataclass(frozen=True, kw_only=True)
class BestOfVariance:
    """Compute exact variances of estimates of the best of 3 by enumeration, and draw them.

    Writes variances.csv, best_of.png and settings.json; and, for the log of the probability of success,
    log_success.csv and the table log_success.md.

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
    successes = list(success_variances())
    folder.write_csv("log_success.csv", successes)
    folder.write_text("log_success.md", success_table(pd.DataFrame(successes)))
    print(f"The table and the figure are in {folder.path}")
    return folder.path


def policies() -> tuple[dict[str, Tensor], Tensor]:
    """Return the log-probabilities of a policy of high and of one of low entropy, and all values."""
    generator = torch.Generator().manual_seed(1)
    noise = torch.randn(OUTCOMES, generator=generator, dtype=torch.float64)
    f = torch.randperm(OUTCOMES, generator=generator).double() / (OUTCOMES - 1)
    return {name: (scale * noise).log_softmax(-1) for name, scale in ENTROPY.items()}, f


def variances() -> Iterator[dict[str, object]]:
    """Compute the rows of the table, for both policies."""
    both, f = policies()
    for entropy, log_probs in both.items():
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
    return _moments(loss, sample, chance, log_probs)


def success_variances() -> Iterator[dict[str, object]]:
    """Compute the variances of estimates of log P up to the order k − 1, where two outcomes succeed."""
    both, f = policies()
    success = (f >= f.sort().values[-2]).double()
    for entropy, log_probs in both.items():
        for name, k in product(("distinct", "maxrl"), SIZES):
            sample, chance = samples(log_probs, k, distinct=name == "distinct")
            given = success[sample.value]
            if name == "distinct":
                loss = swor.log_success(sample, k - 1).loss(given)
            else:
                loss = swor.log_success_independent(sample, given)
            value, gradient = _moments(loss, sample, chance, log_probs)
            about = {"entropy": entropy, "estimator": name, "k": k}
            yield about | {"value_variance": value, "gradient_variance": gradient}


def success_table(rows: pd.DataFrame) -> str:
    """Return the table of the documentation: the variance of the gradient, by the number of samples."""
    table = rows.pivot(index="k", columns=["entropy", "estimator"], values="gradient_variance")
    columns = list(product(ENTROPY, ("distinct", "maxrl")))
    names = {"distinct": "distinct", "maxrl": "MaxRL"}
    heads = ["k", *(f"{names[name]}, {entropy} entropy" for entropy, name in columns)]
    body = [[str(k), *(f"{row[c]:.3g}" for c in columns)] for k, row in table.iterrows()]
    lines = [heads, ["---:"] * len(heads), *body]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _moments(
    loss: Tensor, sample: swor.Sample, chance: Tensor, log_probs: Tensor
) -> tuple[float, float]:
    (by_sample,) = torch.autograd.grad(loss.sum(), sample.log_p)
    n = len(log_probs)
    by_outcome = torch.zeros(len(loss), n, dtype=log_probs.dtype)
    by_outcome = by_outcome.scatter_add(-1, sample.value, by_sample)
    score = torch.eye(n, dtype=log_probs.dtype) - log_probs.exp()
    return _variance(loss.detach().unsqueeze(-1), chance), _variance(by_outcome @ score, chance)


def samples(log_probs: Tensor, k: int, *, distinct: bool) -> tuple[swor.Sample, Tensor]:
    """Return every set or multiset of k outcomes, differentiable by its log-probabilities, and its chance."""
    scheme = swor.Scheme.WITHOUT_REPLACEMENT if distinct else swor.Scheme.WITH_REPLACEMENT
    drawn = all_samples(log_probs, k, scheme, ordered=False, kappa=False)
    drawn.sample.log_p.requires_grad_()
    return drawn.sample, drawn.probability


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
