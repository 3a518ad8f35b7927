"""The tables of the gradient variance during training, in Markdown."""

from __future__ import annotations

import pandas as pd

from reproduction.harness.appearance import appearance
from reproduction.harness.tables import markdown
from reproduction.tsp.figures import USUAL
from reproduction.tsp.settings import TSPVariance

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


def variance_tables(settings: TSPVariance, measured: pd.DataFrame, policies: pd.DataFrame) -> str:
    """Return tables of the variance, the squared bias and the policies, with a column for every step."""
    steps = sorted(policies["step"])
    header = [f"step {step}" for step in steps]
    usual = measured[measured["estimator"] == "rloo"][["step", "variance", "variance_error"]]
    size = f"{settings.batch_size} instances, {settings.k} tours of each"
    parts = [
        f"## Variance, over that of {USUAL} ({size})\n",
        _ratios(settings, measured, "relative_variance", header),
        f"## Squared bias, over the variance of {USUAL}\n",
        _ratios(settings, measured, "relative_squared_bias", header),
        "## Policies\n",
        _policies(policies.merge(usual, on="step").sort_values("step"), header),
    ]
    return "\n".join(parts)


def _ratios(settings: TSPVariance, measured: pd.DataFrame, column: str, header: list[str]) -> str:
    cells = {
        (
            row["estimator"],
            f"step {row['step']}",
        ): f"{row[column]:.3g} ± {row[f'{column}_error']:.1g}"
        for row in measured.to_dict("records")
    }
    lines = [
        [appearance(name).label, *(cells.get((name, step), MISSING) for step in header)]
        for name in settings.estimators
    ]
    return markdown(["estimator", *header], lines)


def _policies(policies: pd.DataFrame, header: list[str]) -> str:
    rows = policies.assign(duplicates_error=100.0 * policies["duplicates_error"])
    lines = []
    for column, (name, form) in POLICY.items():
        errors = rows.get(f"{column}_error", rows[column])  # unused where the form has one place
        lines.append([name, *map(form.format, rows[column], errors)])
    return markdown(["independent tours", *header], lines)
