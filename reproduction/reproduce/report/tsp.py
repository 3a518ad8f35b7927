"""The section on Figure 3, the travelling salesman."""

from __future__ import annotations

import math
from itertools import product
from pathlib import Path

from reproduction.harness.appearance import appearance
from reproduction.reproduce.report import html
from reproduction.tsp.task import TOUR_ESTIMATORS

LABELS = {name: appearance(name).label for name in TOUR_ESTIMATORS}

# What the paper says.
GREEDY_GAP = 0.34  # percent: the gap of its fully trained model for 20 nodes, with greedy decoding
OUTPERFORMED = (
    "rloo",
    "sum_and_sample_shared_sampled_baseline",
    "reinforce_rollout",
)  # by the unordered set estimator
ON_PAR = ("risk", "risk_beam_search")  # with the unordered set estimator

TEXT = (
    "The chart shows the optimality gap of greedy decoding on fixed validation instances, whose optimal "
    "tours are known exactly. All estimators have the same number of tours in a batch: single-sample "
    "estimators use one tour of each instance, the others four. Dash-dotted lines are biased estimators. The "
    f"paper's model has a gap of {GREEDY_GAP} % when it is fully trained on 20 nodes."
)


def figure3(folder: Path, nodes: int) -> html.Section:
    """Return the section, and its findings."""
    rows, ranking = html.read_csv(folder / "gaps.csv"), html.read_csv(folder / "ranking.csv")
    content = html.section(
        "figure3",
        f"Figure 3: the travelling salesman, {nodes} nodes",
        html.paragraph(TEXT),
        html.chart(
            "figure3",
            gap_traces(rows),
            y="gap (%)",
            log=True,
            views="Plot against",
            caption="Optimality gap during training, with two standard errors. Click on an estimator "
            "in the legend to hide it.",
            alternative="Line chart: optimality gap of each estimator. The final values are in the "
            "table below.",
        ),
        gap_table(rows, ranking),
    )
    return content, [outperforms(rows, ranking, nodes), on_par(rows, ranking, nodes)]


def gap_traces(rows: html.Rows) -> list[html.Trace]:
    """Return a line for each run against steps and against instances, without the untrained model."""
    trained = [row for row in rows if int(row["steps"]) > 0]
    seeds = dict.fromkeys(row["seed"] for row in rows)
    traces = []
    for axis, name, seed in product(("steps", "instances"), TOUR_ESTIMATORS, seeds):
        mine = [row for row in trained if (row["estimator"], row["seed"]) == (name, seed)]
        if mine:
            traces.append(gap_trace(mine, axis, name, seed))
    return traces


def gap_trace(rows: html.Rows, axis: str, name: str, seed: str) -> html.Trace:
    """Return the line of a run."""
    look = appearance(name)
    return html.Trace(
        look.label,
        look.colour,
        [int(row[axis]) for row in rows],
        [float(row["gap"]) for row in rows],
        view=f"training {axis}",
        dash=html.DASHES[look.line],
        text=[f"seed {seed}"] * len(rows),
        error=[2.0 * float(row["gap_standard_error"]) for row in rows],
    )


def final_gap(rows: html.Rows, name: str) -> tuple[float, float]:
    """Return the mean final gap of an estimator, and its standard error over the instances."""
    ends = {row["seed"]: row for row in rows if row["estimator"] == name}.values()
    gaps = [float(row["gap"]) for row in ends]
    errors = [float(row["gap_standard_error"]) for row in ends]
    return sum(gaps) / len(gaps), math.hypot(*errors) / len(errors)


def gap_table(rows: html.Rows, ranking: html.Rows) -> str:
    """Return the gaps in the last quarter of training and at its end, the best first."""
    lines = []
    for row in ranking:
        name = row["estimator"]
        gap, error = final_gap(rows, name)
        biased = "no" if TOUR_ESTIMATORS[name].unbiased else "yes"
        lines.append([LABELS[name], biased, float(row["gap"]), f"{gap:.2f} ± {error:.2f}"])
    return html.table(
        "Optimality gap in percent, the best first",
        ["estimator", "biased", "mean of the last quarter", "at the end"],
        lines,
    )


def differences(ranking: html.Rows, names: tuple[str, ...]) -> dict[str, float]:
    """Return how far the gaps of estimators are above that of the unordered set estimator."""
    gaps = {row["estimator"]: float(row["gap"]) for row in ranking}
    return {name: gaps[name] - gaps["unordered_set"] for name in names}


def noise(rows: html.Rows) -> float:
    """Return two standard errors of the difference between two final gaps."""
    errors = [final_gap(rows, name)[1] for name in {row["estimator"] for row in rows}]
    return 2.0 * math.sqrt(2.0) * sum(errors) / len(errors)


def finding(
    paper: str, found: dict[str, float], threshold: float, nodes: int, agrees: bool | None
) -> html.Finding:
    """Return a finding on differences between gaps."""
    values = "; ".join(f"{LABELS[name]} {html.minus(f'{d:+.2f}')}" for name, d in found.items())
    ours = (
        f"Gap minus that of the unordered set estimator, in percentage points: {values}. Two "
        f"standard errors of a difference are {threshold:.2f}."
    )
    return html.Finding(f"Figure 3, {nodes} nodes", paper, ours, agrees)


def outperforms(rows: html.Rows, ranking: html.Rows, nodes: int) -> html.Finding:
    """Compare the unordered set estimator with those that it outperforms in the paper."""
    found, threshold = differences(ranking, OUTPERFORMED), noise(rows)
    better = all(difference > threshold for difference in found.values())
    worse = any(difference < -threshold for difference in found.values())
    paper = (
        "The unordered set estimator outperforms RLOO, stochastic "
        "sum-and-sample, and REINFORCE with a greedy rollout baseline."
    )
    return finding(paper, found, threshold, nodes, True if better else False if worse else None)


def on_par(rows: html.Rows, ranking: html.Rows, nodes: int) -> html.Finding:
    """Compare the unordered set estimator with the biased risk estimator."""
    found, threshold = differences(ranking, ON_PAR), noise(rows)
    (gap,) = (float(row["gap"]) for row in ranking if row["estimator"] == "unordered_set")
    agrees = all(abs(difference) < max(threshold, 0.5 * gap) for difference in found.values())
    paper = "The unordered set estimator performs on par with the biased risk estimator."
    return finding(paper, found, threshold, nodes, agrees)
