r"""Set probabilities and leave-one-out ratios by a recursion over the subsets of the sample.

With $t(A) = \text{rest} + \sum_{i \in A} p_i$, the sum over the orderings of $A$ obeys

$$h(\emptyset) = 1, \qquad h(A) = \frac{1}{t(A)} \sum_{i \in A} h(A \setminus i),$$

and then $p(S) = h(S) \prod_i p_i$, $p_s R(S, s) \propto h(S \setminus s)$, $R^{D \setminus s}(S, s')
= h(S \setminus \{s, s'\}) / (p_{s'} h(S \setminus s))$. All terms are positive, so nothing cancels.

However, $h$ itself can over- and underflow. Sort the sample so that $p_1 \le p_2 \le \dots$ and let
$\tau_j = \text{rest} + p_1 + \dots + p_j$. Then $\hat h(A) = h(A) \prod_{i \in A} \tau_i$ stays between
1 and a constant that depends on $k$ alone, since $\tau_{\max A} / t(A)$ lies in $[1, k]$. It obeys

$$\hat h(A) = \frac{1}{\hat t(A)} \sum_{i \in A} \frac{\tau_i}{\tau_{\max A}} \hat h(A \setminus i),
\qquad \hat t(A) = \frac{t(A)}{\tau_{\max A}},$$

where every factor is at most 1, so float32 suffices for probabilities of any size. With
$A' = A \setminus \max A$, the denominators obey
$\hat t(A) = \hat t(A') \, \tau_{\max A'} / \tau_{\max A} + p_{\max A} / \tau_{\max A}$. The cost is
$O(k\,2^k)$ per sample.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import accumulate, combinations
from typing import NamedTuple

import torch
from torch import Tensor


class Level(NamedTuple):
    """Index tables for the subsets of one size."""

    shape: tuple[int, int]  # number of subsets, size
    smaller: Tensor  # (subsets * size,): position of A \\ i among the subsets one smaller
    ratio: Tensor  # (subsets * size,): position of (i, max A) in a flat k × k table
    largest: Tensor  # (subsets,): max A
    before: Tensor  # (subsets,): position of A' = A \\ max A among the subsets one smaller
    step: Tensor  # (subsets,): position of (max A', max A) in a flat k × k table


def levels(k: int, device: torch.device) -> tuple[Level, ...]:
    """The subsets of k elements of size 1, 2, …, k, in the order of ``itertools.combinations``."""
    made: list[Level] = []
    position: dict[tuple[int, ...], int] = {(): 0}
    for size in range(1, k + 1):
        sets = list(combinations(range(k), size))
        smaller = [position[a[:j] + a[j + 1 :]] for a in sets for j in range(size)]
        ratio = [i * k + a[-1] for a in sets for i in a]
        before = [position[a[:-1]] for a in sets]
        step = [a[-2:][0] * k + a[-1] for a in sets]
        lists = (smaller, ratio, [a[-1] for a in sets], before, step)
        made.append(Level((len(sets), size), *(torch.tensor(x, device=device) for x in lists)))
        position = {a: j for j, a in enumerate(sets)}
    return tuple(made)


def pairs(k: int, device: torch.device) -> Tensor:
    """For every pair (i, j) of a flat k × k table, the position of the subset without i and j."""
    sets = {a: j for j, a in enumerate(combinations(range(k), k - 2))} if k > 1 else {}
    left_out = [(i, j) for i in range(k) for j in range(k)]
    found = [sets.get(tuple(x for x in range(k) if x not in pair), 0) for pair in left_out]
    return torch.tensor(found, device=device)


_levels, _pairs = lru_cache(maxsize=64)(levels), lru_cache(maxsize=64)(pairs)


def tables(k: int, device: torch.device) -> tuple[tuple[Level, ...], Tensor]:
    """Both tables, cached; during compilation they become constants of the graph instead."""
    if torch.compiler.is_compiling():
        return levels(k, device), pairs(k, device)
    with torch.inference_mode(
        False
    ):  # an inference tensor in the cache would break later gradients
        return _levels(k, device), _pairs(k, device)


def recursion(log_p: Tensor, log_rest: Tensor, *, sizes: int) -> tuple[list[Tensor], Tensor]:
    r"""Run the recursion on a sample sorted by ascending probability.

    Subsets are on the first axis, so that sums over their elements are vectorised over the batch.

    Args:
        log_p: (k, *batch), ascending; need not be normalised.
        log_rest: (*batch,).
        sizes: the largest size of the subsets to compute.

    Returns:
        $\hat h$ of the subsets of size 0, 1, …, each (subsets, *batch), in the order of
        ``itertools.combinations``, and $\log \tau$ (k, *batch).
    """
    k = len(log_p)
    log_tau = torch.stack(list(accumulate(log_p, torch.logaddexp, initial=log_rest))[1:])
    tau_ratio = torch.exp((log_tau.unsqueeze(1) - log_tau).clamp(max=0.0)).flatten(0, 1)
    share = torch.exp(log_p - log_tau)
    mass = torch.exp(log_rest - log_tau) + share  # of the subsets with one element
    h = [torch.ones_like(log_p[:1])]
    for level in tables(k, log_p.device)[0][:sizes]:
        if len(h) > 1:
            mass = mass.index_select(0, level.before) * tau_ratio.index_select(0, level.step)
            mass = mass + share.index_select(0, level.largest)
        terms = h[-1].index_select(0, level.smaller) * tau_ratio.index_select(0, level.ratio)
        h.append(terms.unflatten(0, level.shape).sum(1) / mass)
    return h, log_tau


def log_draws(
    log_p: Tensor, log_rest: Tensor, *, second_order: bool = True
) -> tuple[Tensor, Tensor]:
    r"""The logarithms of $p_s R(S, s)$ and of $p_{s'} R^{D \setminus s}(S, s')$, unnormalised.

    The former is the probability that $s$ was drawn first, given the set. The latter is, up to the factor
    $1 - p_s$, the probability that $s'$ was drawn second, given the set and that $s$ was drawn first.

    Args:
        log_p: (*batch, k); need not be normalised.
        log_rest: (*batch,).
        second_order: whether to compute the second result, which is meaningless otherwise.

    Returns:
        (*batch, k), up to an additive constant, and (*batch, k, k), row s, column s', with the same
        normalisation as ``log_p`` and a meaningless diagonal.
    """
    k = log_p.shape[-1]
    log_p, order = log_p.movedim(-1, 0).sort(0)
    h, log_tau = recursion(log_p, log_rest, sizes=k - 1)
    one, back = h[k - 1].flip(0).log(), inverse(order)
    first = (one + log_tau).gather(0, back).movedim(0, -1)
    if not second_order:
        return first, first.unsqueeze(-1)
    two = h[max(k - 2, 0)].log().index_select(0, tables(k, log_p.device)[1]).unflatten(0, (k, k))
    second = two - one.unsqueeze(1) + log_tau
    second = second.gather(0, back.unsqueeze(1).expand_as(second))
    second = second.gather(1, back.unsqueeze(0).expand_as(second))
    return first, second.movedim((0, 1), (-2, -1))


def inverse(order: Tensor) -> Tensor:
    """The inverse of each permutation, (k, *batch)."""
    places = torch.arange(len(order), device=order.device).view(-1, *[1] * (order.dim() - 1))
    return torch.empty_like(order).scatter(0, order, places.expand_as(order))


def log_prob_set(log_p: Tensor, log_rest: Tensor) -> Tensor:
    """Return log p(S), for a normalised p."""
    log_p = log_p.movedim(-1, 0).sort(0).values
    h, log_tau = recursion(log_p, log_rest, sizes=len(log_p))
    return h[-1].squeeze(0).log() + (log_p - log_tau).sum(0)
