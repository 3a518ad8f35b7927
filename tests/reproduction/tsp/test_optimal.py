"""The exact solver against dynamic programming, and what it remembers."""

from __future__ import annotations

import errno
import math
from itertools import combinations
from pathlib import Path

import pytest
import torch
from torch import Tensor

from reproduction.harness.errors import UserError
from reproduction.tsp import optimal as solver
from reproduction.tsp.optimal import optimal_lengths
from reproduction.tsp.problem import random_instances, validation_instances


def held_karp(places: Tensor) -> float:
    """The length of a shortest tour: d(A, j), the shortest way from 0 through A that ends in j."""
    n = len(places)
    d = torch.cdist(places.double(), places.double(), compute_mode="donot_use_mm_for_euclid_dist")
    d = d.tolist()
    best = {(frozenset([j]), j): d[0][j] for j in range(1, n)}
    for size in range(2, n):
        for part in map(frozenset, combinations(range(1, n), size)):
            for j in part:
                best[part, j] = min(best[part - {j}, i] + d[i][j] for i in part - {j})
    return min(best[frozenset(range(1, n)), j] + d[j][0] for j in range(1, n))


@pytest.mark.parametrize("nodes", [2, 3, 4, 5, 7, 9])
def test_optimal_lengths_are_those_of_held_karp(nodes: int, tmp_path: Path) -> None:
    count = 10 if nodes < 9 else 6
    x = random_instances(count, nodes, generator=torch.Generator().manual_seed(nodes))
    expected = torch.tensor([held_karp(places) for places in x], dtype=torch.float64)
    torch.testing.assert_close(optimal_lengths(x, cache=tmp_path), expected, rtol=1e-12, atol=0)


def test_optimal_lengths_of_clusters_lines_and_repeated_nodes(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    clusters = 0.01 * torch.rand(3, 9, 2, generator=generator) + torch.arange(3).repeat(3)[:, None]
    line = torch.stack([torch.rand(9, generator=generator), torch.zeros(9)], -1)
    repeated = torch.rand(3, 2, generator=generator).repeat(3, 1)
    x = torch.cat([clusters, line[None], repeated[None]])
    expected = torch.tensor([held_karp(places) for places in x], dtype=torch.float64)
    found = optimal_lengths(x, cache=tmp_path)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
def test_optimal_lengths_with_a_bar(tmp_path: Path) -> None:
    x = validation_instances(250, 8)
    together = optimal_lengths(x, cache=tmp_path / "a", progress=True)
    torch.testing.assert_close(together, optimal_lengths(x, cache=tmp_path / "b"), rtol=0, atol=0)


def test_what_is_solved_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = random_instances(10, 6, generator=torch.Generator().manual_seed(0))
    monkeypatch.setattr(solver, "CHUNK", 4)
    first = optimal_lengths(x[:4], cache=tmp_path)
    solved = []
    monkeypatch.setattr(
        solver,
        "shortest_tour",
        lambda places, solve=solver.shortest_tour: solved.append(0) or solve(places),
    )
    torch.testing.assert_close(optimal_lengths(x, cache=tmp_path)[:4], first, rtol=0, atol=0)
    assert len(solved) == 6  # not those of the first part
    optimal_lengths(x, cache=tmp_path)
    assert len(solved) == 6


def test_a_damaged_file_of_the_cache_is_made_again(tmp_path: Path) -> None:
    x = random_instances(3, 5, generator=torch.Generator().manual_seed(0))
    found = optimal_lengths(x, cache=tmp_path)
    (path,) = tmp_path.iterdir()
    content = path.read_bytes()
    for damaged in (b"", b"not an array", content[:-1], content[:-24], content[:50]):
        path.write_bytes(damaged)
        assert torch.equal(optimal_lengths(x, cache=tmp_path), found)
        assert path.read_bytes() == content


def test_a_solver_that_is_stopped_keeps_what_it_solved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = random_instances(6, 5, generator=torch.Generator().manual_seed(0))
    monkeypatch.setattr(solver, "CHUNK", 2)
    solve, calls = solver.shortest_tour, []

    def stops(places):
        calls.append(0)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return solve(places)

    monkeypatch.setattr(solver, "shortest_tour", stops)
    with pytest.raises(KeyboardInterrupt):
        optimal_lengths(x, cache=tmp_path)
    assert [path.suffix for path in tmp_path.iterdir()] == [".npy"]  # whole files only
    optimal_lengths(x, cache=tmp_path)
    assert len(calls) == 8


@pytest.mark.parametrize(
    "instances", [torch.rand(4, 2), torch.rand(2, 1, 2), torch.full((1, 4, 2), math.nan)]
)
def test_optimal_lengths_of_no_instances(instances: Tensor, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="instance"):
        optimal_lengths(instances, cache=tmp_path)
    assert not any(tmp_path.iterdir())


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("no folder can be in a file")

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "mkdir", refuse)
        with pytest.raises(UserError, match=r"cache/.*\.npy could not be written \(Read-only.*XDG"):
            optimal_lengths(torch.rand(1, 3, 2), cache=tmp_path / "cache")
