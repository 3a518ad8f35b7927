"""How many steps runs need until they solve a share of the prompts, with confidence intervals over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import NamedTuple

from reproduction.harness.appearance import appearance
from reproduction.harness.metrics import read_records
from reproduction.harness.settings import read_settings
from reproduction.harness.tables import LEVEL, markdown, mean_and_interval
from reproduction.lm.settings import LMSettings


class Reached(NamedTuple):
    """When a run solved the share: a row of ``steps.csv``."""

    estimator: str
    seed: int
    steps: int | None  # None if it never did
    last: int  # the last validation of the run


def read_reached(run: Path, target: float, metric: str = "solved") -> Reached:
    """Find the first validation of a run with at least a share of the prompts solved.

    Args:
        run: the folder of the run.
        target: the share.
        metric: "solved", by greedy decoding, or "right", by sampled completions on average.
    """
    trained = read_settings(LMSettings, run)
    valid = [(r["step"], r[metric]) for r in read_records(run, "valid")]
    steps = next((step for step, share in valid if share >= target), None)
    return Reached(trained.estimator, trained.seed, steps, valid[-1][0])


def steps_table(reached: Sequence[Reached], target: float, measure: str) -> str:
    """Return a table of the steps by estimator, and the differences of estimators with the same seeds.

    A run that does not get there in the steps that all runs have counts with these steps, so that the
    mean is a lower bound, and the median is right as long as more than half of the runs get there.
    """
    most = min(r.last for r in reached)
    counted = {
        name: {r.seed: _steps(r, most) for r in reached if r.estimator == name}
        for name in sorted({r.estimator for r in reached}, reverse=True)
    }
    header = [
        f"steps until {target:.0%} are solved, {measure}",
        "runs",
        f"of them, not in {most} steps",
        "median",
        f"mean ({LEVEL:.0%} interval)",
        "by seed",
    ]
    lines: list[list[object]] = []
    for name, steps in counted.items():
        late = sum(r.steps is None or r.steps > most for r in reached if r.estimator == name)
        values = [steps[seed] for seed in sorted(steps)]
        row = [
            appearance(name).label,
            len(values),
            late,
            f"{median(values):g}",
            mean_and_interval(values, 1),
        ]
        lines.append([*row, ", ".join(f"{value:g}" for value in values)])
    text = markdown(header, lines)
    for first, second in combinations(counted, 2):
        seeds = sorted(counted[first].keys() & counted[second].keys())
        if seeds:
            differences = [counted[first][seed] - counted[second][seed] for seed in seeds]
            names = f"{appearance(first).label} minus {appearance(second).label}"
            text += f"\n{names}, by seed: {mean_and_interval(differences, 1)} steps.\n"
    return text


def _steps(reached: Reached, most: int) -> float:
    return float(most if reached.steps is None else min(reached.steps, most))
