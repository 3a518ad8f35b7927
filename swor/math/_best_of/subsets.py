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

All terms are positive, and only the last difference cancels. A sum over several $m$ has the same form, with
sums of the $X_m$ over $m$, so it takes one chain. For a target $p$ that is not the
distribution sampled from, $q$, a new outcome has the factor $p_i / q_i$ and the ratio of $h$ is that of $q$.
Cost $O(k \, 2^k)$ for each draw.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from swor.math._best_of import Draws, Terms
from swor.math._subsets import Pairs, recursion, tables


def sums(draws: Draws, f: Tensor, terms: Terms, *, gradient: bool) -> tuple[Tensor, Tensor]:
    """Weights and coefficients, (*batch, k), for ascending f; the second is meaningless if not asked for."""
    most = max(terms)
    log_p, log_q, f = (x.movedim(-1, 0) for x in (draws.log_p, draws.log_q, f))
    levels = tables(len(log_q), log_q).levels[: most + 1]
    new = _new(draws, log_p, log_q, levels)
    scale = most * terms[most] if gradient else 0.0
    seen = _chain(_masses(log_p.exp(), levels), new, levels, terms, draws.room, scale)
    best = [level.element[-1] for level in levels]  # f is ascending
    weight = torch.zeros_like(f)
    for x, attained in zip(seen.after[1:], best, strict=True):
        weight = weight.index_add(0, attained, x)
    if not gradient:
        return weight.movedim(0, -1), weight.movedim(0, -1)
    value = [torch.zeros_like(f[:1])] + [f.index_select(0, attained) for attained in best]
    total = _coefficients(log_p.exp(), value, seen.before, seen.base, new, levels)
    return weight.movedim(0, -1), scale * total.movedim(0, -1)


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


class _Seen(NamedTuple):
    """Sums over the terms of the probabilities of the sets seen so far, by their size."""

    after: list[Tensor]  # after m draws, times the share
    before: list[Tensor]  # after m − 1 draws, times m and the share, in units of the last term
    base: list[Tensor]  # likewise after the draws of the baseline, m or m − 1


def _chain(
    mass: list[Tensor],
    new: list[Tensor],
    levels: tuple[Pairs, ...],
    terms: Terms,
    room: Tensor,
    scale: float,
) -> _Seen:
    """One chain for all terms; if scale is 0, without what the gradient needs."""
    after = [torch.ones_like(mass[0])] + [torch.zeros_like(x) for x in mass[1:]]
    seen = _Seen([], [], [])
    for m in range(1, max(terms) + 1):
        before, after = after, _draw(after, mass, new, levels)
        if m not in terms:
            continue
        seen = seen._replace(after=_plus(seen.after, after, terms[m]))
        if scale:
            share = m * terms[m] / scale
            base = [torch.where(room > m, x, y) for x, y in zip(after, before, strict=True)]
            earlier = _plus(seen.before, before, share)
            seen = seen._replace(before=earlier, base=_plus(seen.base, base, share))
    return seen


def _plus(total: list[Tensor], x: list[Tensor], share: float) -> list[Tensor]:
    """Add a term to a sum, which is empty at first."""
    term = x if share == 1.0 else [share * y for y in x]
    return [a + b for a, b in zip(total, term, strict=True)] if total else term


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
