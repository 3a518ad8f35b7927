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
and $k!$, and float32 suffices for probabilities of any size. Without a rest $\hat h = 1$. The cost is
$O(k\,2^k)$ per sample.
"""

from __future__ import annotations

import math
import operator
from functools import lru_cache
from itertools import combinations
from typing import NamedTuple

import torch
from torch import Tensor

from swor.math._interface import Interior, LeftOut


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
def _cached(k: int, device: torch.device) -> tuple[tuple[Level, ...], Tensor]:
    with torch.inference_mode(False):  # an inference tensor here would break later gradients
        return levels(k, device), pairs_left_out(k, device)


def _constant(k: int, device: torch.device) -> tuple[tuple[Level, ...], Tensor]:
    return _cached(k, device)


# The same as torch.compiler.assume_constant_result, without loading the compiler: it takes the tables as
# they are, where tracing the loops that make them would take a minute.
setattr(_constant, "_dynamo_marked_constant", True)  # noqa: B010


def tables(k: int, device: torch.device) -> tuple[tuple[Level, ...], Tensor]:
    """Both tables, cached; compiled code has them as constants."""
    return _constant(operator.index(k), device)


def recursion(log_p: Tensor, log_rest: Tensor, *, sizes: int) -> tuple[list[Tensor], Tensor]:
    r"""Run the recursion.

    Subsets are on the first axis, so that sums over their elements are vectorised over the batch.

    Args:
        log_p: (k, *batch), finite; need not be normalised.
        log_rest: (*batch,).
        sizes: the largest size of the subsets to compute, at least 1.

    Returns:
        $\hat h$ of the subsets of size 0, 1, …, each (subsets, *batch), in the order of :class:`Level`, and
        $\log c$ (k, *batch).
    """
    log_c = torch.logaddexp(log_p, log_rest)
    ones = torch.ones_like(log_p)
    h, mass = [ones[:1], ones], ones
    if sizes == 1:
        return h, log_c
    largest = 0.9 * math.log(torch.finfo(log_p.dtype).max)  # beyond it, 1 / T is negligible
    ratio = (log_p.unsqueeze(0) - log_c.unsqueeze(1)).clamp(max=largest).exp().flatten(0, 1)
    for level in tables(log_p.shape[0], log_p.device)[0][1:sizes]:
        mass = ratio.index_select(0, level.step).add_(mass.index_select(0, level.before))
        terms = h[-1].index_select(0, level.smaller).div_(mass)
        h.append(terms.view(*level.shape, *log_rest.shape).sum(0))
    return h, log_c


def numbers(k: int, dtype: torch.dtype) -> int:
    """Return the approximate number of intermediate results for one set."""
    return k << k


def left_out(inner: Interior, *, second_order: bool = True) -> LeftOut:
    r"""Return $\hat h(S \setminus s)$ and $\hat h(S \setminus \{s, s'\}) / \hat h(S \setminus s)$.

    The scale is $c$. See :class:`swor.math._interface.LeftOut`.
    """
    k = inner.log_p.shape[0]
    h, log_c = recursion(inner.log_p, inner.log_rest, sizes=max(k - 1, 1))
    one, two = h[k - 1], None
    if second_order:
        two = h[max(k - 2, 0)].index_select(0, tables(k, one.device)[1])
        two = two.view(k, k, *one.shape[1:]) / one.unsqueeze(1)
    c = (inner.p + inner.rest).masked_fill_(inner.impossible, 0.0)
    return LeftOut(one, two, log_c, c)


def log_prob_set(inner: Interior) -> Tensor:
    """Return log p(S), (*batch,), for a normalised p."""
    h, log_c = recursion(inner.log_p, inner.log_rest, sizes=inner.log_p.shape[0])
    return h[-1].squeeze(0).log() + (inner.log_p - log_c).sum(0)
