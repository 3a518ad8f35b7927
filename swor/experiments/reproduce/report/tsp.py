"""The part of the report on Figure 3, the travelling salesman."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from swor.experiments.reproduce.report.charts import Trace, colour, spec
from swor.experiments.reproduce.report.claims import Claim
from swor.experiments.reproduce.report.html import chart, paragraph, section, table
from swor.experiments.reproduce.report.numbers import read_csv
from swor.experiments.reproduce.report.published import (
    GREEDY_GAP,
    ON_PAR,
    WORSE_THAN_UNORDERED_SET,
)
from swor.experiments.runs.appearance import appearance
from swor.experiments.tsp.task import TOUR_ESTIMATORS

Rows = Sequence[Mapping[str, str]]


def figure3(folder: Path, nodes: int) -> tuple[str, list[Claim]]:
    """The gap during training, and who is ahead of whom."""
    rows, ranking = read_csv(folder / "gaps.csv"), read_csv(folder / "ranking.csv")
    return section(
        "figure3",
        f"Figure 3: the travelling salesman, {nodes} nodes",
        paragraph(
            "The optimality gap of greedy decoding on fixed validation instances, against exact "
            "optima. Every estimator has the same number of tours in a batch: single-sample "
            "estimators one tour of each instance, the others four. Biased estimators are dotted. "
            f"The paper's model, fully trained on 20 nodes, has a gap of {GREEDY_GAP} %."
        ),
        chart(
            "figure3",
            spec(gap_traces(rows), x="", y="gap (%)", log=True, views="Against"),
            "Gap during training; click on an estimator to hide it.",
            "Line chart: optimality gap of each estimator; the final ones are in the table below.",
        ),
        gap_table(rows, ranking),
    ), [ahead(rows, ranking, nodes), on_par(rows, ranking, nodes)]


def gap_traces(rows: Rows) -> list[Trace]:
    """A line for each run, against steps and against instances; without the untrained model."""
    traces = []
    for axis, view in (("steps", "training steps"), ("instances", "training instances")):
        for name, estimator in TOUR_ESTIMATORS.items():
            for seed in dict.fromkeys(row["seed"] for row in rows):
                mine = [
                    row
                    for row in rows
                    if (row["estimator"], row["seed"]) == (name, seed) and int(row["steps"]) > 0
                ]
                if not mine:
                    continue
                traces.append(
                    Trace(
                        appearance(name).label,
                        colour(name),
                        [int(row[axis]) for row in mine],
                        [float(row["gap"]) for row in mine],
                        view=view,
                        dash="solid" if estimator.unbiased else "dot",
                        text=[f"seed {seed}"] * len(mine),
                        error=[2.0 * float(row["gap_standard_error"]) for row in mine],
                    )
                )
    return traces


def last_gap(rows: Rows, name: str) -> tuple[float, float]:
    """The mean gap of an estimator at the end, and its standard error from the instances."""
    ends = {row["seed"]: row for row in rows if row["estimator"] == name}.values()
    gaps = [float(row["gap"]) for row in ends]
    errors = [float(row["gap_standard_error"]) for row in ends]
    return sum(gaps) / len(gaps), math.sqrt(sum(e * e for e in errors)) / len(errors)


def gap_table(rows: Rows, ranking: Rows) -> str:
    """Late in training and at the end, the best first."""
    lines = []
    for row in ranking:
        gap, error = last_gap(rows, row["estimator"])
        label = appearance(row["estimator"]).label
        lines.append(
            [
                label,
                "no" if TOUR_ESTIMATORS[row["estimator"]].unbiased else "yes",
                float(row["gap"]),
                f"{gap:.2f} ± {error:.2f}",
            ]
        )
    return table(
        "Optimality gap in percent, the best first",
        ["estimator", "biased", "median of the second half", "at the end"],
        lines,
    )


def _late(ranking: Rows) -> dict[str, float]:
    return {row["estimator"]: float(row["gap"]) for row in ranking}


def _noise(rows: Rows) -> float:
    """Two standard errors of a difference between two gaps at the end."""
    errors = [last_gap(rows, name)[1] for name in {row["estimator"] for row in rows}]
    return 2.0 * math.sqrt(2.0) * sum(errors) / len(errors)


def ahead(rows: Rows, ranking: Rows, nodes: int) -> Claim:
    """Whether the unordered set estimator is ahead of those that the paper has it ahead of."""
    late, noise = _late(ranking), _noise(rows)
    differences = {name: late[name] - late["unordered_set"] for name in WORSE_THAN_UNORDERED_SET}
    said = ", ".join(f"{appearance(n).label} by {d:+.2f}" for n, d in differences.items())
    clear = all(d > noise for d in differences.values())
    wrong = any(d < -noise for d in differences.values())
    return Claim(
        f"Figure 3, {nodes} nodes",
        "the unordered set estimator outperforms REINFORCE with replacement, stochastic "
        "sum-and-sample and the greedy rollout baseline",
        f"percentage points that others are above it: {said}; noise of a difference ±{noise:.2f}",
        True if clear else False if wrong else None,
    )


def on_par(rows: Rows, ranking: Rows, nodes: int) -> Claim:
    """The distance from the biased risk estimator."""
    late, noise = _late(ranking), _noise(rows)
    differences = {name: late[name] - late["unordered_set"] for name in ON_PAR}
    said = ", ".join(f"{appearance(n).label} by {d:+.2f}" for n, d in differences.items())
    return Claim(
        f"Figure 3, {nodes} nodes",
        "it performs on a par with the biased risk estimator",
        f"percentage points that others are above it: {said}; noise of a difference ±{noise:.2f}",
        all(abs(d) < max(noise, 0.5 * late["unordered_set"]) for d in differences.values()),
    )
