"""Constant tables for the recursion over the subsets of a sample."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import combinations
from typing import NamedTuple

import torch
from torch import Tensor

Subset = tuple[int, ...]
ENORMOUS = 1e38  # whose reciprocal changes no sum; the gradient of an infinite one would be NaN


class Pairs(NamedTuple):
    """Pairs (A, i) of a subset and one of its elements, in tables of any shape."""

    element: Tensor  # i
    smaller: Tensor  # the position of A \\ i among the subsets of one element less
    place: Tensor  # the position of i and A \\ i among all elements and subsets of the others


class Tables(NamedTuple):
    """What the recursion needs for k elements.

    Subsets of one size are in the reverse order of ``itertools.combinations``, in which the s-th subset of
    size k − 1 is the one without s.
    """

    incidence: (
        Tensor  # (k, subsets + 1, k): for each i, the subsets that have i; at last ENORMOUS times i
    )
    own: Tensor  # (k, k, 1): 1 on the diagonal, 0 elsewhere
    ones: tuple[Tensor, Tensor]  # (1, 1) and (k, 1)
    levels: tuple[Pairs, ...]  # for the size 1, 2, …, k, each (size, subsets)
    left_out: Pairs  # (k, k), row s, column s': (S \\ s, s'); no pair on the diagonal


@lru_cache(maxsize=64)
def tables(k: int, dtype: torch.dtype, device: torch.device) -> Tables:
    """Return the tables, which are made once, in a thread of their own.

    The first call may be made under a transform of torch.func, an export or inference mode. Tensors that are
    made there belong to it, and would break every later call. All of these hold for one thread only.
    """
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(_made, k, dtype, device).result()


def _made(k: int, dtype: torch.dtype, device: torch.device) -> Tables:
    places = _places(k - 1)
    ones = torch.ones(k, 1, dtype=dtype, device=device)
    return Tables(
        incidence=_incidence(k, places).to(device, dtype),
        own=torch.eye(k, dtype=dtype, device=device).unsqueeze(-1),
        ones=(ones[:1], ones),
        levels=tuple(_level(k, size, places, device) for size in range(1, k + 1)),
        left_out=_left_out(k, places, device),
    )


def _subsets(k: int, size: int) -> list[Subset]:
    return list(combinations(range(k), size))[::-1]


def _places(k: int) -> dict[Subset, int]:
    """All subsets of k elements, smallest first, with their positions."""
    subsets = [a for size in range(k + 1) for a in _subsets(k, size)]
    return {a: n for n, a in enumerate(subsets)}


def _without(a: Subset, i: int) -> Subset:
    return tuple(x for x in a if x != i)


def _renumbered(a: Subset, i: int) -> Subset:
    """A subset without i, in numbers that skip i."""
    return tuple(x - (x > i) for x in a if x != i)


def _incidence(k: int, places: dict[Subset, int]) -> Tensor:
    member = torch.zeros(len(places) + 1, k - 1)
    for a, n in places.items():
        member[n, list(a)] = 1.0
    incidence = torch.zeros(k, len(places) + 1, k)
    for i in range(k):
        incidence[i][:, [j for j in range(k) if j != i]] = member
        incidence[i][:, i] = 1.0
        incidence[i][-1, i] = ENORMOUS
    return incidence


def _level(k: int, size: int, places: dict[Subset, int], device: torch.device) -> Pairs:
    before = {a: n for n, a in enumerate(_subsets(k, size - 1))}
    pairs = [[(a, a[j]) for a in _subsets(k, size)] for j in range(size)]
    smaller = [[before[_without(a, i)] for a, i in row] for row in pairs]
    element = [[i for _, i in row] for row in pairs]
    place = [[i * (len(places) + 1) + places[_renumbered(a, i)] for a, i in row] for row in pairs]
    return Pairs(*(torch.tensor(x, device=device) for x in (element, smaller, place)))


def _left_out(k: int, places: dict[Subset, int], device: torch.device) -> Pairs:
    before = {a: n for n, a in enumerate(_subsets(k, max(k - 2, 0)))}
    left = [[_without(_without(tuple(range(k)), s), t) for t in range(k)] for s in range(k)]
    element = [list(range(k)) for _ in range(k)]
    smaller = [[before.get(a, 0) for a in row] for row in left]
    place = [
        [
            t * (len(places) + 1) + (len(places) if s == t else places[_renumbered(a, t)])
            for t, a in enumerate(row)
        ]
        for s, row in enumerate(left)
    ]
    return Pairs(*(torch.tensor(x, device=device) for x in (element, smaller, place)))
