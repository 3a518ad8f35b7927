"""Table 1 beside the paper's, and the figure of the variance during training."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

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


class Entry(NamedTuple):
    """A column of the paper's Table 1: its k there, and its figures by number of dimensions."""

    label: str
    k: int
    published: Mapping[int, float]
    colour: str  # of Okabe and Ito (2008), which colour-blind readers can tell apart
    line: str


PAPER = {
    "arsm": Entry("ARSM", 1, {2: 13.45, 20: 15.55}, "#CC79A7", "-"),
    "relax": Entry("RELAX", 1, {2: 11.67, 20: 15.86}, "#D55E00", "-"),
    "reinforce_no_baseline": Entry("REINFORCE, none", 1, {2: 11.52, 20: 13.81}, "#000000", ":"),
    "reinforce_shared_sample": Entry("REINFORCE, sampled", 1, {2: 7.49, 20: 8.48}, "#000000", "--"),
    "sum_and_sample": Entry("sum-and-sample, none", 4, {2: 6.29, 20: 13.77}, "#009E73", ":"),
    "sum_and_sample_shared_sample": Entry(
        "sum-and-sample, sampled", 4, {2: 6.29, 20: 8.44}, "#009E73", "--"
    ),
    "reinforce": Entry("REINFORCE w.r., built-in", 4, {2: 6.65, 20: 7.06}, "#000000", "-"),
    "unordered_set": Entry("unordered set, built-in", 4, {2: 6.29, 20: 7.05}, "#0072B2", "-"),
}
"""Table 1; k as the paper's released code has it, where single-sample estimators have k = 1."""


def label(estimator: str) -> str:
    """The name of an estimator in tables and legends."""
    return PAPER[estimator].label if estimator in PAPER else estimator.replace("_", " ")


class Style(NamedTuple):
    """Colour and line of an estimator."""

    colour: str
    line: str


def style(estimator: str) -> Style:
    """How an estimator is drawn; those that the table does not have are grey."""
    if estimator == "straight_through":
        return Style("#E69F00", "-")
    entry = PAPER.get(estimator)
    return Style(entry.colour, entry.line) if entry else Style("#888888", "-.")


class Row(NamedTuple):
    """Which k an estimator has in each of the three comparisons."""

    estimator: str
    paper_k: int
    equal_k: int
    equal_evaluations: int


def markdown(
    rows: Sequence[Row], measured: Sequence[Measurement], dims: int, *, mnist: bool
) -> str:
    """The table, with standard errors; for MNIST beside the paper's figures."""
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
        published = (
            PAPER[row.estimator].published.get(dims) if mnist and row.estimator in PAPER else None
        )
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
    return f"{measurement.log_variance:.2f} ± {measurement.standard_error:.2f}"


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
        some = [
            m for m in mine if m.log_variance > -math.inf
        ]  # a model may leave nothing to chance
        ax.errorbar(
            [m.epoch for m in some],
            [m.log_variance for m in some],
            [2.0 * m.standard_error for m in some],
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
