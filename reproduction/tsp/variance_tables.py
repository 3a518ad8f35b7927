"""The tables of the gradient variance during training: ratios to RLOO, and their form in Markdown."""

from __future__ import annotations

import numpy as np
import pandas as pd

from reproduction.harness.appearance import appearance
from reproduction.harness.tables import markdown
from reproduction.tsp.settings import TSPVariance

USUAL = appearance("rloo").label
MISSING = "–"  # an estimator that was not measured on a model
POLICY = {
    "log_p": ("mean log p of a tour", "{:.3f} ± {:.1g}"),
    "duplicates": ("duplicates", "{:.1%} ± {:.1g}"),
    "length": ("mean length", "{:.3f}"),
    "greedy_length": ("mean length, greedy", "{:.3f}"),
    "variance": (f"variance of {USUAL}", "{:.3g} ± {:.1g}"),
    "squared_gradient": ("squared norm of the gradient", "{:.3g} ± {:.1g}"),
}
"""Columns of ``policies.csv`` and the variance of RLOO: how they are named and formatted."""


def with_ratios(measured: pd.DataFrame) -> pd.DataFrame:
    """Add variance and squared bias over the variance of RLOO on the same model, with standard errors."""
    rloo = measured["estimator"] == "rloo"
    usual = measured[rloo].set_index("step")
    variance, variance_error = (measured["step"].map(usual[f"variance{x}"]) for x in ("", "_error"))
    for name in ("variance", "squared_bias"):
        ratio = measured[name] / variance
        error = np.hypot(measured[f"{name}_error"], ratio * variance_error) / variance
        error = error.mask(rloo & (name == "variance"), 0.0)  # a number over itself
        measured = measured.assign(**{f"relative_{name}": ratio, f"relative_{name}_error": error})
    return measured


def variance_tables(settings: TSPVariance, measured: pd.DataFrame, policies: pd.DataFrame) -> str:
    """Return tables of the variance, the squared bias and the policies, with a column for every step."""
    usual = measured[measured["estimator"] == "rloo"][["step", "variance", "variance_error"]]
    policies = policies.merge(usual, on="step").sort_values("step")
    header = [f"step {step}" for step in policies["step"]]
    size = f"{settings.batch_size} instances, {settings.k} tours of each"
    parts = [
        f"## Variance, over that of {USUAL} ({size})\n",
        markdown(["estimator", *header], _ratios(settings, measured, "relative_variance")),
        f"## Squared bias, over the variance of {USUAL}\n",
        markdown(["estimator", *header], _ratios(settings, measured, "relative_squared_bias")),
        "## Policies\n",
        markdown(["independent tours", *header], _policies(policies)),
    ]
    return "\n".join(parts)


def _ratios(settings: TSPVariance, measured: pd.DataFrame, column: str) -> list[list[str]]:
    numbers = zip(measured[column], measured[f"{column}_error"], strict=True)
    cells = measured.assign(cell=[f"{ratio:.3g} ± {error:.1g}" for ratio, error in numbers])
    table = cells.pivot(index="estimator", columns="step", values="cell").fillna(MISSING)
    return [[appearance(name).label, *table.loc[name]] for name in settings.estimators]


def _policies(policies: pd.DataFrame) -> list[list[str]]:
    rows = policies.assign(duplicates_error=100.0 * policies["duplicates_error"])
    lines = []
    for column, (name, form) in POLICY.items():
        errors = rows.get(f"{column}_error", rows[column])  # unused where the form has one place
        lines.append([name, *map(form.format, rows[column], errors)])
    return lines
