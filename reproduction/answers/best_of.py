"""The numbers of the pages on training for the best of m."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from reproduction.best_of.figures import LOOKS, Metrics, measured
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
    table, gap, m = read(folder / "tsp")
    best = {name: f"{table.loc[name, gap.best]:.2f}" for name in LOOKS}
    first = (
        f"With 10 nodes, the best of {m} tours has a gap of {best['distinct']} % after training for it from "
        f"distinct samples, {best['independent']} % from independent ones (distinct samples are ahead in "
        f"{wins(table, gap, 'independent')} seeds), and {best['mean']} % after training for the mean (ahead "
        f"in {wins(table, gap, 'mean')})."
    )
    table, share, m = read(folder / "lm")
    best = {name: f"{table.loc[name, share.best]:.2f}" for name in LOOKS}
    return (
        f"{first} On the sorting task, the best of {m} attempts is right for {best['distinct']} of the "
        f"prompts after training for it from distinct samples, for {best['independent']} from independent "
        f"ones (ahead in {wins(table, share, 'independent')}), and for {best['mean']} after training for the "
        f"mean (ahead in {wins(table, share, 'mean')}).\n"
    )


def both(folder: Path) -> str:
    """Return the table of both tasks."""
    lines = []
    for name, title in TASKS.items():
        table, metrics, m = read(folder / name)
        seeds = [column for column in table.columns if column.startswith(f"{metrics.best}, seed ")]
        for objective, row in table.iterrows():
            label = LOOKS[str(objective)].label.format(m)
            means = (f"{row[metric]:.2f}" for metric in metrics[:2])
            lines.append([title, label, *means, ", ".join(f"{row[seed]:.2f}" for seed in seeds)])
    numbers = ", ".join(seed.rpartition(" ")[-1] for seed in seeds)
    best = f"best of {m}"
    return markdown(["task", "trained for", "one sample", best, f"{best}, seeds {numbers}"], lines)
