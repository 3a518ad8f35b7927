"""Tables of runs (Figure 3): which estimator has the smallest gap, and which tours it samples in the end."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from reproduction.harness.appearance import appearance
from reproduction.harness.tables import LEVEL, markdown, mean_and_interval
from reproduction.tsp.validations import Sampled, in_last_quarter

COMPARED = "unordered_set"  # the estimator that a ranking compares the others with


def ranking(gaps: pd.DataFrame) -> pd.DataFrame:
    """Rank the estimators by their gap, the best first, with the gaps of their seeds.

    At equal steps: the mean over the last quarter of the steps that all runs have taken, since single
    validations vary more than estimators differ. The spread is the standard deviation over the seeds.
    """
    common = gaps.groupby(["estimator", "seed"])["steps"].max().min()
    late = gaps[[in_last_quarter(step, common) for step in gaps["steps"]]]
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


def sampled_table(sampled: Sequence[Sampled]) -> str:
    """Return, in Markdown, the tours that were sampled in the last quarter.

    Estimators sample differently, so that this compares policies only where the sampling is the same.
    """
    rows = [
        [appearance(row.estimator).label, row.runs, f"{row.log_p:.2f}", f"{row.length:.3f}"]
        for row in sampled
    ]
    return markdown(["estimator", "runs", "mean log p of the tours", "mean length"], rows)


def _difference(gaps: pd.DataFrame, estimator: str) -> str:
    """The mean over shared seeds of the gap minus that of the unordered set estimator."""
    if estimator == COMPARED or COMPARED not in gaps.index:
        return "–"
    found = (gaps.loc[estimator] - gaps.loc[COMPARED]).dropna().tolist()
    return mean_and_interval(found, 2) if found else "–"
