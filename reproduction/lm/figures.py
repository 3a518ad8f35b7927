"""The figure and the tables that compare language model runs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from statistics import fmean, median
from typing import NamedTuple

import pandas as pd
from matplotlib.figure import Figure

from reproduction.harness.appearance import appearance, in_order
from reproduction.harness.drawing import SEEDS, draw_runs, legend_below, nested, panels
from reproduction.harness.errors import UserError
from reproduction.harness.metrics import read_records
from reproduction.harness.settings import read_settings
from reproduction.harness.statistics import INTERVAL, over_seeds
from reproduction.harness.tables import markdown, mean_and_interval
from reproduction.lm.settings import LMSettings

PANELS = {
    ("train", "reward"): "Mean reward in training",
    ("valid", "solved"): "Share of prompts solved, greedy",
    ("train", "duplicates"): "Share of duplicate completions",
    ("train", "no_signal"): "Share of groups without signal",
    ("train", "effective_sample_size"): "Effective sample size of a group",
    ("train", "mass_covered"): "Probability mass covered by a group",
}
"""The title of the panel of every metric of a split."""

LAST = 50  # steps of training that are averaged
VALIDATED = {"solved": "prompts solved, greedy", "right": "probability of the right answer"}
TRAINED = {
    "reward": f"mean reward, last {LAST} steps",
    "duplicates": f"share of duplicates, last {LAST} steps",
    "no_signal": f"share of groups without signal, last {LAST} steps",
}


def read_points(run: Path) -> list[dict[str, object]]:
    """Read the logged metrics of a run that the panels show, as rows of ``curves.csv``."""
    trained = read_settings(LMSettings, run)
    about = {"estimator": trained.estimator, "seed": trained.seed}
    return [
        about | {"split": split, "metric": metric, "step": record["step"], "value": record[metric]}
        for split, metric in PANELS
        for record in read_records(run, split)
        if metric in record
    ]


def curves_figure(points: pd.DataFrame) -> Figure:
    """Plot each metric in a panel of its own: a thin line for each run, a thick one for their mean."""
    figure, axes = panels(8.0, 9.6, 3, 2)
    for ax, ((split, metric), title) in zip(axes.flat, PANELS.items(), strict=True):
        shown = points[(points["split"] == split) & (points["metric"] == metric)]
        for name, width in nested(in_order(shown["estimator"])):
            mine, look = shown[shown["estimator"] == name], appearance(name)
            draw_runs(ax, mine, "step", "value", look, width=width)
        ax.set(title=title, xlabel="training steps")
    legend_below(figure, axes[0, 0], title=SEEDS)
    return figure


class Reached(NamedTuple):
    """When a run solved the share: a row of ``steps.csv``."""

    estimator: str
    seed: int
    steps: int | None  # None if it never did
    last: int  # the last validation of the run


def read_reached(run: Path, target: float, metric: str = "solved") -> Reached:
    """Find the first validation of a run with at least a share of the prompts solved.

    The metric is "solved", by greedy decoding, or "right", by sampled completions on average.
    """
    trained = read_settings(LMSettings, run)
    valid = [(r["step"], r[metric]) for r in read_records(run, "valid")]
    if not valid or not any(read_records(run, "train")):
        raise UserError(
            f"{run} has just begun; expected a run that has been validated and has logged steps of training. "
            "Wait, resume it, or leave it out."
        )
    steps = next((step for step, share in valid if share >= target), None)
    return Reached(trained.estimator, trained.seed, steps, valid[-1][0])


def steps_table(reached: Sequence[Reached], target: float, measure: str) -> str:
    """Return a table of the steps by estimator, and the differences of estimators with the same seeds.

    A run that does not get there in the steps that all runs have counts with these steps. The mean is then
    a lower bound, without an interval, and so is a median of this number.
    """
    most = min(r.last for r in reached)
    rows = pd.DataFrame(reached, columns=Reached._fields).set_index(["seed", "estimator"])
    steps = rows["steps"].astype(float).fillna(float("inf")).unstack().sort_index()
    names, lines = in_order(steps.columns)[::-1], []
    for name in names:
        runs = steps[name].dropna()
        late, values = int((runs > most).sum()), runs.clip(upper=most).tolist()
        by_seed = ", ".join(f"{value:g}" if value <= most else f"> {most}" for value in runs)
        mean = f"≥ {fmean(values):.1f}" if late else mean_and_interval(values, 1)
        cells = [middle(values, most), mean, by_seed]
        lines.append([appearance(name).label, len(runs), late, *cells])
    solved, late_runs = (
        f"steps until {100 * target:.0f} % are solved, {measure}",
        f"not in {most} steps",
    )
    header = [solved, "runs", f"of them, {late_runs}", "median", f"mean ({INTERVAL})"]
    table = markdown([*header, "by seed"], lines)
    counted = steps.clip(upper=most)
    for first, second in combinations(names, 2):
        differences = (counted[first] - counted[second]).dropna().tolist()
        if differences:
            pair = f"{appearance(first).label} minus {appearance(second).label}"
            table += f"\n{pair}, by seed: {over_seeds(differences).text(1)} steps.\n"
    return table


def middle(steps: Sequence[float], most: int) -> str:
    """Format the median of steps until a target, which is a lower bound if half of the runs miss it.

    >>> middle([300, 350, 400], 400), middle([300, 400, 400], 400)
    ('350', '> 400')
    """
    return f"{median(steps):g}" if median(steps) < most else f"> {most}"


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
