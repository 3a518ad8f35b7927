"""The table and the figure of the gradient variance during training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from reproduction.harness.appearance import appearance
from reproduction.harness.tables import markdown
from reproduction.tsp.settings import TSPVariance
from reproduction.tsp.task import TOUR_ESTIMATORS
from reproduction.tsp.variance import PolicyRow, VarianceRow, with_ratios

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

USUAL = appearance("rloo").label
MISSING = "–"  # an estimator that was not measured on a model
PANELS = {
    "relative_variance": f"variance / variance of {USUAL}",
    "relative_squared_bias": f"squared bias / variance of {USUAL}",
}


def variance_table(
    settings: TSPVariance, measured: Sequence[VarianceRow], policies: Sequence[PolicyRow]
) -> str:
    """Return tables of the variance, the squared bias and the policies, with a column for every step."""
    rows, steps = with_ratios(measured), sorted(p.step for p in policies)
    size = f"{settings.batch_size} instances, {settings.k} tours of each"
    parts = [
        f"## Variance, over that of {USUAL} ({size})\n",
        _ratio_table(rows, steps, "relative_variance", settings.estimators),
        f"## Squared bias, over the variance of {USUAL}\n",
        _ratio_table(rows, steps, "relative_squared_bias", settings.estimators),
        "## Policies\n",
        _policy_table(sorted(policies), {m.step: m for m in measured if m.estimator == "rloo"}),
    ]
    return "\n".join(parts)


def _ratio_table(
    rows: Sequence[Mapping[str, Any]], steps: Sequence[int], name: str, estimators: Sequence[str]
) -> str:
    cells = {(r["estimator"], r["step"]): f"{r[name]:.3g} ± {r[f'{name}_error']:.1g}" for r in rows}
    lines = [
        [appearance(estimator).label, *(cells.get((estimator, step), MISSING) for step in steps)]
        for estimator in estimators
    ]
    return markdown(["estimator", *(f"step {step}" for step in steps)], lines)


def _policy_table(policies: Sequence[PolicyRow], usual: Mapping[int, VarianceRow]) -> str:
    lines = {
        "mean log p of a tour": [f"{p.log_p:.3f} ± {p.log_p_error:.1g}" for p in policies],
        "duplicates": [f"{p.duplicates:.1%} ± {100 * p.duplicates_error:.1g}" for p in policies],
        "mean length": [f"{p.length:.3f}" for p in policies],
        "mean length, greedy": [f"{p.greedy_length:.3f}" for p in policies],
        f"variance of {USUAL}": [
            f"{usual[p.step].variance:.3g} ± {usual[p.step].variance_error:.1g}" for p in policies
        ],
        "squared norm of the gradient": [
            f"{p.squared_gradient:.3g} ± {p.squared_gradient_error:.1g}" for p in policies
        ],
    }
    header = ["independent tours", *(f"step {p.step}" for p in policies)]
    return markdown(header, [[name, *cells] for name, cells in lines.items()])


def variance_figure(
    measured: Sequence[VarianceRow], policies: Sequence[PolicyRow], trained_with: str
) -> Figure:
    """Plot variances and squared biases over the variance of RLOO, and the policies.

    Error bars are two standard errors. What is not above 0 by as much has no place on a logarithmic axis.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 9.6), layout="constrained")
    panels, rows = figure.subplots(3, 1, sharex=True), with_ratios(measured)
    for ax, (name, title) in zip(panels, PANELS.items(), strict=False):
        _ratio_panel(ax, rows, name)
        ax.set(title=title, yscale="log")
    _policy_panel(panels[2], sorted(policies))
    steps = sorted(p.step for p in policies)
    first = min((step for step in steps if step), default=1)
    panels[2].set_xscale("symlog", linthresh=first, linscale=0.5)  # 0 has a place too
    panels[2].set_xticks(steps, [f"{step}" for step in steps])
    panels[2].set_xticks([], minor=True)
    panels[2].set_xlabel(f"steps of training with {trained_with}")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=8)
    return figure


def _ratio_panel(ax: Axes, rows: Sequence[Mapping[str, Any]], name: str) -> None:
    there = {row["estimator"] for row in rows}
    shown = [n for n, e in TOUR_ESTIMATORS.items() if name == "relative_variance" or not e.unbiased]
    for estimator in [n for n in shown if n in there]:
        mine = [r for r in rows if r["estimator"] == estimator]
        mine = [r for r in mine if r[name] > 2.0 * r[f"{name}_error"]]
        mine.sort(key=lambda row: row["step"])
        look = appearance(estimator)
        ax.errorbar(
            [r["step"] for r in mine],
            [r[name] for r in mine],
            [2.0 * r[f"{name}_error"] for r in mine],
            label=look.label,
            color=look.colour,
            linestyle=look.line,
            marker=look.marker,
            markerfacecolor=look.face,
            markersize=5,
            linewidth=1.4,
        )
    ax.grid(alpha=0.25)


def _policy_panel(ax: Axes, policies: Sequence[PolicyRow]) -> None:
    steps = [p.step for p in policies]
    repeated, other = ax, ax.twinx()
    repeated.plot(steps, [p.duplicates for p in policies], "o-", color="#0072b2")
    repeated.set_ylabel("duplicates among k independent tours", color="#0072b2")
    repeated.set_ylim(0.0, 1.1 * max(p.duplicates for p in policies) or 1.0)
    other.plot(steps, [p.log_p for p in policies], "s--", color="#d55e00")
    other.set_ylabel("mean log p of a tour", color="#d55e00")
    repeated.grid(alpha=0.25)
