"""The numbers of the pages on training for the best of m."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from reproduction.best_of.figures import LOOKS, Metrics, header_and_lines, measured
from reproduction.harness.tables import committed_table, markdown

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
    """Return how distinct samples compare with independent ones, and with training for the mean."""
    tours = compared(folder / "tsp", "the gap of the best of {}", " %")
    prompts = compared(folder / "lm", "the share of prompts that one of {} attempts solves", "")
    return f"On tours of 10 nodes, {tours}. On the sorting task, {prompts}.\n"


def compared(folder: Path, quantity: str, unit: str) -> str:
    """Say what a quantity of m samples is for every objective, and who is ahead in how many seeds."""
    table, metrics, m = read(folder)
    best = {name: f"{table.loc[name, metrics.best]:.2f}{unit}" for name in LOOKS}
    return (
        f"{quantity.format(m)} is {best['distinct']} after training for it with distinct samples, "
        f"{best['independent']} with independent ones, and {best['mean']} after training for the mean; "
        "distinct samples are better than independent ones in "
        f"{wins(table, metrics, 'independent')} seeds, and better than training for the mean in "
        f"{wins(table, metrics, 'mean')}"
    )


def both(folder: Path) -> str:
    """Return the table of both tasks."""
    lines = []
    for name, title in TASKS.items():
        tables = (committed_table(folder / name / f"{kind}.csv") for kind in ("table", "curves"))
        header, rows = header_and_lines(*tables)
        lines += [[title, *row] for row in rows]
    return markdown(["task", *header], lines)
