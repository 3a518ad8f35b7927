r"""Exact lengths of shortest tours, by integer programming, found once and remembered.

$$\min \sum_e d_e x_e \quad \text{s.t.} \quad \sum_{e \ni i} x_e = 2, \quad x_e \in \{0, 1\}, \quad
\sum_{e \in \delta(A)} x_e \ge 2.$$

The last constraint forbids a tour of a part $A$ of the nodes; it is added for the parts that a
solution falls into, until it is in one piece (Dantzig, Fulkerson and Johnson 1954). The parts that
show while $x_e$ may still be fractional are the cheapest to find, so they come first.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from pathlib import Path

import highspy
import numpy as np
import pooch
import torch
from numpy.typing import NDArray
from rich.progress import track
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components, depth_first_order
from torch import Tensor

from reproduction.harness.folder import replacing
from reproduction.tsp.problem import check_instances, tour_length

TOUCHED = 1e-6  # an edge of a fractional solution counts from here
CURE = (
    "expected a cache that this user may write to, since shortest tours are found once and remembered. "
    "Change the permissions of the folder, or name another with the environment variable XDG_CACHE_HOME"
)
CHUNK = 100  # instances of up to 20 nodes per file of the cache: what is lost when the solver is stopped


def optimal_lengths(
    instances: Tensor, *, cache: Path | None = None, progress: bool = False
) -> Tensor:
    """Return the exact lengths of the shortest tours, (n,) in float64.

    The cache is a folder that remembers solved instances, (n, nodes, 2); by default ``swor/tsp`` in the
    cache of this user, such as ``~/.cache``.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     optimal_lengths(
    ...         torch.tensor([[[0.0, 0.0], [3.0, 0.0], [0.0, 4.0]]]), cache=Path(folder)
    ...     )
    tensor([12.], dtype=torch.float64)
    """
    check_instances(instances)
    folder = cache or Path(pooch.os_cache("swor")) / "tsp"
    chunks = instances.detach().cpu().double().split(chunk_size(instances.shape[1]))
    title = f"Shortest tours of {instances.shape[1]} nodes"
    solved = [_remembered(chunk, folder) for chunk in track(chunks, title, disable=not progress)]
    return torch.cat(solved).to(instances.device)


def chunk_size(nodes: int) -> int:
    """Return the number of instances per file of the cache, fewer of many nodes, which take longer.

    >>> [chunk_size(nodes) for nodes in (10, 20, 50, 100, 1000)]
    [100, 100, 16, 4, 1]
    """
    return max(1, min(CHUNK, CHUNK * 20**2 // nodes**2))


def _remembered(chunk: Tensor, folder: Path) -> Tensor:
    """Return lengths from the cache, after solving and adding those that are not there."""
    array = chunk.numpy()
    digest = hashlib.sha256(repr(array.shape).encode() + array.tobytes()).hexdigest()
    path = folder / f"{digest}.npy"
    if path.exists():
        with suppress(EOFError, ValueError):  # a damaged file, whose instances are solved again
            return torch.from_numpy(np.load(path).reshape(len(chunk)))
    tours = torch.tensor([shortest_tour(instance) for instance in array])
    lengths = tour_length(chunk, tours.unsqueeze(1)).squeeze(1)
    with replacing(path, CURE) as draft:
        np.save(draft, lengths.numpy())
    return lengths


def shortest_tour(places: NDArray[np.float64]) -> list[int]:
    """Return the nodes of an instance, (nodes, 2), in the order of a shortest tour.

    >>> shortest_tour(np.array([[0.0, 0.0], [1.0, 1.0], [1.0, 0.0], [0.0, 1.0]]))
    [0, 2, 1, 3]
    """
    if len(places) <= 3:
        return list(range(len(places)))
    program = _Program(places)
    for integer in (False, True):
        program.require(integer=integer)
        while len(parts := program.parts()) > 1:
            program.join(parts)
    return program.tour()


class _Program:
    """The integer program of an instance, with the constraints found so far."""

    def __init__(self, places: NDArray[np.float64]) -> None:
        self.nodes = len(places)
        self.ends = np.triu_indices(self.nodes, 1)
        length = np.linalg.norm(places[self.ends[0]] - places[self.ends[1]], axis=-1)
        self.edges = np.arange(len(length), dtype=np.int32)
        self.highs = highspy.Highs()  # type: ignore[no-untyped-call]
        self.highs.silent()
        options = {"threads": 1, "mip_rel_gap": 0.0, "mip_abs_gap": 1e-9}  # exact, not nearly
        for name, value in options.items():
            self.highs.setOptionValue(name, value)
        self.highs.addVars(len(length), np.zeros(len(length)), np.ones(len(length)))
        self.highs.changeColsCost(len(length), self.edges, length)
        for node in range(self.nodes):
            self._add_row(2.0, 2.0, (self.ends[0] == node) | (self.ends[1] == node))

    def _add_row(self, lower: float, upper: float, chosen: NDArray[np.bool_]) -> None:
        edges = self.edges[chosen]
        self.highs.addRow(lower, upper, len(edges), edges, np.ones(len(edges)))

    def require(self, *, integer: bool) -> None:
        """Allow integers only, or also fractions."""
        kind = highspy.HighsVarType.kInteger if integer else highspy.HighsVarType.kContinuous
        kinds = np.full(len(self.edges), int(kind), dtype=np.uint8)
        self.highs.changeColsIntegrality(len(self.edges), self.edges, kinds)

    def parts(self) -> list[NDArray[np.intp]]:
        """Solve the program, and return the connected parts of the solution."""
        self.highs.run()
        status = self.highs.getModelStatus()
        if status != highspy.HighsModelStatus.kOptimal:
            raise RuntimeError(
                f"the solver stopped with the status {status}; expected an optimal solution. "
                "Look for coordinates of very different sizes."
            )
        chosen = np.array(self.highs.getSolution().col_value) > TOUCHED
        ends = (self.ends[0][chosen], self.ends[1][chosen])
        self.graph = coo_array(
            (np.ones(len(ends[0])), ends), shape=(self.nodes, self.nodes)
        ).tocsr()
        count, labels = connected_components(self.graph, directed=False)
        return [np.flatnonzero(labels == part) for part in range(count)]

    def tour(self) -> list[int]:
        """Return the nodes of a solution in one piece, in the order of its cycle."""
        order, _ = depth_first_order(self.graph, 0, directed=False)
        return [int(node) for node in order]

    def join(self, parts: list[NDArray[np.intp]]) -> None:
        """Require that at least two edges leave every part."""
        for part in parts:
            self._add_row(2.0, np.inf, np.isin(self.ends[0], part) != np.isin(self.ends[1], part))
