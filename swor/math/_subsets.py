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
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import embedding  # rows of a table, by indices of any shape

from swor.math import _subset_tables
from swor.math._interface import Interior, LeftOut, product
from swor.math._subset_tables import Tables


def tables(k: int, like: Tensor) -> Tables:
    """Return the tables in the dtype and on the device of a tensor; compiled code has them as constants."""
    if torch.compiler.is_compiling():
        from swor.math import _compiled_tables

        return _compiled_tables.tables(operator.index(k), like.dtype, like.device)
    return _subset_tables.tables(k, like.dtype, like.device)


class Recursion(NamedTuple):
    r"""The sums $\hat h$, and what they are made of."""

    h: list[
        Tensor
    ]  # of the subsets of size 0, 1, …, each (subsets, batch), or (subsets, 1) if all are 1
    totals: Tensor  # (pairs, batch), T(A, i), by the place of the pair
    ratio: Tensor  # (k, k, batch), row i, column j: p_j / c_i
    log_c: Tensor  # (k, batch)


def recursion(log_p: Tensor, log_rest: Tensor, *, sizes: int) -> Recursion:
    r"""Run the recursion.

    Subsets are on the first axis, so that sums over their elements are vectorised over the batch.

    Args:
        log_p: (k, batch), finite; need not be normalised.
        log_rest: (batch,).
        sizes: the largest size of the subsets to compute.
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
