r"""The best of several draws by a chain over the subsets of the sample.

Given the sample $S$, the set $C$ of outcomes seen so far is a Markov chain: another draw is one of $C$
again, or a new outcome $i$,

$$\tau(C \to i) = p_i \quad (i \in C), \qquad
\tau(C \to i) = \frac{h(S \setminus (C \cup i))}{h(S \setminus C)} \quad (i \notin C),$$

with $h$ of :mod:`swor.math._subsets`: the second is $p_i$ times the probability of the remaining sample
after $i$, over that before $i$. So $X_n(C) = P(\text{supp}(x_1, \dots, x_n) = C \mid S)$ obeys

$$X_n(C) = p(C) \, X_{n-1}(C) + \sum_{i \in C} \tau(C \setminus i \to i) \, X_{n-1}(C \setminus i),$$

and with $f(C) = \max_{i \in C} f_i$ the coefficients are

$$c_s = m \sum_C \tau(C \to s) \left( X_{m-1}(C) \, f(C \cup s) - X_m(C) \, f(C) \right).$$

All terms are positive, and only the last difference cancels. For a target $p$ that is not the
distribution sampled from, $q$, a new outcome has the factor $p_i / q_i$ and the ratio of $h$ is that of $q$.
Cost $O(k \, 2^k)$ for each draw.
"""

from __future__ import annotations

import torch
from torch import Tensor

from swor.math._best_of import Draws
from swor.math._subset_tables import Pairs
from swor.math._subsets import recursion, tables


def sums(draws: Draws, f: Tensor, m: int, *, gradient: bool) -> tuple[Tensor, Tensor]:
    """Weights and coefficients, (*batch, k); the second is meaningless if not asked for.

    Args:
        draws: the sample, in ascending order of f.
        f: (*batch, k), ascending.
        m: the number of draws.
        gradient: whether the coefficients are wanted.
    """
    log_p, log_q, f = (x.movedim(-1, 0) for x in (draws.log_p, draws.log_q, f))
    levels = tables(len(log_q), log_q).levels[: m + 1]
    new = _new(draws, log_p, log_q, levels)
    before, after = _chain(_masses(log_p.exp(), levels), new, levels, m)
    best = [level.element[-1] for level in levels]  # f is ascending
    weight = torch.zeros_like(f)
    for x, attained in zip(after[1:], best, strict=True):
        weight = weight.index_add(0, attained, x)
    if not gradient:
        return weight.movedim(0, -1), weight.movedim(0, -1)
    value = [torch.zeros_like(f[:1])] + [f.index_select(0, attained) for attained in best]
    base = [torch.where(draws.enough, x, y) for x, y in zip(after, before, strict=True)]
    total = _coefficients(log_p.exp(), value, before, base, new, levels)
    return weight.movedim(0, -1), m * total.movedim(0, -1)


def _coefficients(
    p: Tensor,
    value: list[Tensor],
    before: list[Tensor],
    base: list[Tensor],
    new: list[Tensor],
    levels: tuple[Pairs, ...],
) -> Tensor:
    """The sum over all sets and the next draw, by the outcome of that draw, (k, *batch)."""
    total = torch.zeros_like(p)
    for j, level in enumerate(levels):
        own, owner = level.element.flatten(), _owner(level)
        smaller = level.smaller.flatten()
        again = ((before[j + 1] - base[j + 1]) * value[j + 1]).index_select(0, owner)
        gain = before[j].index_select(0, smaller) * value[j + 1].index_select(0, owner)
        lost = (base[j] * value[j]).index_select(0, smaller)
        drawn = again * p.index_select(0, own) + new[j] * (gain - lost)
        total = total.index_add(0, own, drawn)
    return total


def _chain(
    mass: list[Tensor], new: list[Tensor], levels: tuple[Pairs, ...], m: int
) -> tuple[list[Tensor], list[Tensor]]:
    """The probabilities of the sets seen after m − 1 and after m draws, by their size."""
    start = [torch.ones_like(mass[0])] + [torch.zeros_like(x) for x in mass[1:]]
    before = after = start
    for _ in range(m):
        before, after = after, _draw(after, mass, new, levels)
    return before, after


def _owner(level: Pairs) -> Tensor:
    """The position of the subset of every pair (A, i), (size * subsets,)."""
    size, count = level.element.shape
    return torch.arange(count, device=level.element.device).repeat(size)


def _masses(p: Tensor, levels: tuple[Pairs, ...]) -> list[Tensor]:
    """p(C) of the subsets of size 0, 1, …, each (subsets, *batch)."""
    mass = [torch.zeros_like(p[:1])]
    for level in levels:
        own = p.index_select(0, level.element[-1])
        mass.append(mass[-1].index_select(0, level.smaller[-1]) + own)
    return mass


def _new(draws: Draws, log_p: Tensor, log_q: Tensor, levels: tuple[Pairs, ...]) -> list[Tensor]:
    r"""$\tau(C \setminus i \to i)$ for every element of every subset, each (size * subsets, *batch)."""
    k, batch = len(log_q), draws.log_rest.shape
    found = recursion(log_q.reshape(k, batch.numel()), draws.log_rest.reshape(-1), sizes=k)
    h = [x.expand(len(x), batch.numel()).reshape(len(x), *batch) for x in found.h]
    step = torch.exp(log_p - log_q + found.log_c.reshape(k, *batch))
    exact = log_p.exp()
    new = []
    for size, level in enumerate(levels, start=1):
        own, smaller = level.element.flatten(), level.smaller.flatten()
        left, had = h[k - size].flip(0), h[k - size + 1].flip(0)  # complements, in the same order
        ratio = left.index_select(0, _owner(level)) / had.index_select(0, smaller)
        chance = step.index_select(0, own) * ratio
        new.append(torch.where(draws.covered, exact.index_select(0, own), chance))
    return new


def _draw(
    x: list[Tensor], mass: list[Tensor], new: list[Tensor], levels: tuple[Pairs, ...]
) -> list[Tensor]:
    """One more draw."""
    drawn = [x[0] * mass[0]]
    for j, level in enumerate(levels):
        smaller = level.smaller.flatten()
        terms = (x[j].index_select(0, smaller) * new[j]).unflatten(0, level.smaller.shape)
        drawn.append(x[j + 1] * mass[j + 1] + terms.sum(0))
    return drawn
