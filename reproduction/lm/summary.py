"""What runs reach: the share of prompts that they solve at the end, and what their last groups were like."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from reproduction.harness.appearance import appearance
from reproduction.harness.metrics import read_records
from reproduction.harness.settings import read_settings
from reproduction.harness.tables import markdown
from reproduction.lm.settings import LMSettings

LAST = 50  # steps of training that are averaged
VALIDATED = {"solved": "prompts solved, greedy", "right": "probability of the right answer"}
TRAINED = {
    "reward": f"mean reward, last {LAST} steps",
    "duplicates": f"share of duplicates, last {LAST} steps",
    "no_signal": f"share of groups without signal, last {LAST} steps",
}


def summary_table(runs: Sequence[Path]) -> str:
    """Return a table with a column for each estimator: the mean over its runs, and each of them."""
    by_estimator: dict[str, list[dict[str, float]]] = {}
    for run in sorted(runs, key=lambda run: read_settings(LMSettings, run).seed):
        name = appearance(read_settings(LMSettings, run).estimator).label
        by_estimator.setdefault(name, []).append(_summary(run))
    lines = []
    for row in next(iter(by_estimator.values()))[0]:
        columns = [[found[row] for found in each] for each in by_estimator.values()]
        lines.append([row, *(_cell(numbers) for numbers in columns)])
    return markdown(["mean (each seed)", *by_estimator], lines)


def _summary(run: Path) -> dict[str, float]:
    valid, train = list(read_records(run, "valid")), list(read_records(run, "train"))
    late = [record for record in train if record["step"] > train[-1]["step"] - LAST]
    found: dict[str, float] = {}
    for metric, name in VALIDATED.items():
        found |= {f"{name}, start": valid[0][metric], f"{name}, end": valid[-1][metric]}
    return found | {name: fmean(r[metric] for r in late) for metric, name in TRAINED.items()}


def _cell(numbers: Sequence[float]) -> str:
    return f"{fmean(numbers):.3f} ({', '.join(f'{x:.2f}' for x in numbers)})"
