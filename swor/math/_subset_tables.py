"""Index tables for the recursion over the subsets of a sample."""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations
from typing import NamedTuple

import torch
from torch import Tensor


class Level(NamedTuple):
    """Index tables for the pairs (A, i) of the subsets of one size and their elements.

    Subsets are in the reverse order of ``itertools.combinations``, in which the s-th subset of size k − 1
    is the one without s. Pairs are ordered by the place of i in A, and then by A.
    """

    shape: tuple[int, int]  # size, number of subsets
    smaller: Tensor  # (pairs,): position of A \\ i among the subsets one smaller
    # (pairs,): position of (A \\ x, i) among the pairs one smaller, x the last element but i
    before: Tensor
    step: Tensor  # (pairs,): position of (i, x) in a flat k × k table


def levels(k: int, device: torch.device) -> tuple[Level, ...]:
    """The tables of the subsets of k elements of size 1, 2, …, k."""
    made: list[Level] = []
    place: dict[tuple[int, ...], int] = {(): 0}
    place_of_pair: dict[tuple[tuple[int, ...], int], int] = {}
    for size in range(1, k + 1):
        sets = list(combinations(range(k), size))[::-1]
        pairs = [(a, a[j]) for j in range(size) for a in sets]
        last = [([i] + [x for x in a if x != i])[-1] for a, i in pairs]
        smaller = [place[_without(a, i)] for a, i in pairs]
        before = [
            place_of_pair.get((_without(a, x), i), 0) for (a, i), x in zip(pairs, last, strict=True)
        ]
        step = [i * k + x for (_, i), x in zip(pairs, last, strict=True)]
        lists = (smaller, before, step)
        made.append(Level((size, len(sets)), *(torch.tensor(x, device=device) for x in lists)))
        place = {a: n for n, a in enumerate(sets)}
        place_of_pair = {pair: n for n, pair in enumerate(pairs)}
    return tuple(made)


def _without(a: tuple[int, ...], x: int) -> tuple[int, ...]:
    return tuple(y for y in a if y != x)


def pairs_left_out(k: int, device: torch.device) -> Tensor:
    """For every pair (i, j) of a flat k × k table, the position of the subset without i and j."""
    sets = list(combinations(range(k), 2))
    place = {pair: n for n, pair in enumerate(sets)}
    found = [place.get((min(i, j), max(i, j)), 0) for i in range(k) for j in range(k)]
    return torch.tensor(found, device=device)


@lru_cache(maxsize=64)
def tables(k: int, device: torch.device) -> tuple[tuple[Level, ...], Tensor]:
    """Return both tables, which are made once."""
    with torch.inference_mode(False):  # an inference tensor here would break later gradients
        return levels(k, device), pairs_left_out(k, device)
