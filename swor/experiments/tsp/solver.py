"""Exact lengths of shortest tours, found once and remembered."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from swor.experiments.files import cache as default_cache
from swor.experiments.folder import RunFolder
from swor.experiments.tsp.problem import check_instances, tour_length

CHUNK = 100  # instances per file of the cache: what is lost when the solver is stopped


def optimal_lengths(
    instances: Tensor, *, cache: Path | None = None, jobs: int = 1, progress: bool = False
) -> Tensor:
    """Lengths of the shortest tours, exactly, (n,) in float64.

    Args:
        instances: (n, nodes, 2).
        cache: the folder that remembers solved instances; by default ``swor/tsp`` in
            ``$XDG_CACHE_HOME`` or ``~/.cache``.
        jobs: the number of processes.
        progress: whether to show a progress bar.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     optimal_lengths(
    ...         torch.tensor([[[0.0, 0.0], [3.0, 0.0], [0.0, 4.0]]]), cache=Path(folder)
    ...     )
    tensor([12.], dtype=torch.float64)
    """
    check_instances(instances)
    chunks = instances.detach().cpu().double().split(CHUNK)
    solved = _solve(chunks, default_cache() / "tsp" if cache is None else cache, jobs)
    if progress:
        from rich.progress import track

        solved = track(solved, f"Shortest tours of {instances.shape[1]} nodes", total=len(chunks))
    return torch.cat(list(solved)).to(instances.device)


def _solve(chunks: tuple[Tensor, ...], folder: Path, jobs: int) -> Iterable[Tensor]:
    if jobs == 1:
        return (_remembered(chunk, folder) for chunk in chunks)
    from joblib import Parallel, delayed

    tasks = (delayed(_remembered)(chunk, folder) for chunk in chunks)
    lengths: Iterable[Tensor] = Parallel(n_jobs=jobs, return_as="generator")(tasks)
    return lengths


def _remembered(chunk: Tensor, folder: Path) -> Tensor:
    """Lengths from the cache; solved and added to it if they are not there."""
    array = chunk.numpy()
    digest = hashlib.sha256(repr(array.shape).encode() + array.tobytes()).hexdigest()
    path = folder / f"{digest}.npy"
    if not path.exists():
        from swor.experiments.tsp.integer_program import shortest_tour

        tours = torch.tensor([shortest_tour(instance) for instance in array])
        with RunFolder(folder).replacing(path.name) as draft:
            np.save(draft, tour_length(chunk, tours.unsqueeze(1)).squeeze(1).numpy())
    return torch.from_numpy(np.load(path))
