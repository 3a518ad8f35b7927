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

import torch
from torch import Tensor

from swor.math import _subset_tables
from swor.math._interface import Interior, LeftOut
from swor.math._subset_tables import Level


def tables(k: int, device: torch.device) -> tuple[tuple[Level, ...], Tensor]:
    """Return both tables; compiled code has them as constants."""
    if torch.compiler.is_compiling():
        from swor.math import _compiled_tables

        return _compiled_tables.tables(operator.index(k), device)
    return _subset_tables.tables(k, device)


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
