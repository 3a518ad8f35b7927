"""Tables of language model runs: the steps until they solve a share of the prompts, and last metrics."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from statistics import fmean, median
from typing import NamedTuple

from reproduction.harness.appearance import appearance, in_order
from reproduction.harness.metrics import read_records
from reproduction.harness.settings import read_settings
from reproduction.harness.tables import LEVEL, markdown, mean_and_interval
from reproduction.lm.settings import LMSettings

LAST = 50  # steps of training that are averaged
VALIDATED = {"solved": "prompts solved, greedy", "right": "probability of the right answer"}
TRAINED = {
    "reward": f"mean reward, last {LAST} steps",
    "duplicates": f"share of duplicates, last {LAST} steps",
    "no_signal": f"share of groups without signal, last {LAST} steps",
}


class Reached(NamedTuple):
    """When a run solved the share: a row of ``steps.csv``."""

    estimator: str
    seed: int
    steps: int | None  # None if it never did
    last: int  # the last validation of the run

    def within(self, most: int) -> float:
        """Return the number of steps, or ``most`` if it is less."""
        return float(most if self.steps is None else min(self.steps, most))


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
    counted: dict[str, dict[int, float]] = {}
    lines = []
    for name in in_order(r.estimator for r in reached)[::-1]:
        runs = sorted(r for r in reached if r.estimator == name)
        counted[name] = {r.seed: r.within(most) for r in runs}
        late = sum(r.steps is None or r.steps > most for r in runs)
        values = list(counted[name].values())
        middle, mean = f"{median(values):g}", mean_and_interval(values, 1)
        by_seed = ", ".join(f"{value:g}" for value in values)
        lines.append([appearance(name).label, len(runs), late, middle, mean, by_seed])
    solved, late_runs = f"steps until {target:.0%} are solved, {measure}", f"not in {most} steps"
    mean = f"mean ({LEVEL:.0%} interval)"
    header = [solved, "runs", f"of them, {late_runs}", "median", mean, "by seed"]
    return markdown(header, lines) + "".join(
        _difference(first, second, counted) for first, second in combinations(counted, 2)
    )


def _difference(first: str, second: str, counted: dict[str, dict[int, float]]) -> str:
    seeds = sorted(counted[first].keys() & counted[second].keys())
    if not seeds:
        return ""
    differences = [counted[first][seed] - counted[second][seed] for seed in seeds]
    names = f"{appearance(first).label} minus {appearance(second).label}"
    return f"\n{names}, by seed: {mean_and_interval(differences, 1)} steps.\n"


def summary_table(runs: Sequence[Path]) -> str:
    """Return a table with a column for each estimator: the mean over its runs, and each of them."""
    by_estimator: dict[str, list[dict[str, float]]] = {}
    for run in sorted(runs, key=lambda run: read_settings(LMSettings, run).seed):
        name = appearance(read_settings(LMSettings, run).estimator).label
        by_estimator.setdefault(name, []).append(_last_metrics(run))
    lines = []
    for row in next(iter(by_estimator.values()))[0]:
        columns = [[found[row] for found in each] for each in by_estimator.values()]
        cells = [f"{fmean(c):.3f} ({', '.join(f'{x:.2f}' for x in c)})" for c in columns]
        lines.append([row, *cells])
    return markdown(["mean (each seed)", *by_estimator], lines)


def _last_metrics(run: Path) -> dict[str, float]:
    valid, train = list(read_records(run, "valid")), list(read_records(run, "train"))
    late = [record for record in train if record["step"] > train[-1]["step"] - LAST]
    found: dict[str, float] = {}
    for metric, name in VALIDATED.items():
        found |= {f"{name}, start": valid[0][metric], f"{name}, end": valid[-1][metric]}
    return found | {name: fmean(r[metric] for r in late) for metric, name in TRAINED.items()}
