r"""Set probabilities and leave-one-out ratios by a recursion over the subsets of the sample.

With $t(A) = \text{rest} + \sum_{i \in A} p_i$, the sum over the orderings of $A$ obeys

$$h(\emptyset) = 1, \qquad h(A) = \frac{1}{t(A)} \sum_{i \in A} h(A \setminus i),$$

and then $p(S) = h(S) \prod_i p_i$, $p_s R(S, s) \propto h(S \setminus s)$, $R^{D \setminus s}(S, s')
= h(S \setminus \{s, s'\}) / (p_{s'} h(S \setminus s))$. All terms are positive, so nothing cancels.

However, $h$ itself can over- and underflow. With $c_i = \text{rest} + p_i$, the scaled
$\hat h(A) = h(A) \prod_{i \in A} c_i$ obeys

$$\hat h(A) = \sum_{i \in A} \frac{\hat h(A \setminus i)}{T(A, i)}, \qquad
T(A, i) = \frac{t(A)}{c_i} = 1 + \sum_{j \in A \setminus i} \frac{p_j}{c_i}.$$

The factors $1 / T(A, i)$ are at most 1, and their sum over $i$ is at least 1. Hence $\hat h$ stays between 1
and $k!$, and float32 suffices for probabilities of any size. Without a rest $\hat h = 1$.

All $T$ are one matrix product of the ratios $p_j / c_i$ with a constant incidence matrix, and each size of
subsets takes one gather of $T$, one of $\hat h$, a division and a sum. There are $k\,2^{k-1}$ pairs
$(A, i)$.
"""

from __future__ import annotations

import math
import operator
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import combinations
from typing import NamedTuple, cast

import torch
from torch import Tensor
from torch.nn.functional import embedding  # rows of a table, by indices of any shape

from swor.math._interface import Interior, LeftOut, product

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

    # For each i, the subsets that have i; at last ENORMOUS times i.
    incidence: Tensor  # (k, subsets + 1, k)
    own: Tensor  # (k, k, 1): 1 on the diagonal, 0 elsewhere
    ones: tuple[Tensor, Tensor]  # (1, 1) and (k, 1)
    levels: tuple[Pairs, ...]  # for the size 1, 2, …, k, each (size, subsets)
    left_out: Pairs  # (k, k), row s, column s': (S \\ s, s'); no pair on the diagonal


def tables(k: int, like: Tensor) -> Tables:
    """Return the tables in the dtype and on the device of a tensor."""
    if torch.compiler.is_compiling():  # which would take a minute to trace how they are made
        from swor.math._compiled import constant

        return cast(Tables, constant(_tables, operator.index(k), like.dtype, like.device))
    return _tables(k, like.dtype, like.device)


class Recursion(NamedTuple):
    r"""The sums $\hat h$, and what they are made of."""

    # Of the subsets of size 0, 1, …, each (subsets, batch), or (subsets, 1) if all are 1.
    h: list[Tensor]
    totals: Tensor  # (pairs, batch), T(A, i), by the place of the pair
    ratio: Tensor  # (k, k, batch), row i, column j: p_j / c_i
    log_c: Tensor  # (k, batch)


def recursion(log_p: Tensor, log_rest: Tensor, *, sizes: int) -> Recursion:
    """Run the recursion for finite log_p (k, batch) and log_rest (batch,), up to subsets of a size.

    Subsets are on the first axis, so that sums over their elements are vectorised over the batch.
    """
    k = log_p.shape[0]
    table = tables(k, log_p)
    log_c = torch.logaddexp(log_p, log_rest)
    largest = math.log(torch.finfo(log_p.dtype).max / (2 * k))  # beyond it, 1 / T is negligible
    ratio = (log_p - log_c.unsqueeze(1)).clamp(max=largest).exp_()
    totals = product(table.incidence, torch.maximum(ratio, table.own)).flatten(0, 1)
    h = list(table.ones)
    for pairs in table.levels[1:sizes]:
        total = embedding(pairs.place, totals)
        # A single element has 1.
        terms = total.reciprocal() if len(h) == 2 else embedding(pairs.smaller, h[-1]).div_(total)
        h.append(terms.sum(0))
    return Recursion(h, totals, ratio, log_c)


def numbers(k: int, dtype: torch.dtype) -> int:
    """Return the approximate number of intermediate results for one set."""
    return k << k


def left_out(inner: Interior, *, second_order: bool = True) -> LeftOut:
    r"""Return $\hat h(S \setminus s)$ and $\hat h(S \setminus \{s, s'\}) / \hat h(S \setminus s)$.

    The scale is $c$. See :class:`swor.math._interface.LeftOut`.
    """
    k = inner.log_p.shape[0]
    found, table = recursion(inner.log_p, inner.log_rest, sizes=k - 2), tables(k, inner.log_p)
    pairs = table.left_out
    if k == 1:
        return LeftOut(found.h[0], found.ratio if second_order else None, found.log_c)
    without = embedding(pairs.smaller, found.h[k - 2])
    one = (without / embedding(pairs.place, found.totals)).sum(1)
    if not second_order:
        return LeftOut(one, None, found.log_c)
    two = torch.lerp(without / one.unsqueeze(1), found.ratio, table.own)  # a mask would be slower
    return LeftOut(one, two, found.log_c)


def log_prob_set(inner: Interior) -> Tensor:
    """Return log p(S), (batch,), for a normalised p."""
    found = recursion(inner.log_p, inner.log_rest, sizes=inner.log_p.shape[0])
    return found.h[inner.log_p.shape[0]].squeeze(0).log() + (inner.log_p - found.log_c).sum(0)


def _tables(k: int, dtype: torch.dtype, device: torch.device) -> Tables:
    return made_once(k, dtype, device)  # the compiler takes no cached function as an argument


@lru_cache(maxsize=64)
def made_once(k: int, dtype: torch.dtype, device: torch.device) -> Tables:
    """Return the tables, which are made in a thread of their own.

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
