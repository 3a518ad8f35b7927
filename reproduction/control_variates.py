"""What distinct samples and a control variate are worth, by the entropy, as exact variances.

The variance of a gradient is a sum over all samples of a small product domain with a smooth cost: that of
RLOO and of the unordered set estimator, each without a control variate and with the additive one that
explains the most of the cost. The page `docs/control_variates.md` discusses the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import torch
from matplotlib.figure import Figure
from torch import Tensor
from torch.distributions import Independent, OneHotCategorical

import swor
from reproduction.harness.appearance import appearance
from reproduction.harness.drawing import legend_below, panels
from reproduction.harness.errors import check_at_least
from reproduction.harness.folder import open_folder
from swor.diagnostics.enumeration import exact_moments
from swor.samplers.distributions import support

VARIABLES, CATEGORIES, K = 3, 3, 3
ENTROPIES = torch.linspace(0.4, 3.2, 15, dtype=torch.float64)  # at most log 27 = 3.30
NAMES = ("rloo", "unordered_set", "rloo_additive", "unordered_set_additive")


@dataclass(frozen=True, kw_only=True)
class ControlVariates:
    """Compute exact variances with and without distinct samples and a control variate, and draw them.

    Writes variances.csv, control_variates.png and settings.json, in about a minute.

    Attributes:
        problems: number of random distributions and costs.
        out: folder to write to; by default a new one in runs/.
    """

    problems: int = 10
    out: Path | None = None

    def __post_init__(self) -> None:
        check_at_least(self, 1, "problems")


def control_variates(settings: ControlVariates) -> Path:
    """Write the table and the figure, and return their folder."""
    folder = open_folder(settings, "control-variates", out=settings.out)
    rows = [row for problem in range(settings.problems) for row in variances(problem)]
    folder.write_csv("variances.csv", rows)
    folder.write_figure("control_variates.png", variance_figure(pd.DataFrame(rows)))
    print(f"The table and the figure are in {folder.path}")
    return folder.path


def variances(problem: int) -> Iterator[dict[str, object]]:
    """Compute the exact variances of all four estimators on a random problem, at every entropy."""
    generator = torch.Generator().manual_seed(problem)
    shape = (VARIABLES, CATEGORIES)
    direction, effects = torch.randn(2, *shape, generator=generator, dtype=torch.float64)

    def f(x: Tensor) -> Tensor:
        return torch.nn.functional.softplus(2.0 * (x * effects).sum((-1, -2)))

    for entropy in ENTROPIES:
        logits = with_entropy(direction, float(entropy)).requires_grad_()
        dist = Independent(OneHotCategorical(logits=logits), 1)
        residual = without_additive(f, dist)
        for name in NAMES:
            rule, scheme = (
                (swor.rloo, "with_replacement")
                if name.startswith("rloo")
                else (swor.unordered_set, "without_replacement")
            )
            cost = residual if name.endswith("additive") else f
            options = {"ordered": False, "kappa": False}
            moments = exact_moments(rule, scheme, cost, dist, K, [logits], **options)
            about = {"problem": problem, "entropy": round(float(entropy), 4), "estimator": name}
            yield about | {"variance": float(moments.total_variance)}


def with_entropy(direction: Tensor, entropy: float) -> Tensor:
    """Return logits along a direction whose distribution has a given entropy, by bisection."""
    low, high = 0.0, 200.0
    for _ in range(100):
        middle = 0.5 * (low + high)
        log_p = (middle * direction).log_softmax(-1)
        larger = float(-(log_p.exp() * log_p).sum()) > entropy
        low, high = (middle, high) if larger else (low, middle)
    return low * direction


def without_additive(
    f: Callable[[Tensor], Tensor], dist: Independent[OneHotCategorical]
) -> Callable[[Tensor], Tensor]:
    """Return f − g, where g is the additive function that is closest to f in the mean square.

    The mean of g is constant in the sum over all samples, so the variance of f − g is that of the estimator.
    """
    domain = support(dist)
    root = domain.log_p.detach().mul(0.5).exp().unsqueeze(-1)
    x = domain.value.flatten(-2)
    table = torch.linalg.lstsq(
        root * x, root * f(domain.value).unsqueeze(-1), driver="gelsd"
    ).solution
    return lambda value: f(value) - (value.flatten(-2) @ table).squeeze(-1)


def variance_figure(rows: pd.DataFrame) -> Figure:
    """Plot the variances relative to that of RLOO, as means over the problems."""
    table = rows.pivot(index=["problem", "entropy"], columns="estimator", values="variance")
    mean = table.div(table["rloo"], axis=0).groupby("entropy").mean()
    figure, axes = panels(7.2, 4.8)
    ax = axes[0, 0]
    for name in NAMES:
        look = appearance(name)
        style = look.line_style | look.point_style | {"markersize": 5}
        ax.plot(mean.index, mean[name], label=look.label, **style)
    ax.set_yscale("log")
    ax.set_xlabel(f"entropy in nats, {VARIABLES} variables of {CATEGORIES} categories, k = {K}")
    ax.set_ylabel("variance of the gradient ÷ that of RLOO")
    legend_below(figure, ax)
    return figure
