"""The best of k tours as k doubles: independent, distinct and by beam search.

The first k of K samples are k samples, with and without replacement, so one sample of the largest size
tells the best of every smaller one. The first k of K beams are not a search with k beams, so that search
is repeated for every k.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor

import swor
from reproduction.harness.appearance import appearance
from reproduction.harness.errors import readable
from reproduction.harness.folder import RunFolder, replacing
from reproduction.harness.measurements import Advance, Job
from reproduction.harness.statistics import with_error
from reproduction.harness.tables import markdown
from reproduction.harness.task import seeded
from reproduction.tsp.measurement_settings import TSPBestOfK
from reproduction.tsp.model import AttentionModel
from reproduction.tsp.optimal import optimal_lengths
from reproduction.tsp.problem import tour_length
from swor.diagnostics.groups import duplicates

SHORTEST = {"optimal": "the shortest tour", "best found": "the best tour found"}
METHODS = ("sampling", "distinct", "beam_search")
PART = 100  # instances that are done between two files
AT_ONCE = 4096  # tours that are searched for at the same time


class BestOfK(NamedTuple):
    """The best of k tours of a method: a row of ``best_of_k.csv``; means over instances.

    Attributes:
        gap: to the reference, in percent, with its standard error.
        duplicates: share of the k tours that repeat an earlier one, in percent.
        reference: the length that a gap is measured from: of an optimal tour, or the best found.
    """

    nodes: int
    method: str
    k: int
    instances: int
    length: float
    gap: float
    gap_error: float
    duplicates: float
    reference: str


def sizes(most: int) -> list[int]:
    """Return the powers of two up to the largest number of tours, and that number.

    >>> sizes(6)
    [1, 2, 4, 6]
    """
    return sorted({2**i for i in range(most.bit_length())} | {most})


class Parts:
    """The parts of the instances, each done once, with its results in a file of the folder."""

    def __init__(
        self, settings: TSPBestOfK, model: AttentionModel, instances: Tensor, folder: RunFolder
    ) -> None:
        self.settings, self.model, self.folder = settings, model, folder
        self.instances = instances.split(PART)

    def path(self, number: int) -> Path:
        """Return the file of a part."""
        return self.folder.path / "parts" / f"{number:04d}.pt"

    def jobs(self) -> list[Job]:
        """Return the parts that are left to do."""
        left = [i for i in range(len(self.instances)) if not self.path(i).exists()]
        return [Job(f"part {i}", 1, partial(self.do, i)) for i in left]

    def do(self, number: int, advance: Advance) -> None:
        """Write the lengths of the best of k tours, (methods, n, sizes), and duplicates, (n, sizes)."""
        noise = seeded(self.settings.seed, "best-of-k", number)
        found = best_lengths(self.model, self.instances[number], self.settings.k, noise)
        with replacing(self.path(number)) as draft:
            torch.save(found, draft)
        advance()

    def read(self) -> tuple[Tensor, Tensor]:
        """Return the lengths and the duplicates of all instances."""
        paths = [self.path(i) for i in range(len(self.instances))]
        with readable(self.path(0).parent, "the files that tsp-best-of-k wrote", Exception):
            parts = [torch.load(path, weights_only=True) for path in paths]
        return torch.cat([a for a, _ in parts], 1), torch.cat([b for _, b in parts])


def best_lengths(
    model: AttentionModel, x: Tensor, most: int, noise: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Return lengths of the best of k tours, (methods, n, sizes), and duplicates, (n, sizes)."""
    independent = find_tours(model, x, most, partial(swor.ancestral_sample, generator=noise))
    distinct = find_tours(model, x, most, partial(swor.stochastic_beam_search, generator=noise))
    beams = [find_tours(model, x, k, swor.beam_search) for k in sizes(most)]
    x = x.double()  # hundredths of a percent are told apart
    by_k = [
        torch.stack([tour_length(x, v).amin(-1) for v in (independent[:, :k], distinct[:, :k], b)])
        for k, b in zip(sizes(most), beams, strict=True)
    ]
    repeats = [duplicates(independent[:, :k]) for k in sizes(most)]
    return torch.stack(by_k, -1), torch.stack(repeats, -1)


@torch.no_grad()
def find_tours(
    model: AttentionModel, x: Tensor, k: int, draw: Callable[..., swor.Sample]
) -> Tensor:
    """Find k tours of every instance, (n, k, nodes), for a part of the instances at a time."""
    return torch.cat([draw(model(part), k=k).value for part in x.split(max(AT_ONCE // k, 1))])


def best_of_k_rows(
    settings: TSPBestOfK, lengths: Tensor, repeats: Tensor, instances: Tensor
) -> list[BestOfK]:
    """Tabulate the mean length and gap of every method and k."""
    if settings.optimal:
        shortest, reference = optimal_lengths(instances, progress=True), "optimal"
    else:
        shortest, reference = lengths.amin((0, 2)), "best found"
    gaps, n = 100 * (lengths / shortest.unsqueeze(-1) - 1), len(instances)
    rows = []
    for method, length, gap in zip(METHODS, lengths, gaps, strict=True):
        for column, k in enumerate(sizes(settings.k)):
            at_k, share = gap[:, column], float(repeats[:, column].mean())
            row = BestOfK(
                nodes=settings.nodes,
                method=method,
                k=k,
                instances=n,
                length=float(length[:, column].mean()),
                gap=float(at_k.mean()),
                gap_error=float(at_k.std() / n**0.5),
                duplicates=100 * share if method == "sampling" else 0.0,
                reference=reference,
            )
            rows.append(row)
    return rows


def best_of_k_table(rows: pd.DataFrame) -> str:
    """Return a table in Markdown: a line for each k, the gap of every method with its standard error."""
    rows = rows.assign(
        cell=[with_error(*pair) for pair in zip(rows["gap"], rows["gap_error"], strict=True)]
    )
    cells = rows.pivot(index="k", columns="method", values="cell")
    repeats = rows[rows["method"] == "sampling"].set_index("k")["duplicates"]
    lines = [[k, *cells.loc[k, list(METHODS)], f"{repeats[k]:.1f}"] for k in cells.index]
    labels = [f"{appearance(method).label} (%)" for method in METHODS]
    return markdown(["tours k", *labels, "duplicates among independent (%)"], lines)


def answer(rows: pd.DataFrame) -> str:
    """Return a sentence that says how many independent tours a few distinct ones are worth."""
    by = rows.set_index(["method", "k"]).sort_index()
    few, first = marked(rows), rows.iloc[0]
    found, independent = by.loc[("distinct", few)], by.loc["sampling"]["gap"]
    many = equal_number(found["gap"], independent)
    policy, best = (
        f"With a trained policy for {first['nodes']} nodes",
        f"the best of {few} distinct tours",
    )
    gap = with_error(found["gap"], found["gap_error"])
    gap = f"{gap} % longer than {SHORTEST[first['reference']]}"
    if many <= few:
        return (
            f"{policy}, {best} is {gap}, and the best of {few} independent tours is not longer.\n"
        )
    worth = number_text(many, independent.index)
    return f"{policy}, it takes {worth} independent tours to match {best}, which is {gap}.\n"


def gaps_of(table: pd.DataFrame) -> dict[str, pd.Series[float]]:
    """Return the gap by k of every method."""
    return {str(name): part.set_index("k")["gap"] for name, part in table.groupby("method")}


def marked(table: pd.DataFrame) -> int:
    """Return the largest number of distinct tours that is worth a number of independent ones of the table."""
    gaps = gaps_of(table)
    worth = {k: equal_number(gap, gaps["sampling"]) for k, gap in gaps["distinct"].items()}
    return max((int(k) for k, many in worth.items() if np.isfinite(many)), default=1)


def number_text(many: float, ks: Iterable[int]) -> str:
    """Return the numbers of independent tours of the curve between which a number is.

    >>> (
    ...     number_text(97.0, (32, 64, 128)),
    ...     number_text(64.0, (32, 64)),
    ...     number_text(float("inf"), (32, 64)),
    ... )
    ('64 to 128', '64', 'more than 64')
    """
    below, above = ([k for k in ks if k <= many], [k for k in ks if k >= many])
    if not above:
        return f"more than {max(below)}"
    ends = dict.fromkeys((max(below, default=min(above)), min(above)))
    return " to ".join(map(str, ends))


def equal_number(gap: float, independent: pd.Series[float]) -> float:
    """Return the k with a gap by the curve of independent tours, linear in log k; infinity beyond its end.

    >>> equal_number(0.3, pd.Series({1: 0.5, 4: 0.1})), equal_number(0.05, pd.Series({1: 0.5}))
    (2.0, inf)
    """
    gaps = np.minimum.accumulate(independent.to_numpy())
    if gap < gaps[-1]:
        return float("inf")
    ks = np.log2(independent.index.to_numpy())
    return float(2.0 ** np.interp(-gap, -gaps, ks))
