"""The tables of the gradient variance during training: ratios to RLOO, and their form in Markdown."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd

from reproduction.harness.appearance import appearance
from reproduction.harness.statistics import with_error
from reproduction.harness.tables import markdown
from reproduction.tsp.measurement_settings import TSPVariance

USUAL = appearance("rloo").label
GAIN = f"Variance of {USUAL} ÷ variance of the estimator"
MISSING = "–"  # an estimator that was not measured on a model
NOT_RANDOM = "∞"  # an estimator without variance
POLICY = {
    "log_p": "mean log p of a tour",
    "duplicates": "duplicates (%)",
    "length": "mean length",
    "greedy_length": "mean length, greedy",
    "variance": f"variance of {USUAL}",
    "squared_gradient": "squared norm of the gradient",
}
"""Columns of ``policies.csv`` and the variance of RLOO: how they are named."""


def with_ratios(measured: pd.DataFrame) -> pd.DataFrame:
    """Compare with RLOO on the same model, with standard errors.

    The gain is the variance of RLOO ÷ that of the estimator, infinite if the estimator is not random. The
    squared bias is divided by the variance of RLOO.
    """
    rloo = measured["estimator"] == "rloo"
    usual = measured[rloo].set_index("step")
    variance, error = (measured["step"].map(usual[f"variance{x}"]) for x in ("", "_error"))
    gain = variance / measured["variance"]  # a number over 0 is infinite
    gain_error = np.hypot(error, gain * measured["variance_error"]) / measured["variance"]
    bias = measured["squared_bias"] / variance
    bias_error = np.hypot(measured["squared_bias_error"], bias * error) / variance
    return measured.assign(
        gain=gain,
        gain_error=gain_error.mask(rloo, 0.0),  # a number over itself
        relative_squared_bias=bias,
        relative_squared_bias_error=bias_error,
    )


def variance_tables(
    settings: TSPVariance,
    measured: pd.DataFrame,
    policies: pd.DataFrame,
    names: Mapping[int, str] | None = None,
) -> str:
    """Return tables of the gain, the squared bias and the policies, with a column for every step.

    The names are those of columns that are not called by their step.
    """
    usual = measured[measured["estimator"] == "rloo"][["step", "variance", "variance_error"]]
    policies = policies.merge(usual, on="step").sort_values("step")
    header = [(names or {}).get(step, f"step {step}") for step in policies["step"]]
    size = f"{settings.batch_size} instances, {settings.k} tours of each"
    parts = [
        f"## {GAIN} ({size})\n",
        markdown(["estimator", *header], _ratios(settings, measured, "gain")),
        f"## Squared bias ÷ variance of {USUAL}\n",
        markdown(["estimator", *header], _ratios(settings, measured, "relative_squared_bias")),
        "## Policies\n",
        markdown(["independent tours", *header], _policies(policies)),
    ]
    return "\n".join(parts)


def _ratios(settings: TSPVariance, measured: pd.DataFrame, column: str) -> list[list[str]]:
    numbers = zip(measured[column], measured[f"{column}_error"], strict=True)
    cells = measured.assign(cell=[_cell(*number) for number in numbers])
    table = cells.pivot(index="estimator", columns="step", values="cell").fillna(MISSING)
    return [[appearance(name).label, *table.loc[name]] for name in settings.estimators]


def _cell(ratio: float, error: float) -> str:
    return NOT_RANDOM if math.isinf(ratio) else with_error(ratio, error)


def _policies(policies: pd.DataFrame) -> list[list[str]]:
    shares = ["duplicates", "duplicates_error"]
    rows = policies.assign(**(100.0 * policies[shares]))
    lines = []
    for column, name in POLICY.items():
        cells = [f"{value:.3f}" for value in rows[column]]
        if f"{column}_error" in rows:
            cells = list(map(with_error, rows[column], rows[f"{column}_error"]))
        lines.append([name, *cells])
    return lines
