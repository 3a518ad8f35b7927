r"""Differences between trained models, instance by instance.

$$\bar d = \frac1n \sum_i d_i, \qquad \text{standard error } \frac{s_d}{\sqrt n}, \qquad
d_i = g_i^{\text{other}} - g_i^{\text{ours}}$$

Gaps $g_i$ of the same instance have most of their noise in common, so that their difference is known far
better than either. The gap of an estimator is the mean over its runs. Its error over the instances says what
these models differ by; whether other seeds would differ as much is what the interval over the seeds says.

A folder that the command ``tsp-paired`` wrote stands for the runs that it was made from. So runs can be added
to a comparison whose own models are no longer there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from zipfile import BadZipFile

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from reproduction.harness.appearance import appearance, in_order
from reproduction.harness.errors import UserError, check_one_of_each, readable
from reproduction.harness.folder import replacing
from reproduction.harness.models import MODEL
from reproduction.harness.settings import read_settings
from reproduction.harness.statistics import INTERVAL, OURS, minus, minus_ours
from reproduction.harness.tables import markdown
from reproduction.tsp.model import load_attention_model
from reproduction.tsp.optimal import optimal_lengths
from reproduction.tsp.problem import validation_instances
from reproduction.tsp.rollout import greedy_lengths
from reproduction.tsp.settings import TSPSettings, with_start

FILE = "final_gaps.npz"
DIGITS = 4  # of a gap in percent: those of shortest tours become 0, and the file small
ABOUT = ("nodes", "start_sha256")  # names in the file that are not of gaps
DAMAGE = (ValueError, KeyError, OSError, EOFError, BadZipFile)
NOTHING = "–"
Runs = Mapping[tuple[str, int], Tensor]
"""Of each estimator and seed, the gaps in percent of the same instances, (n,)."""


@dataclass(frozen=True)
class FinalGaps:
    """Gaps in percent of the greedy tours of the same instances, each (n,) in float64.

    Attributes:
        nodes: number of nodes of an instance.
        start_sha256: of the weights that all of the runs started from; empty if they started from none.
        start: gaps of the model that they started from; None without one, or if it is no longer there.
        runs: gaps by estimator and seed.
    """

    nodes: int
    start_sha256: str
    start: Tensor | None
    runs: dict[tuple[str, int], Tensor]

    def write(self, folder: Path) -> None:
        """Write the gaps to a folder."""
        arrays = {f"{name}-{seed}": gaps.numpy() for (name, seed), gaps in self.runs.items()}
        if self.start is not None:
            arrays["start"] = self.start.numpy()
        arrays |= {"nodes": np.array(self.nodes), "start_sha256": np.array(self.start_sha256)}
        with replacing(folder / FILE) as draft, draft.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)


def final_gaps(folders: Sequence[Path], count: int) -> FinalGaps:
    """Return the gaps on ``count`` instances of all runs in folders of runs and of earlier comparisons."""
    earlier = [_with(count, folder) for folder in folders if (folder / FILE).is_file()]
    trained = {folder: _finished(folder) for folder in folders if not (folder / FILE).is_file()}
    kinds = [(part.nodes, part.start_sha256) for part in earlier]
    kinds += [(run.nodes, run.start_sha256 or "") for run in trained.values()]
    nodes, start_sha256 = _shared(kinds)
    runs = [item for part in earlier for item in part.runs.items()]
    check_one_of_each(
        [*(key for key, _ in runs), *((run.estimator, run.seed) for run in trained.values())]
    )
    starts = [part.start for part in earlier if part.start is not None]
    if trained:
        instances = validation_instances(count, nodes)
        optimal = optimal_lengths(instances, progress=True)
        for folder, run in trained.items():
            runs.append(((run.estimator, run.seed), _gaps(folder / MODEL, instances, optimal)))
            if not starts and run.start_from is not None and run.start_from.is_file():
                starts.append(_gaps(run.start_from, instances, optimal))
    return FinalGaps(nodes, start_sha256, starts[0] if starts else None, dict(runs))


def _gaps(model: Path, instances: Tensor, optimal: Tensor) -> Tensor:
    """Return the gaps in percent of the greedy tours of a model, rounded."""
    lengths = greedy_lengths(load_attention_model(model), instances).double()
    # Adding 0.0 turns a rounded −0.0 into 0.0.
    return (100 * (lengths / optimal - 1)).round(decimals=DIGITS) + 0.0


def _shared(kinds: Sequence[tuple[int, str]]) -> tuple[int, str]:
    """Return the number of nodes and the start that all runs must have in common."""
    for name, values in zip(("nodes", "start_sha256"), zip(*kinds, strict=True), strict=True):
        if len(set(values)) > 1:
            raise UserError(
                f"the runs have different {name}; expected the same, since their gaps are compared "
                "instance by instance. Give those that belong together."
            )
    return kinds[0]


def _finished(folder: Path) -> TSPSettings:
    """Return the settings of a run, which must be finished, and its start, if it is there, unchanged."""
    run = read_settings(TSPSettings, folder)
    if not (folder / MODEL).is_file():
        raise UserError(
            f"{folder} has no {MODEL}; expected a finished run. Continue it with: python -m "
            f"reproduction tsp --resume {folder}"
        )
    if run.start_from is not None and run.start_from.is_file():
        with_start(run)
    return run


def read_final_gaps(folder: Path) -> FinalGaps:
    """Read what :meth:`FinalGaps.write` wrote."""
    path = folder / FILE
    with readable(path, "the gaps that tsp-paired wrote", *DAMAGE), np.load(path) as arrays:
        nodes, start_sha256 = int(arrays["nodes"]), str(arrays["start_sha256"])
        gaps = {name: torch.from_numpy(arrays[name]) for name in arrays if name not in ABOUT}
        start = gaps.pop("start", None)
        runs = {(name, int(seed)): gaps[key] for key in gaps for name, seed in [key.rsplit("-", 1)]}
    return FinalGaps(nodes, start_sha256, start, runs)


def _with(count: int, folder: Path) -> FinalGaps:
    """Read the gaps of a folder, which must be those of ``count`` instances."""
    gaps = read_final_gaps(folder)
    found = {len(values) for values in gaps.runs.values()}
    if found != {count}:
        raise UserError(
            f"{folder} compares {sorted(found)} instances, and --instances is {count}; expected as many. "
            "Give --instances of that comparison, or the runs themselves."
        )
    return gaps


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
    return markdown([*header, f"{ours}, over seeds ({INTERVAL})"], lines)


def _text(values: Tensor, sign: str = "") -> str:
    mean, error = mean_error(values)
    return minus(f"{mean:{sign}.4f} ± {error:.4f}")
