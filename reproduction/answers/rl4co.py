"""The numbers of the pages on routing with rl4co's attention model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from reproduction.harness.appearance import appearance, in_order
from reproduction.harness.statistics import OURS, between_runs, minus
from reproduction.harness.tables import committed_table, markdown
from reproduction.rl4co import DECODING, problems

FORCED = "rl4co_pomo"  # its solutions start at given nodes
COMPARED = (16, 64)
FEW = 8  # as many solutions as in training


def best_of_few(folder: Path) -> str:
    """Return the cost of the best of few solutions by training and by way to decode."""
    table = committed_table(folder / "best_of_k.csv")
    means = table[table["k"] == FEW].groupby(["problem", "method", "decoding"])["cost"].mean()
    lines = [
        [
            name.upper(),
            appearance(method).label,
            *(f"{means[name, method, way]:.3f}" for way in DECODING),
        ]
        for name, part in problems(table)
        for method in in_order(part["method"])
    ]
    return markdown(["problem", "trained by", *(appearance(way).label for way in DECODING)], lines)


def answer(folder: Path) -> str:
    """Return how the methods compare at the end of training, and what distinct solutions save."""
    table = committed_table(folder / "training.csv")
    late = table[table["solutions"] > table["solutions"].max() * 2 / 3]
    runs = late.groupby(["problem", "method", "seed"], as_index=False)["cost"].mean()
    runs = runs.rename(columns={"method": "estimator"}).assign(value=np.log(runs["cost"]))
    gains, most = gains_of(committed_table(folder / "best_of_k.csv")), max(COMPARED)
    saving = " and ".join(
        f"{percent(part[part['k'] == most])} on {name.upper()}" for name, part in problems(gains)
    )
    return (
        "After training with independent solutions (RLOO), the cost of a greedy solution minus its cost "
        "after training with equally many distinct solutions (the unordered set estimator) is "
        f"{differences(runs, 'rloo')}. Relative to the best of {most} independent solutions, the best of "
        f"{most} distinct ones saves {saving}, for policies that were trained without forced starts.\n"
    )


def differences(runs: pd.DataFrame, other: str) -> str:
    """Format how much more another method costs than the unordered set estimator, on each problem."""
    return " and ".join(
        f"{between_runs(part, other, OURS).percent.text(1)} % on {name.upper()}"
        for name, part in problems(runs)
    )


def gains_of(decoded: pd.DataFrame) -> pd.DataFrame:
    """Return what distinct solutions save for every policy that was trained without forced starts."""
    gains = decoded[(decoded["decoding"] == "distinct") & (decoded["method"] != FORCED)]
    gains = gains[gains["k"].isin(COMPARED)]
    independent = gains["cost"] + gains["saved"]
    return gains.assign(percent=100.0 * gains["saved"] / independent)


def percent(gains: pd.DataFrame) -> str:
    """Format the range over policies of what is saved."""
    low, high = (minus(f"{end:.1f}") for end in (gains["percent"].min(), gains["percent"].max()))
    return f"{low} to {high} %"


def saved(folder: Path) -> str:
    """Return what the best of k distinct solutions saves for every policy, with its standard error."""
    gains = gains_of(committed_table(folder / "best_of_k.csv"))
    lines = []
    for name, part in problems(gains):
        for (method, seed), rows in part.groupby(["method", "seed"]):
            at = rows.set_index("k")
            cells = [
                minus(f"{at.loc[k, 'saved']:+.3f} ± {at.loc[k, 'error']:.3f}") for k in COMPARED
            ]
            lines.append([name.upper(), appearance(str(method)).label, seed, *cells])
    header = [f"cost saved by {k} distinct in the place of {k} independent" for k in COMPARED]
    return markdown(["problem", "trained by", "seed", *header], lines)
