"""Tables of runs (Figure 3): their gaps, the ranking of the estimators, and the tours sampled in the end.

A folder that the command ``tsp-figures`` wrote stands for the runs that it was made from. So runs can be
added to a comparison whose own runs are no longer there.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from reproduction.harness.appearance import appearance
from reproduction.harness.errors import UserError, check_one_of_each
from reproduction.harness.metrics import read_records
from reproduction.harness.settings import read_settings
from reproduction.harness.statistics import INTERVAL, OURS, minus, minus_ours
from reproduction.harness.tables import markdown, read_table
from reproduction.tsp.settings import TSPSettings

COMMAND = "python -m reproduction tsp-figures"


class Gap(NamedTuple):
    """One validation of a run; trained, unless the model has learned nothing yet."""

    nodes: int
    estimator: str
    seed: int
    steps: int
    trained: bool
    instances: int
    length: float
    gap: float
    gap_standard_error: float


class Sampled(NamedTuple):
    """The tours that an estimator was trained on in the last quarter of the steps: means over runs."""

    estimator: str
    steps: int
    runs: int
    log_p: float
    length: float


def read_gaps(folders: Sequence[Path]) -> pd.DataFrame:
    """Read the gaps of runs, one row for each validation; no run may be in two of the folders."""
    gaps = pd.DataFrame([gap for folder in folders for gap in _gaps(folder)], columns=Gap._fields)
    if gaps.empty:
        raise UserError(
            f"no run in {', '.join(map(str, folders))} has been validated; expected at least one "
            "validation. Wait until the runs have begun, or give other folders."
        )
    if gaps["nodes"].nunique() > 1:
        raise UserError(
            f"the runs have {sorted(gaps['nodes'].unique())} nodes; expected the same number. Draw "
            "a figure for each."
        )
    twice = gaps[gaps.duplicated(["estimator", "seed", "steps"], keep=False)].head(2)
    check_one_of_each((run.estimator, run.seed) for run in twice.itertuples())
    return gaps


def _gaps(folder: Path) -> list[Gap]:
    if (folder / "gaps.csv").exists():
        return read_table(folder / "gaps.csv", Gap, COMMAND)
    run = read_settings(TSPSettings, folder)
    gaps = []
    for record in read_records(folder, "valid"):
        step = record["step"]
        trained = step > 0 or run.start_from is not None
        numbers = (record[name] for name in ("length", "gap", "gap_standard_error"))
        about = (run.nodes, run.estimator, run.seed, step, trained, step * run.instances)
        gaps.append(Gap(*about, *numbers))
    return gaps


def read_sampled(folders: Sequence[Path], steps: int) -> list[Sampled]:
    """Read the means of the tours that each estimator sampled in the last quarter of ``steps`` steps."""
    rows = pd.DataFrame([row for folder in folders for row in _sampled(folder, steps)])
    pooled = []
    for name, part in rows.groupby("estimator", sort=False) if len(rows) else ():
        means = np.average(part[["log_p", "length"]], axis=0, weights=part["runs"]).tolist()
        pooled.append(Sampled(str(name), steps, int(part["runs"].sum()), *means))
    return pooled


def _sampled(folder: Path, steps: int) -> list[Sampled]:
    if (folder / "gaps.csv").exists():
        rows = read_table(folder / "sampled.csv", Sampled, COMMAND)
        return [row for row in rows if row.steps == steps]
    late = pd.DataFrame(read_records(folder, "train"))
    late = late[in_last_quarter(late["step"], steps)] if len(late) else late
    if late.empty:
        return []
    means = late[["log_p", "length"]].mean().tolist()
    return [Sampled(read_settings(TSPSettings, folder).estimator, steps, 1, *means)]


def in_last_quarter(step: pd.Series[int], steps: int) -> pd.Series[bool]:
    """Return which steps are among the last quarter of the first ``steps`` steps."""
    return (step > 0.75 * steps) & (step <= steps)


def ranking(gaps: pd.DataFrame) -> pd.DataFrame:
    """Rank the estimators by their gap, the best first, with the gaps of their seeds.

    At equal steps: the mean over the last quarter of the steps that all runs have taken, since single
    validations vary more than estimators differ. The spread is the standard deviation over the seeds.
    """
    common = gaps.groupby(["estimator", "seed"])["steps"].max().min()
    late = gaps[in_last_quarter(gaps["steps"], common)]
    seeds = late.groupby(["estimator", "seed"])["gap"].mean().unstack().add_prefix("seed ")
    table = seeds.copy()
    table.insert(0, "spread", seeds.std(axis=1))
    table.insert(0, "gap", seeds.mean(axis=1))
    table.insert(0, "steps", common)
    return table.sort_values("gap").round(4).reset_index()


def runs_of(ranked: pd.DataFrame) -> pd.DataFrame:
    """Return the runs of a ranking, a row for each: its estimator, its seed, and its gap as the value."""
    seeds = [name for name in ranked.columns if name.startswith("seed ")]
    return ranked.melt("estimator", seeds, "seed", "value").dropna()


def ranking_table(ranked: pd.DataFrame) -> str:
    """Return a ranking in Markdown, with the mean differences of runs with the same seeds."""
    seeds = [name for name in ranked.columns if name.startswith("seed ")]
    runs, lines = runs_of(ranked), []
    for row in ranked.to_dict("records"):
        spread = "" if pd.isna(row["spread"]) else f" ± {row['spread']:.2f}"
        cells = ["–" if pd.isna(row[seed]) else f"{row[seed]:.2f}" for seed in seeds]
        name = row["estimator"]
        apart = "–" if name == OURS else minus_ours(runs, name, 2)
        lines.append([appearance(name).label, f"{row['gap']:.2f}{spread}", *cells, apart])
    compared = f"minus {appearance(OURS).label} ({INTERVAL})"
    return markdown(["estimator", "mean gap (%)", *seeds, compared], lines)


def sampled_table(sampled: Sequence[Sampled]) -> str:
    """Return, in Markdown, the tours that were sampled in the last quarter.

    Estimators sample differently, so that this compares policies only where the sampling is the same.
    """
    rows = [
        [appearance(row.estimator).label, row.runs, minus(f"{row.log_p:.2f}"), f"{row.length:.3f}"]
        for row in sampled
    ]
    return markdown(["estimator", "runs", "mean log p of the tours", "mean length"], rows)
