r"""Differences between trained models, instance by instance.

$$\bar d = \frac1n \sum_i d_i, \qquad \text{standard error } \frac{s_d}{\sqrt n}, \qquad
d_i = g_i^{\text{other}} - g_i^{\text{ours}}$$

Gaps $g_i$ of the same instance have most of their noise in common, so that their difference is known far
better than either. The gap of an estimator is the mean over its runs. Its error over the instances says what
these models differ by; whether other seeds would differ as much is what the interval over the seeds says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import pandas as pd
import torch
from torch import Tensor

from reproduction.harness.appearance import appearance, in_order
from reproduction.harness.statistics import LEVEL, OURS, minus_ours
from reproduction.harness.tables import markdown

NOTHING = "–"
Runs = Mapping[tuple[str, int], Tensor]
"""Of each estimator and seed, the gaps in percent of the same instances, (n,)."""


class Paired(NamedTuple):
    """A run: a row of ``paired.csv``; means over instances in percent, with standard errors."""

    estimator: str
    seed: int
    instances: int
    gap: float
    gap_error: float
    minus_start: float
    minus_start_error: float
    minus_unordered_set: float
    minus_unordered_set_error: float


def mean_error(values: Tensor) -> tuple[float, float]:
    """Return the mean of values, (n,), and its standard error."""
    return float(values.mean()), float(values.std() / len(values) ** 0.5)


def paired_rows(runs: Runs, start: Tensor | None) -> list[Paired]:
    """Return a row for each run; NaN where there is nothing to compare it with."""
    rows, unknown = [], (float("nan"),) * 2
    for (name, seed), gaps in runs.items():
        before = unknown if start is None else mean_error(gaps - start)
        ours = runs.get((OURS, seed))
        apart = unknown if ours is None or name == OURS else mean_error(gaps - ours)
        rows.append(Paired(name, seed, len(gaps), *mean_error(gaps), *before, *apart))
    return rows


def paired_table(runs: Runs, start: Tensor | None) -> str:
    """Return a table in Markdown: means over the runs of an estimator, and over the seeds that two share."""
    values = pd.DataFrame(
        [(name, seed, float(gaps.mean())) for (name, seed), gaps in runs.items()],
        columns=["estimator", "seed", "value"],
    )
    lines = []
    for name in in_order(values["estimator"]):
        mine = {seed: gaps for (estimator, seed), gaps in runs.items() if estimator == name}
        gap = torch.stack(list(mine.values())).mean(0)
        cells = [_text(gap), NOTHING if start is None else _text(gap - start, sign="+")]
        shared = [seed for seed in mine if (OURS, seed) in runs and name != OURS]
        apart = [mine[seed] - runs[OURS, seed] for seed in shared]
        cells.append(_text(torch.stack(apart).mean(0), sign="+") if apart else NOTHING)
        cells.append(NOTHING if name == OURS else minus_ours(values, name, 4))
        lines.append([appearance(name).label, len(mine), *cells])
    ours = f"minus {appearance(OURS).label}"
    header = ["estimator", "runs", "gap (%)", "minus the start", ours]
    return markdown([*header, f"{ours}, over seeds ({LEVEL:.0%} interval)"], lines)


def _text(values: Tensor, sign: str = "") -> str:
    mean, error = mean_error(values)
    return f"{mean:{sign}.4f} ± {error:.4f}".replace("-", "−")
