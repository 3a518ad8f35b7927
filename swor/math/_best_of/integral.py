r"""The best of several draws, and its variance, by power series at the nodes of a quadrature.

Inside the integral over the race's time $t$ (:mod:`swor.math._integral`), with $v_u = 1 - e^{-q_u t}$, the
sum over subsets factorises: for every $A \subseteq S$

$$\sum_{U \subseteq A} Z(U, n) \prod_{i \in S \setminus U} v_i
= n! \, [x^n] \prod_{u \in A} b_u(x) \prod_{i \in S} v_i, \qquad
b_u(x) = 1 + \frac{e^{p_u x} - 1}{v_u}.$$

All coefficients are positive. The variable $x$ is scaled at each node by $m / \sum_u (p_u / v_u)$, so that
the coefficients of products of the $b_u$ are at most $e^m$, and that of $x^m$ is not small.

Sort the sample by $f$. The maximum is $f_j$ if no draw is above $j$ and at least one is $j$, so with the
prefix products $P_j = b_1 \cdots b_j$ its weight is $m! [x^m] P_{j-1} (b_j - 1)$. If one draw is known to be
$s$, its factor is $e^{p_s x} / v_s$ in place of $b_s$. With the suffix sums

$$R_s = \sum_{j \ge s} f_j \, b_s \cdots b_{j-1} (b_j - 1) = f_s (b_s - 1) + b_s R_{s+1},$$

the two expectations of $c_s$ (:mod:`swor.math._best_of.weights`) are $p_s / v_s$ times

$$E[1\{x_{n+1} = s\} f(x_1, \dots, x_{n+1}) \mid S] \to n! [x^n] \, e^{p_s x} P_{s-1} (f_s + R_{s+1}),$$

$$E[1\{x_{n+1} = s\} f(x_1, \dots, x_n) \mid S] \to n! [x^n] \, \Bigl( \sum_{j<s} f_j P_{j-1} (b_j - 1)
+ P_{s-1} \bigl( f_s (e^{p_s x} - 1) + e^{p_s x} R_{s+1} \bigr) \Bigr).$$

Series are extended by one factor at a time, and none is divided by another. Cost $O(m^2 k)$ per node. A sum
over several numbers of draws reads several coefficients of the same series, those of the largest number.
"""

from __future__ import annotations

import math
from math import comb
from typing import NamedTuple

import torch
from torch import Tensor

from swor._checks import may_inspect
from swor.math._best_of import Draws, Terms
from swor.math._integral import integrand, nodes_for

LARGEST_PART = 2**22  # numbers in the series that are kept for a part of the batch


class Factors(NamedTuple):
    """The factors of all outcomes at all nodes, for the scaled variable."""

    first: Tensor  # (k, batch, nodes), p / v: the factor of the first draw of an outcome
    again: Tensor  # (k, batch, nodes), p: the factor of each further draw of it
    log_f: Tensor  # (batch, nodes), the weights of the quadrature for p(S), which sum to 1
    log_x: Tensor  # (batch, nodes), the scale of the variable

    def weight(self, n: int) -> Tensor:
        """The weight of the coefficient of the n-th power at each node, (batch, nodes)."""
        return torch.exp(self.log_f - n * self.log_x + math.lgamma(n + 1))


def factors_of(draws: Draws, m: int, *, left_out: int) -> Factors:
    """The factors for m draws, of which at most ``left_out`` outcomes will be taken out of the race."""
    k = draws.log_q.shape[-1]
    left_out = min(left_out, k)
    count = node_count(draws.log_q.dtype, k, max(k - left_out - _impossible(draws), 0))
    f = integrand(draws.log_q, draws.log_rest, left_out=left_out, nodes=count)
    log_p, covered = draws.log_p.unsqueeze(-1), draws.covered.unsqueeze(-1)
    log_first = (log_p - draws.log_q.unsqueeze(-1)) + (f.log_p_over_u.unsqueeze(-1) - f.log_u)
    log_first = torch.where(covered.unsqueeze(-1), log_p, log_first)
    log_total = log_first.logsumexp(-2)
    log_x = math.log(m) - log_total.masked_fill(log_total == -torch.inf, 0.0)  # nothing to draw
    return Factors(
        first=torch.exp(log_first + log_x.unsqueeze(-2)).movedim(-2, 0),
        again=torch.exp(log_p + log_x.unsqueeze(-2)).movedim(-2, 0),
        log_f=torch.where(covered, 0.0, f.log_f).log_softmax(-1),
        log_x=log_x,
    )


def _impossible(draws: Draws) -> int:
    """The largest number of impossible outcomes of an element of the batch; 0 if it may not be inspected."""
    if not may_inspect(draws.log_p) or not draws.log_p.numel():
        return 0
    return int((draws.log_p == -torch.inf).sum(-1).max())


def node_count(dtype: torch.dtype, k: int, left: int) -> int:
    r"""Nodes that bring the quadrature error below 1e-13 (float64) or below rounding (float32).

    With at least $r$ factors left the integrand falls off on the left like $e^{(r + 1) x}$, and with all $k$
    of them its peak has a width of $1 / \sqrt{k + 1}$. They share the grid, so it is wide and fine.
    """
    drop = -math.log(torch.finfo(dtype).eps) + 2.0
    density = 2.4 if dtype == torch.float64 else 1.6
    width = drop / (left + 1) + 4.0
    return max(nodes_for(dtype), math.ceil(density * width * math.sqrt(k + 1)))


def more(again: Tensor, series: Tensor) -> Tensor:
    r"""$\frac{e^{\beta x} - 1}{\beta}$ times a series: the contribution of the draws of one more outcome.

    Here $\beta$ is ``again``, (*shape), and the series is given by its coefficients, (terms, *shape).
    """
    product = torch.zeros_like(again * series)
    factor = torch.ones_like(again)
    for n in range(1, len(series)):
        factor = factor * again / n if n > 1 else factor
        product[n:] += factor * series[:-n]
    return product


def constant(value: Tensor, degree: int) -> Tensor:
    """The series of a constant, (degree + 1, *shape)."""
    return torch.cat([value.unsqueeze(0), value.new_zeros(degree, *value.shape)])


def parts(draws: Draws, f: Tensor, m: int) -> list[tuple[Draws, Tensor]]:
    """The batch as one axis, in parts for which k series of degree m take a limited memory."""
    k = f.shape[-1]
    size = max(1, LARGEST_PART // (k * (m + 1) * nodes_for(f.dtype)))
    flat = [x.reshape(-1, k) if x.dim() == f.dim() else x.reshape(-1) for x in (*draws, f)]
    split = zip(*(x.split(size) for x in flat), strict=True)
    return [(Draws(*part[:-1]), part[-1]) for part in split]


def sums(draws: Draws, f: Tensor, terms: Terms, *, gradient: bool) -> tuple[Tensor, Tensor]:
    """As :func:`swor.math._best_of.subsets.sums`."""
    found = [_sums(*part, terms, gradient) for part in parts(draws, f, max(terms))]
    weight, coefficient = (torch.cat(x).reshape(f.shape) for x in zip(*found, strict=True))
    return weight, coefficient


def _sums(draws: Draws, f: Tensor, terms: Terms, gradient: bool) -> tuple[Tensor, Tensor]:
    most = max(terms)
    factors, f = factors_of(draws, most, left_out=most + 1), f.mT.unsqueeze(-1)
    powers = _powers(factors, terms, draws.room.unsqueeze(-1))
    prefix = _prefixes(factors, f, powers, gradient=gradient)
    weight = _integrate(prefix.weight)
    if not gradient:
        return weight, weight
    return weight, _integrate(_coefficients(factors, f, powers, prefix))


Powers = dict[int, Tensor]  # the weights, (batch, nodes), of some powers of x in a series


class _Powers(NamedTuple):
    """The powers that are read; the factor of the draw whose score is taken has one power more."""

    most: int  # the largest power
    value: Powers
    gain: Powers
    baseline: Powers


def _powers(factors: Factors, terms: Terms, room: Tensor) -> _Powers:
    """The powers of all terms; the baseline has m draws, or m − 1 where there is no room for another."""
    value = {m: share * factors.weight(m) for m, share in terms.items()}
    gain = {m - 1: weight for m, weight in value.items()}
    baseline: Powers = {}
    for m, weight in value.items():
        more_draws = m * torch.exp(-factors.log_x) * weight
        for power, part in (
            (m, torch.where(room > m, more_draws, 0.0)),
            (m - 1, torch.where(room > m, 0.0, weight)),
        ):
            baseline[power] = baseline[power] + part if power in baseline else part
    return _Powers(max(terms), value, gain, baseline)


def _of(powers: Powers, series: Tensor) -> Tensor:
    """The weighted sum of coefficients of a series, (batch, nodes)."""
    return torch.stack([weight * series[n] for n, weight in powers.items()]).sum(0)


def _of_product(powers: Powers, series: Tensor, other: Tensor) -> Tensor:
    """The weighted sum of coefficients of the product of two series, (batch, nodes)."""
    found = [
        weight * (series[: n + 1] * other[: n + 1].flip(0)).sum(0) for n, weight in powers.items()
    ]
    return torch.stack(found).sum(0)


class _Prefixes(NamedTuple):
    """Sums over the draws up to each outcome, each a list over the outcomes."""

    weight: list[Tensor]  # (batch, nodes), of the best draw being s
    including: list[Tensor]  # (largest power + 1, batch, nodes), e^{p_s x} P_{s-1}
    lost: list[Tensor]  # (batch, nodes), the part of the baseline where s or one below is the best


def _prefixes(factors: Factors, f: Tensor, powers: _Powers, *, gradient: bool) -> _Prefixes:
    prefix = constant(torch.ones_like(factors.log_f), powers.most)
    lower = torch.zeros_like(factors.log_f)
    found = _Prefixes([], [], [])
    for value, first, again in zip(f, factors.first, factors.again, strict=True):
        added = more(again, prefix)
        found.weight.append(first * _of(powers.value, added))
        if gradient:
            found.including.append(prefix + again * added)
            drawn = _of(powers.baseline, added)
            found.lost.append(lower + value * again * drawn)
            lower = lower + value * first * drawn
        prefix = prefix + first * added
    return found


def _coefficients(factors: Factors, f: Tensor, powers: _Powers, prefix: _Prefixes) -> list[Tensor]:
    suffix = torch.zeros_like(prefix.including[0])
    coefficients = []
    for s in reversed(range(len(f))):
        including = prefix.including[s]
        known = suffix + constant(f[s].expand_as(factors.log_f), powers.most)
        gain = _of_product(powers.gain, including, known)
        loss = prefix.lost[s] + _of_product(powers.baseline, including, suffix)
        coefficients.append(factors.first[s] * (gain - loss))
        suffix = suffix + factors.first[s] * more(factors.again[s], known)
    return coefficients[::-1]


def _integrate(values: list[Tensor]) -> Tensor:
    """From values (batch, nodes) of each of the k outcomes, with their weights, to (batch, k)."""
    return torch.stack(values, dim=-2).sum(-1)


def variance(draws: Draws, f: Tensor, m: int) -> Tensor:
    r"""Estimate the variance of the estimated best of m draws, (*batch,), for ascending f and k ≥ 2m.

    The estimate is $E[f(x_1, \dots, x_m) \mid S]$, and the next $m$ draws are independent of the first $m$.
    So, for $k \ge 2m$,

    $$\hat V = E[f(x_1, \dots, x_m) \mid S]^2 - E[f(x_1, \dots, x_m) \, f(x_{m+1}, \dots, x_{2m}) \mid S]$$

    has the mean $E[\hat J^2] - J^2$, which is the variance. Sort by $f$. The best of the first $m$ draws is
    $f_k$ minus all gaps $f_{j+1} - f_j$ for which no draw is above $j$. For $j \le l$, no draw of the first
    block is above $j$ and none of the second above $l$ with probability

    $$\propto (m!)^2 \, [x^m y^m] \, P_j(x + y) \, b_{j+1}(y) \cdots b_l(y)
    = (m!)^2 \sum_n \binom{n}{m} [x^n] P_j(x) \cdot [y^{2m - n}] \, b_{j+1}(y) \cdots b_l(y),$$

    so series in one variable are enough.
    """
    if f.shape[-1] == 1:  # there is room for 2m draws, so this outcome is the only one
        return torch.zeros_like(f[..., 0])
    found = [_variance(*part, m) for part in parts(draws, f, 2 * m)]
    return torch.cat(found).reshape(f.shape[:-1])


def _variance(draws: Draws, f: Tensor, m: int) -> Tensor:
    factors = factors_of(draws, 2 * m, left_out=2 * m)
    gaps = f.diff(dim=-1).mT.unsqueeze(-1)
    prefixes = _later_powers(factors, gaps, m)
    below = (gaps * torch.stack([series[0] for series in prefixes])).sum(0)
    mean = (below * factors.weight(m)).sum(-1)
    joint = (_both(factors, gaps, prefixes, m) * factors.weight(2 * m)).sum(-1)
    return (mean.square() - joint).masked_fill(draws.covered, 0.0)


def _later_powers(factors: Factors, gaps: Tensor, m: int) -> list[Tensor]:
    """The coefficients of the powers m to 2m of P_j, each (m + 1, batch, nodes)."""
    prefix = constant(torch.ones_like(factors.log_f), 2 * m)
    prefixes = []
    for j in range(len(gaps)):
        prefix = prefix + factors.first[j] * more(factors.again[j], prefix)
        prefixes.append(prefix[m:])
    return prefixes


def _both(factors: Factors, gaps: Tensor, prefixes: list[Tensor], m: int) -> Tensor:
    """The sum over all pairs of gaps, (batch, nodes), in units of (2m)! of the power 2m."""
    ways = [comb(n, m) / comb(2 * m, m) for n in range(m, 2 * m + 1)]
    share = torch.tensor(ways, dtype=gaps.dtype, device=gaps.device).view(-1, 1, 1)
    total = torch.zeros_like(factors.log_f)
    suffix = torch.zeros_like(prefixes[0])
    for j in reversed(range(len(gaps))):
        gap = constant(gaps[j].expand_as(total), m)
        pairs = (gap + 2.0 * suffix).flip(0)
        total = total + gaps[j] * (share * prefixes[j] * pairs).sum(0)
        upper = gap + suffix
        suffix = upper + factors.first[j] * more(factors.again[j], upper)
    return total
