"""Tables of runs (Figure 3): which estimator has the smallest gap, and which tours it samples in the end."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd

from swor.experiments.runs.appearance import appearance
from swor.experiments.runs.metrics import read_records
from swor.experiments.runs.settings import read_settings
from swor.experiments.runs.tables import LEVEL, markdown, mean_and_interval
from swor.experiments.tsp.settings import TSPSettings

COMPARED = "unordered_set"  # the estimator that a ranking compares the others with


def read_gaps(run: Path) -> pd.DataFrame:
    """Read the gaps of a run, one row for each validation."""
    settings = read_settings(TSPSettings, run)
    rows = [
        {
            "nodes": settings.nodes,
            "estimator": settings.estimator,
            "seed": settings.seed,
            "steps": record["step"],
            "trained": record["step"] > 0 or settings.start_from is not None,
            "instances": record["step"] * settings.instances,
            "length": record["length"],
            "gap": record["gap"],
            "gap_standard_error": record["gap_standard_error"],
        }
        for record in read_records(run, "valid")
    ]
    return pd.DataFrame(rows)


def read_sampled(run: Path) -> pd.DataFrame:
    """Read the mean length and log p of the tours that a run was trained on, one row for each record."""
    settings = read_settings(TSPSettings, run)
    rows = [
        {
            "estimator": settings.estimator,
            "seed": settings.seed,
            "steps": record["step"],
            "length": record["length"],
            "log_p": record["log_p"],
        }
        for record in read_records(run, "train")
    ]
    return pd.DataFrame(rows, columns=["estimator", "seed", "steps", "length", "log_p"])


def last_quarter(rows: pd.DataFrame, steps: int) -> pd.DataFrame:
    """Select the rows of the last quarter of the first ``steps`` steps."""
    return rows[(rows["steps"] > 0.75 * steps) & (rows["steps"] <= steps)]


def ranking(gaps: pd.DataFrame) -> pd.DataFrame:
    """Rank the estimators by their gap, the best first, with the gaps of their seeds.

    At equal steps: the mean over the last quarter of the steps that all runs have taken, since single
    validations vary more than estimators differ. The spread is the standard deviation over the seeds.
    """
    common = gaps.groupby(["estimator", "seed"])["steps"].max().min()
    late = last_quarter(gaps, common)
    seeds = late.groupby(["estimator", "seed"])["gap"].mean().unstack().add_prefix("seed ")
    table = seeds.copy()
    table.insert(0, "spread", seeds.std(axis=1))
    table.insert(0, "gap", seeds.mean(axis=1))
    table.insert(0, "steps", common)
    return table.sort_values("gap").round(4).reset_index()


def ranking_table(ranked: pd.DataFrame) -> str:
    """Return a ranking in Markdown, with the mean differences of runs with the same seeds."""
    seeds = [name for name in ranked.columns if name.startswith("seed ")]
    gaps = ranked.set_index("estimator")[seeds]
    lines = []
    for row in ranked.to_dict("records"):
        spread = "" if math.isnan(row["spread"]) else f" ± {row['spread']:.2f}"
        cells = ["–" if math.isnan(row[seed]) else f"{row[seed]:.2f}" for seed in seeds]
        difference = _difference(gaps, row["estimator"])
        name = appearance(row["estimator"]).label
        lines.append([name, f"{row['gap']:.2f}{spread}", *cells, difference])
    compared = f"minus {appearance(COMPARED).label} ({LEVEL:.0%} interval)"
    return markdown(["estimator", "mean gap (%)", *seeds, compared], lines)


def sampled_table(sampled: pd.DataFrame, ranked: pd.DataFrame) -> str:
    """Return, in Markdown, the tours that were sampled in the last quarter, in the order of a ranking.

    Estimators sample differently, so that this compares policies only where the sampling is the same.
    """
    late = last_quarter(sampled, ranked["steps"].min())
    runs = late.groupby(["estimator", "seed"])[["log_p", "length"]].mean()
    means = runs.groupby("estimator").mean()
    rows = [
        [appearance(name).label, f"{means['log_p'][name]:.2f}", f"{means['length'][name]:.3f}"]
        for name in ranked["estimator"]
        if name in means.index
    ]
    return markdown(["estimator", "mean log p of the tours", "mean length"], rows)


def _difference(gaps: pd.DataFrame, estimator: str) -> str:
    """The mean over shared seeds of the gap minus that of the unordered set estimator."""
    if estimator == COMPARED or COMPARED not in gaps.index:
        return "–"
    found = (gaps.loc[estimator] - gaps.loc[COMPARED]).dropna().tolist()
    return mean_and_interval(found, 2) if found else "–"
