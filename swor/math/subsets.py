r"""Set probabilities and leave-one-out ratios by a recursion over the subsets of the sample.

With $t(A) = \text{rest} + \sum_{i \in A} p_i$, the sum over the orderings of $A$ obeys

$$h(\emptyset) = 1, \qquad h(A) = \frac{1}{t(A)} \sum_{i \in A} h(A \setminus i),$$

and $p(S) = h(S) \prod_i p_i$, $p_s R(S, s) \propto h(S \setminus s)$, $R^{D \setminus s}(S, s')
= h(S \setminus \{s, s'\}) / (p_{s'} h(S \setminus s))$. All terms are positive: nothing cancels.

$h$ itself over- and underflows. Sort the sample so that $p_1 \le p_2 \le \dots$ and let
$\tau_j = \text{rest} + p_1 + \dots + p_j$. Then $\hat h(A) = h(A) \prod_{i \in A} \tau_i$ stays between
1 and a constant that depends on $k$ alone, since $\tau_{\max A} / t(A)$ lies in $[1, k]$. It obeys

$$\hat h(A) = \frac{1}{\hat t(A)} \sum_{i \in A} \frac{\tau_i}{\tau_{\max A}} \hat h(A \setminus i),
\qquad \hat t(A) = \frac{t(A)}{\tau_{\max A}},$$

where every factor is at most 1, so float32 is enough for probabilities of any size.
Cost $O(k\,2^k)$ per sample.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations
from typing import NamedTuple

import torch
from torch import Tensor


class _Level(NamedTuple):
    """The subsets of one size, as index lists into tables of the previous size."""

    members: list[list[int]]  # (subsets, size), ascending
    smaller: list[int]  # (subsets * size,): position of A \ i among the subsets one smaller
    ratio: list[int]  # (subsets * size,): position of (i, max A) in a flat k × k table


@lru_cache(maxsize=64)
def _levels(k: int) -> tuple[_Level, ...]:
    levels: list[_Level] = []
    position: dict[tuple[int, ...], int] = {(): 0}
    for size in range(1, k + 1):
        sets = list(combinations(range(k), size))
        smaller = [position[a[:j] + a[j + 1 :]] for a in sets for j in range(size)]
        ratio = [i * k + a[-1] for a in sets for i in a]
        levels.append(_Level([list(a) for a in sets], smaller, ratio))
        position = {a: j for j, a in enumerate(sets)}
    return tuple(levels)


def recursion(log_p: Tensor, log_rest: Tensor, *, sizes: int) -> tuple[list[Tensor], Tensor]:
    r"""Run the recursion on a sample sorted by ascending probability.

    Args:
        log_p: (*batch, k), ascending; need not be normalised.
        log_rest: (*batch,).
        sizes: the largest size of subset that is wanted.

    Returns:
        $\hat h$ of the subsets of size 0, 1, …, in the order of ``itertools.combinations``, and
        $\log \tau$ (*batch, k).
    """
    k = log_p.shape[-1]
    log_tau = torch.cat([log_rest.unsqueeze(-1), log_p], dim=-1).logcumsumexp(-1)[..., 1:]
    over = log_tau.unsqueeze(-2)  # the scale of the larger set, τ of its largest element
    tau_ratio = torch.exp((log_tau.unsqueeze(-1) - over).clamp(max=0.0)).flatten(-2)
    p_ratio = torch.exp((log_p.unsqueeze(-1) - over).clamp(max=0.0)).flatten(-2)
    rest_ratio = torch.exp(log_rest.unsqueeze(-1) - log_tau)
    levels = [torch.ones_like(log_rest).unsqueeze(-1)]
    for level in _levels(k)[:sizes]:
        levels.append(_next_level(level, levels[-1], tau_ratio, p_ratio, rest_ratio))
    return levels, log_tau


def _next_level(
    level: _Level, previous: Tensor, tau_ratio: Tensor, p_ratio: Tensor, rest_ratio: Tensor
) -> Tensor:
    shape = (len(level.members), len(level.members[0]))
    smaller = torch.tensor(level.smaller, device=previous.device)
    ratio = torch.tensor(level.ratio, device=previous.device)
    largest = torch.tensor([a[-1] for a in level.members], device=previous.device)
    terms = previous.index_select(-1, smaller) * tau_ratio.index_select(-1, ratio)
    masses = p_ratio.index_select(-1, ratio)
    mass = rest_ratio.index_select(-1, largest) + masses.unflatten(-1, shape).sum(-1)
    larger: Tensor = terms.unflatten(-1, shape).sum(-1) / mass
    return larger


@lru_cache(maxsize=64)
def _pairs(k: int) -> list[int]:
    """For every pair (i, j) of a flat k × k table, the position of S without both."""
    sets = {a: j for j, a in enumerate(combinations(range(k), k - 2))} if k > 1 else {}
    left_out = [frozenset((i, j)) for i in range(k) for j in range(k)]
    return [sets.get(tuple(x for x in range(k) if x not in pair), 0) for pair in left_out]


def log_draws(log_p: Tensor, log_rest: Tensor) -> tuple[Tensor, Tensor]:
    r"""The unnormalised logarithms of $p_s R(S, s)$, and those of $p_{s'} R^{D \setminus s}(S, s')$.

    These are the chances that $s$ was drawn first, and then $s'$ second, given the set.

    Args:
        log_p: (*batch, k); need not be normalised.
        log_rest: (*batch,).

    Returns:
        (*batch, k), up to a constant, and (*batch, k, k) in the units of ``log_p``, row s, column
        s', with a meaningless diagonal.
    """
    k = log_p.shape[-1]
    order = log_p.argsort(-1)
    levels, log_tau = recursion(log_p.gather(-1, order), log_rest, sizes=k - 1)
    one = levels[k - 1].flip(-1).log()
    pairs = torch.tensor(_pairs(k), device=log_p.device)
    two = levels[max(k - 2, 0)].log().index_select(-1, pairs).unflatten(-1, (k, k))
    second = two - one.unsqueeze(-1) + log_tau.unsqueeze(-2)
    back = order.argsort(-1)
    rows = back.unsqueeze(-1).expand_as(second)
    second = second.gather(-2, rows).gather(-1, back.unsqueeze(-2).expand_as(second))
    return (one + log_tau).gather(-1, back), second


def log_prob_set(log_p: Tensor, log_rest: Tensor) -> Tensor:
    """The logarithm of p(S), for a normalised p."""
    log_p = log_p.sort(-1).values
    levels, log_tau = recursion(log_p, log_rest, sizes=log_p.shape[-1])
    return levels[-1].squeeze(-1).log() + (log_p - log_tau).sum(-1)
