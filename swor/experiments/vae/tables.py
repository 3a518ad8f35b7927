"""Table 1 beside the paper's, and the figure of the variance during training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from swor.experiments.vae.published import Domain, label, paper_log_variance, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Measurement(NamedTuple):
    """The log-variance of an estimator on a model: a row of ``variance.csv``."""

    epoch: int
    estimator: str
    k: int
    evaluations: int
    part: str
    log_variance: float
    standard_error: float
    repetitions: int


class Row(NamedTuple):
    """Which k an estimator has in each of the three comparisons."""

    estimator: str
    paper_k: int
    equal_k: int
    equal_evaluations: int


def markdown(rows: Sequence[Row], measured: Sequence[Measurement], domain: Domain) -> str:
    """The table, with standard errors, beside the paper's figures where it has them."""
    by_key = {(m.estimator, m.k, m.part): m for m in measured}
    lines = [
        "| estimator | k (evaluations) | encoder | paper | decoder | both | encoder, equal k "
        "| encoder, equal evaluations |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        parts = [
            by_key[row.estimator, row.paper_k, part] for part in ("encoder", "decoder", "both")
        ]
        published = paper_log_variance(row.estimator, domain)
        others = [by_key[row.estimator, k, "encoder"] for k in (row.equal_k, row.equal_evaluations)]
        cells = [
            label(row.estimator),
            f"{row.paper_k} ({parts[0].evaluations})",
            _cell(parts[0]),
            "" if published is None else f"{published:.2f}",
            _cell(parts[1]),
            _cell(parts[2]),
            *(f"{_cell(m)}, k = {m.k} ({m.evaluations})" for m in others),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(measurement: Measurement) -> str:
    digits = 2 if measurement.standard_error >= 0.01 else 3
    return f"{measurement.log_variance:.{digits}f} ± {measurement.standard_error:.{digits}f}"


def variance_figure(
    rows: Sequence[Row], measured: Sequence[Measurement], trained_with: str
) -> Figure:
    """The encoder's log-variance during training, legend sorted by the last value."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 4.6), layout="constrained")
    ax = figure.subplots()
    curves = []
    for row in rows:
        mine = [
            m
            for m in measured
            if (m.estimator, m.k, m.part) == (row.estimator, row.paper_k, "encoder")
        ]
        curves.append((mine[-1].log_variance, row, sorted(mine)))
    for last, row, mine in sorted(curves, reverse=True):
        look = style(row.estimator)
        # A model may leave nothing to chance: then there is no point, and the line is broken.
        heights = [m.log_variance if m.log_variance > -math.inf else math.nan for m in mine]
        ax.errorbar(
            [m.epoch for m in mine],
            heights,
            [2.0 * m.standard_error for m in mine],
            label=f"{label(row.estimator)}, k = {row.paper_k}: {last:.2f}",
            color=look.colour,
            linestyle=look.line,
            marker="o",
            markersize=3,
            linewidth=1.4,
        )
    ax.set_xlabel(f"epochs of training with {trained_with}")
    ax.set_ylabel("log-variance of the encoder's gradient")
    ax.grid(alpha=0.25)
    figure.legend(loc="outside right upper", fontsize=8)
    return figure
