"""The gaps of runs at their validations, and the tours that they sampled in the end.

A folder that the command ``tsp-figures`` wrote stands for the runs that it was made from. So runs can be
added to a comparison whose own runs are no longer there.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import pandas as pd

from reproduction.harness.errors import UserError
from reproduction.harness.metrics import read_records
from reproduction.harness.settings import read_settings
from reproduction.harness.tables import read_table
from reproduction.tsp.settings import TSPSettings

COMMAND = "python -m reproduction tsp-figures"


class Gap(NamedTuple):
    """One validation of a run."""

    nodes: int
    estimator: str
    seed: int
    steps: int
    # Whether the model has learned something, in this run or in the one that it started from.
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
    """Read the gaps of runs, one row for each validation.

    Args:
        folders: of runs, or of what the command ``tsp-figures`` wrote; no run may be in two of them.
    """
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
    twice = gaps[gaps.duplicated(["estimator", "seed", "steps"])]
    if len(twice):
        estimator, seed = twice["estimator"].iloc[0], twice["seed"].iloc[0]
        raise UserError(
            f"two of the folders have a run of {estimator} with seed {seed}; expected one run for "
            "each estimator and seed. Leave one of them out."
        )
    return gaps


def read_sampled(folders: Sequence[Path], steps: int) -> list[Sampled]:
    """Read the means of the tours that each estimator sampled in the last quarter of ``steps`` steps."""
    found: dict[str, list[Sampled]] = {}
    for row in (row for folder in folders for row in _sampled(folder, steps)):
        found.setdefault(row.estimator, []).append(row)
    return [_pooled(rows) for rows in found.values()]


def in_last_quarter(step: int, steps: int) -> bool:
    """Whether a step is one of the last quarter of the first ``steps`` steps.

    >>> [step for step in range(9) if in_last_quarter(step, 8)]
    [7, 8]
    """
    return 0.75 * steps < step <= steps


def _gaps(folder: Path) -> list[Gap]:
    if _is_comparison(folder):
        return read_table(folder / "gaps.csv", Gap, COMMAND)
    settings = read_settings(TSPSettings, folder)
    return [
        Gap(
            nodes=settings.nodes,
            estimator=settings.estimator,
            seed=settings.seed,
            steps=record["step"],
            trained=record["step"] > 0 or settings.start_from is not None,
            instances=record["step"] * settings.instances,
            length=record["length"],
            gap=record["gap"],
            gap_standard_error=record["gap_standard_error"],
        )
        for record in read_records(folder, "valid")
    ]


def _sampled(folder: Path, steps: int) -> list[Sampled]:
    if _is_comparison(folder):
        rows = read_table(folder / "sampled.csv", Sampled, COMMAND)
        return [row for row in rows if row.steps == steps]
    late = [r for r in read_records(folder, "train") if in_last_quarter(r["step"], steps)]
    if not late:
        return []
    log_p, length = (fmean(record[name] for record in late) for name in ("log_p", "length"))
    return [Sampled(read_settings(TSPSettings, folder).estimator, steps, 1, log_p, length)]


def _is_comparison(folder: Path) -> bool:
    return (folder / "gaps.csv").exists()


def _pooled(rows: Sequence[Sampled]) -> Sampled:
    """The mean over all runs of rows of the same estimator."""
    runs = [row.runs for row in rows]
    log_p, length = (fmean([getattr(r, name) for r in rows], runs) for name in ("log_p", "length"))
    return rows[0]._replace(runs=sum(runs), log_p=log_p, length=length)
