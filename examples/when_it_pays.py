"""How much distinct samples gain over independent ones, by the duplicates among independent ones.

The variance of a gradient is computed exactly, by a sum over all samples: that of the unordered set
estimator over that of RLOO with as many samples, for random policies from nearly
uniform to nearly certain and random costs. `docs/when_it_pays.md` says what it means for you. Run it
with `python examples/when_it_pays.py [--figure FILE.png]`.
"""

from __future__ import annotations

import argparse
from itertools import combinations, pairwise
from pathlib import Path

import torch
from torch import Tensor

import swor

OUTCOMES = {2: [4, 12, 40, 150], 4: [6, 12, 24, 40], 8: [10, 13, 16, 18]}  # by k
BINS = torch.tensor([0.0, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9])


def policies(n: int, count: int, generator: torch.Generator) -> Tensor:
    """Log-probabilities of random policies over n outcomes, from nearly uniform to nearly certain.

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
    """Half of them real numbers, half of them right (0) or wrong (1), (count, n)."""
    numbers = torch.randn(count - count // 2, n, generator=generator, dtype=torch.float64)
    wrong = (torch.rand(count // 2, n, generator=generator) < 0.7).double()
    wrong[:, 0], wrong[:, 1] = 0.0, 1.0  # a cost that is the same for all has no gradient
    return torch.cat([numbers, wrong])


def duplicates(log_p: Tensor, k: int) -> Tensor:
    """The expected share of duplicates among k independent samples: 1 − E[distinct] / k."""
    return 1.0 + torch.expm1(k * torch.log1p(-log_p.exp())).sum(-1) / k


def variance_distinct(log_p: Tensor, cost: Tensor, k: int) -> Tensor:
    r"""Total variance of $\sum_s w_s (f_s - b_s) \nabla \log p_s$ over the logits, (costs,)."""
    sets = torch.tensor(list(combinations(range(len(log_p)), k)))
    total = torch.zeros(len(cost), dtype=torch.float64)
    for part in sets.split(20_000):
        sample = swor.Sample(part, log_p[part], scheme="without_replacement")
        weights, chance = swor.unordered_set(sample), swor.log_prob_set(log_p[part]).exp()
        slope = torch.stack([weights.weight * (f - weights.baseline(f)) for f in cost[:, part]])
        total += (chance * squared_norm(slope, log_p[part].exp(), log_p)).sum(-1)
    return total - gradient(log_p, cost).square().sum(-1)


def squared_norm(slope: Tensor, p: Tensor, log_p: Tensor) -> Tensor:
    r"""$|\sum_s c_s (e_s - p)|^2$ of the gradients $e_s - p$ of $\log p_s$ by the logits."""
    sum_, all_p = slope.sum(-1), log_p.exp()
    return slope.square().sum(-1) - 2 * sum_ * (slope * p).sum(-1) + sum_**2 * all_p.square().sum()


def gradient(log_p: Tensor, cost: Tensor) -> Tensor:
    """The exact gradient of the expected cost by the logits, (costs, outcomes)."""
    p = log_p.exp()
    return p * (cost - (p * cost).sum(-1, keepdim=True))


def variance_independent(log_p: Tensor, cost: Tensor, k: int) -> Tensor:
    r"""Total variance of RLOO over the logits, (costs,).

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


def measure(k: int, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Shares of duplicates, and how many times smaller the variance is, (policies · costs,)."""
    shares, gains = [], []
    for n in OUTCOMES[k]:
        for log_p in policies(n, count, generator):
            cost = costs(n, 8, generator)
            gain = variance_independent(log_p, cost, k) / variance_distinct(log_p, cost, k)
            shares.append(duplicates(log_p, k).expand_as(gain))
            gains.append(gain)
    return torch.cat(shares), torch.cat(gains)


def bands(share: Tensor, gain: Tensor) -> list[tuple[float, Tensor]]:
    """The mean share of every bin, and the 10th, 50th and 90th percentiles of the gain in it."""
    found = []
    for low, high in pairwise(BINS):
        inside = (share >= low) & (share < high)
        if inside.sum() >= 8:
            levels = torch.tensor([0.1, 0.5, 0.9], dtype=gain.dtype)
            found.append((float(share[inside].mean()), gain[inside].quantile(levels)))
    return found


def draw(found: dict[int, list[tuple[float, Tensor]]], path: Path) -> None:
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(
        1, len(found), figsize=(10, 3.6), layout="constrained", sharey=True
    )
    for axes, (k, rows) in zip(panels, found.items(), strict=True):
        x = [100 * share for share, _ in rows]
        low, middle, high = torch.stack([gain for _, gain in rows], dim=-1).tolist()
        axes.fill_between(x, low, high, alpha=0.2, linewidth=0, label="10 % to 90 %")
        axes.plot(x, middle, "o-", markersize=4, label="median")
        d = torch.linspace(0.0, 0.45, 50)
        axes.plot(100 * d, 1 / (1 - 2 * d), "k--", linewidth=1, label="1 / (1 − 2d)")
        axes.set(title=f"k = {k}", xlabel="duplicates d (%)", yscale="log", xlim=(0, 90))
        axes.set_ylim(0.9, 100)
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("variance of REINFORCE\nover that of unordered set")
    panels[0].set_yticks([1, 2, 5, 10, 20, 50, 100], ["1", "2", "5", "10", "20", "50", "100"])
    panels[0].minorticks_off()
    panels[-1].legend(frameon=False, loc="lower right")
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main(count: int = 60, figure: Path | None = None) -> dict[int, list[tuple[float, Tensor]]]:
    generator = torch.Generator().manual_seed(0)
    found = {k: bands(*measure(k, count, generator)) for k in OUTCOMES}
    for k, rows in found.items():
        print(f"k = {k}: variance of REINFORCE over that of unordered set")
        for share, gain in rows:
            low, middle, high = gain.tolist()
            print(f"  {100 * share:5.1f} % duplicates  {middle:7.2f}  ({low:.2f} to {high:.2f})")
    if figure is not None:
        draw(found, figure)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=60, help="policies per number of outcomes")
    parser.add_argument("--figure", type=Path)
    given = parser.parse_args()
    main(given.count, given.figure)
