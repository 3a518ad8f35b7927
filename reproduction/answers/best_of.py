"""The numbers of the pages on training for the best of m."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from reproduction.best_of.figures import Metrics, header_and_lines, measured
from reproduction.claims.criteria.sequences import distinct_ahead
from reproduction.harness.tables import committed_table, markdown

COMPARED = ("distinct", "independent")
TASKS = {
    "tsp": "tours of 10 nodes, gap in %, lower is better",
    "lm": "sorting, share of prompts solved, higher is better",
}


def read(folder: Path) -> tuple[pd.DataFrame, Metrics, int]:
    """Read the table of a task, its metrics, and m."""
    curves = committed_table(folder / "curves.csv")
    table = committed_table(folder / "table.csv").set_index("objective")
    return table, measured(curves), int(curves["m"].iloc[0])


def answer(folder: Path) -> str:
    """Return how training for the best of m compares with distinct and with independent samples."""
    tours, metrics, m = read(folder / "tsp")
    prompts, solved, attempts = read(folder / "lm")
    gap = (f"{tours.loc[name, metrics.best]:.2f} %" for name in COMPARED)
    share = (f"{100 * prompts.loc[name, solved.best]:.1f} %" for name in COMPARED)
    shorter = distinct_ahead(tours.reset_index(), metrics.best)
    more = distinct_ahead(prompts.reset_index(), solved.best)
    return (
        f"After training for the best of {m} tours of 10 nodes, the gap to the shortest tour is {next(gap)} "
        f"from distinct samples and {next(gap)} from independent ones, a difference of {shorter.text()} "
        f"percentage points. After training for the best of {attempts} attempts at sorting, one of them "
        f"succeeds on {next(share)} of the prompts from distinct samples and on {next(share)} from "
        f"independent ones, a difference of {more.text(1)} percentage points.\n"
    )


def both(folder: Path) -> str:
    """Return the table of both tasks."""
    lines = []
    for name, title in TASKS.items():
        tables = (committed_table(folder / name / f"{kind}.csv") for kind in ("table", "curves"))
        header, rows = header_and_lines(*tables)
        lines += [[title, *row] for row in rows]
    return markdown(["task", *header], lines)
