"""The gain of distinct samples over independent ones, by the duplicates among independent ones.

The variance of a gradient is computed exactly, by a sum over all samples: that of RLOO over that of the
unordered set estimator with as many samples, for random policies from nearly uniform to nearly certain
and random costs. The page `docs/when_it_pays.md` discusses the result.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from torch import Tensor

import swor
from reproduction.harness.appearance import appearance
from reproduction.harness.drawing import legend_below, panels
from reproduction.harness.errors import check_at_least
from reproduction.harness.folder import open_folder

OUTCOMES = {2: [4, 12, 40, 150], 4: [6, 12, 24, 40], 8: [10, 13, 16, 18]}  # by k
BINS = (0.0, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
FEWEST = 8  # gains of a bin that is tabulated
TICKS = [1, 2, 5, 10, 20, 50, 100]


@dataclass(frozen=True, kw_only=True)
class WhenItPays:
    """Compute the gain of distinct samples against the share of duplicates, and draw it.

    Writes gains.csv, when_it_pays.png and settings.json, in about a minute.

    Attributes:
        policies: number of random policies for each number of outcomes.
        out: folder to write to; by default a new one in runs/.
    """

    policies: int = 60
    out: Path | None = None

    def __post_init__(self) -> None:
        check_at_least(self, 1, "policies")


def when_it_pays(settings: WhenItPays) -> Path:
    """Write the table and the figure, and return their folder."""
    folder = open_folder(settings, "when-it-pays", out=settings.out)
    generator = torch.Generator().manual_seed(0)
    rows = [row for k in OUTCOMES for row in quantiles(k, settings.policies, generator)]
    folder.write_csv("gains.csv", rows)
    folder.write_figure("when_it_pays.png", gain_figure(pd.DataFrame(rows)))
    print(f"The table and the figure are in {folder.path}")
    return folder.path


def policies(n: int, count: int, generator: torch.Generator) -> Tensor:
    """Draw log-probabilities of random policies over n outcomes, nearly uniform to nearly certain.

    Half of them are a softmax of noise; half have one outcome with much of the mass and a long tail.
    """
    logits = torch.randn(count, n, generator=generator, dtype=torch.float64)
    scale = torch.rand(count, 1, generator=generator, dtype=torch.float64)
    softmax = (8.0 * scale**2 * logits).log_softmax(-1)
    head = (0.98 * scale).expand(count, 1).log()
    tail = torch.log1p(-0.98 * scale) + (0.5 * logits[:, 1:]).log_softmax(-1)
    peaked = torch.cat([head, tail], dim=-1)
    return torch.where(torch.arange(count).unsqueeze(-1) % 2 == 0, softmax, peaked)


def costs(n: int, count: int, generator: torch.Generator) -> Tensor:
    """Draw costs, half of them real numbers, half of them right (0) or wrong (1), (count, n)."""
    numbers = torch.randn(count - count // 2, n, generator=generator, dtype=torch.float64)
    wrong = (torch.rand(count // 2, n, generator=generator) < 0.7).double()
    wrong[:, 0], wrong[:, 1] = 0.0, 1.0  # a cost that is the same for all has no gradient
    return torch.cat([numbers, wrong])


def duplicates(log_p: Tensor, k: int) -> Tensor:
    """Return the expected share of duplicates among k independent samples: 1 − E[distinct] / k."""
    return 1.0 + torch.expm1(k * torch.log1p(-log_p.exp())).sum(-1) / k


def variance_distinct(log_p: Tensor, cost: Tensor, k: int) -> Tensor:
    r"""Return the total variance of $\sum_s w_s (f_s - b_s) \nabla \log p_s$ over the logits, (costs,).

    The gradient of $\log p_s$ by the logits is $e_s - p$. It is centred before it is squared, since the
    variance of a nearly certain policy is far below the square of its mean.
    """
    sets = torch.tensor(list(combinations(range(len(log_p)), k)))
    total, mean = torch.zeros(len(cost), dtype=torch.float64), gradient(log_p, cost)
    for part in sets.split(5_000):
        sample = swor.Sample(part, log_p[part], scheme=swor.Scheme.WITHOUT_REPLACEMENT)
        weights, chance = swor.unordered_set(sample), swor.log_prob_set(log_p[part]).exp()
        slope = torch.stack([weights.weight * (f - weights.baseline(f)) for f in cost[:, part]])
        apart = -(slope.sum(-1, keepdim=True) * log_p.exp() + mean.unsqueeze(1))
        apart = apart.scatter_add(-1, part.expand_as(slope), slope)
        total += (chance * apart.square().sum(-1)).sum(-1)
    return total


def gradient(log_p: Tensor, cost: Tensor) -> Tensor:
    """Return the exact gradient of the expected cost by the logits, (costs, outcomes)."""
    p = log_p.exp()
    return p * (cost - (p * cost).sum(-1, keepdim=True))


def variance_independent(log_p: Tensor, cost: Tensor, k: int) -> Tensor:
    r"""Return the total variance of RLOO over the logits, (costs,).

    It is a mean over pairs of $h(x, y) = \frac12 (f_x - f_y) (e_x - e_y)$, so by Hoeffding its variance
    is $\frac{4 (k - 2)}{k (k - 1)} V[E[h | x]] + \frac{2}{k (k - 1)} V[h]$.
    """
    p, g = log_p.exp(), gradient(log_p, cost)
    mean = (p * cost).sum(-1, keepdim=True)
    apart = cost - mean
    spread = (p * apart.square()).sum(-1, keepdim=True)
    # E[h | x] = ½ ((f_x − mean) e_x − (f_x − mean) p + g), since E[f e] = g + mean · p
    own = apart**2 * (1.0 - 2.0 * p + p.square().sum())
    cross = 2.0 * apart * (g - (g * p).sum(-1, keepdim=True))
    given = 0.25 * (p * (own + cross)).sum(-1) + 0.25 * g.square().sum(-1)
    # |e_x − e_y|² = 2 where x ≠ y, and where x = y the factor (f_x − f_y)² is 0
    pair = 0.25 * 2.0 * 2.0 * spread.squeeze(-1)
    square = g.square().sum(-1)
    return 4 * (k - 2) / (k * (k - 1)) * (given - square) + 2 / (k * (k - 1)) * (pair - square)


def gains(k: int, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return shares of duplicates, and RLOO's variance over the other, (policies · costs,) each."""
    shares, ratios = [], []
    for n in OUTCOMES[k]:
        for log_p in policies(n, count, generator):
            cost = costs(n, 8, generator)
            ratio = variance_independent(log_p, cost, k) / variance_distinct(log_p, cost, k)
            shares.append(duplicates(log_p, k).expand_as(ratio))
            ratios.append(ratio)
    return torch.cat(shares), torch.cat(ratios)


def quantiles(k: int, count: int, generator: torch.Generator) -> list[dict[str, float]]:
    """Tabulate the mean share of every bin, and the 10th, 50th and 90th percentiles of the gain in it."""
    share, gain = gains(k, count, generator)
    rows = []
    for low, high in pairwise(BINS):
        inside = (share >= low) & (share < high)
        if inside.sum() >= FEWEST:
            levels = gain[inside].quantile(gain.new_tensor([0.1, 0.5, 0.9])).tolist()
            about = {"k": k, "duplicates": float(share[inside].mean())}
            rows.append(about | dict(zip(("gain_10", "gain_50", "gain_90"), levels, strict=True)))
    return rows


def gain_figure(rows: pd.DataFrame) -> Figure:
    """Plot the gain against the share of duplicates, in a panel for each k."""
    ks, look = rows["k"].unique(), appearance("unordered_set")
    figure, axes = panels(8.4, 4.0, columns=len(ks), sharey=True)
    d = np.linspace(0.0, 0.45, 50)
    for ax, k in zip(axes[0], ks, strict=True):
        mine = rows[rows["k"] == k]
        x, band = 100.0 * mine["duplicates"], (mine["gain_10"], mine["gain_90"])
        ax.fill_between(x, *band, color=look.colour, alpha=0.2, linewidth=0, label="10 % to 90 %")
        ax.plot(x, mine["gain_50"], "o-", color=look.colour, markersize=4, label="median")
        ax.plot(100.0 * d, 1.0 / (1.0 - 2.0 * d), "k--", linewidth=1, label="1 / (1 − 2d)")
        ax.set(title=f"k = {k}", xlabel="duplicates d (%)", yscale="log", xlim=(0, 90))
        ax.set_ylim(0.9, 100)
    axes[0, 0].set_ylabel("variance of RLOO ÷\nthat of unordered set")
    axes[0, 0].set_yticks(TICKS, [str(tick) for tick in TICKS])
    axes[0, 0].minorticks_off()
    legend_below(figure, axes[0, 0], columns=3)
    return figure
