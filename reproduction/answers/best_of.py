"""The numbers of the pages on training for the best of m."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from reproduction.best_of.figures import Metrics, header_and_lines, measured
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


def wins(table: pd.DataFrame, metrics: Metrics, other: str) -> str:
    """Say in how many seeds distinct samples give a better best of m than another objective."""
    seeds = [name for name in table.columns if name.startswith(f"{metrics.best}, seed ")]
    sign = 1.0 if metrics.log_scale else -1.0  # of a gap and of a share
    better = (sign * (table.loc[other, seeds] - table.loc["distinct", seeds]) > 0).sum()
    return f"{better} of {len(seeds)}"


def answer(folder: Path) -> str:
    """Return how training for the best of m compares with distinct and with independent samples."""
    tours, metrics, m = read(folder / "tsp")
    prompts, solved, attempts = read(folder / "lm")
    gap = (f"{tours.loc[name, metrics.best]:.2f} %" for name in COMPARED)
    share = (f"{100 * prompts.loc[name, solved.best]:.1f} %" for name in COMPARED)
    return (
        f"Trained for the best of {m} tours of 10 nodes, distinct samples reach a gap of {next(gap)} and "
        f"independent ones of {next(gap)}, and distinct ones are better in "
        f"{wins(tours, metrics, COMPARED[1])} seeds. On the sorting task, one of {attempts} attempts solves "
        f"{next(share)} of the prompts after training with distinct samples and {next(share)} with "
        f"independent ones, and distinct ones are better in {wins(prompts, solved, COMPARED[1])} seeds.\n"
    )


def both(folder: Path) -> str:
    """Return the table of both tasks."""
    lines = []
    for name, title in TASKS.items():
        tables = (committed_table(folder / name / f"{kind}.csv") for kind in ("table", "curves"))
        header, rows = header_and_lines(*tables)
        lines += [[title, *row] for row in rows]
    return markdown(["task", *header], lines)
