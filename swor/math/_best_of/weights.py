r"""The best of $m$ independent draws, given a sample without replacement: the choice of method.

Let $x_1, x_2, \dots$ be independent draws, and let $S$ be the first $k$ distinct ones among them, which
is a sample without replacement. The first $m \le k$ draws all lie in $S$. Given $S$, their support is
$U \subseteq S$ with probability

$$P(\text{supp}(x_1, \dots, x_m) = U \mid S) = Z(U, m) \, \frac{p^{D \setminus U}(S \setminus U)}{p(S)},
\qquad Z(U, n) = n! \, [x^n] \prod_{u \in U} (e^{p_u x} - 1),$$

where $Z(U, n)$ is the probability that $n$ independent draws have exactly the support $U$. Everything here
is an expectation under that conditional distribution. The draws remain exchangeable, so the one whose
score is taken may be the last one. With $f(x_1, \dots, x_m)$ for the maximum,

$$w_s = P(s \text{ attains the maximum} \mid S), \qquad
c_s = m \, E[1\{x_m = s\} f(x_1, \dots, x_m) \mid S] - m \, E[1\{x_{m+1} = s\} f(x_1, \dots, x_m) \mid S].$$

The second term of $c_s$ is the built-in baseline. It needs $m + 1$ draws in $S$; where $S$ has only $m$
outcomes, the best of $m - 1$ draws takes its place, $E[1\{x_m = s\} f(x_1, \dots, x_{m-1}) \mid S]$.

If the outcomes were sampled from $q$ and the target is $p$, the same sums with $Z$ of $p$ and set
probabilities of $q$ remain unbiased, since for every $U$ of at most $k$ outcomes
$E_q[1\{U \subseteq S\} \, q^{D \setminus U}(S \setminus U) / q(S)] = 1$.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from swor.math._best_of import Draws, Terms, integral, subsets
from swor.math._logspace import LOG_EVERYTHING, wide_dtype
from swor.math._off_policy import check_overflow
from swor.math.ratios import complete, constants

Method = Literal["auto", "subsets", "integral"]

METHODS = {"subsets": subsets, "integral": integral}
AUTO_SUBSETS = 8  # up to here the sum over subsets is the faster one
SINGLE_PRECISION = 64  # draws up to which the coefficients of the series fit into float32


class BestOfWeights(NamedTuple):
    """Constants of the estimate: its value is Σ w f, its gradient Σ c ∇ log p."""

    weight: Tensor  # (*batch, k), how likely each outcome is to be the best of m draws
    coefficient: Tensor  # (*batch, k), of the gradient; meaningless if not asked for


@torch.no_grad()
def best_of_weights(
    log_q: Tensor,
    log_rest: Tensor | None,
    f: Tensor,
    m: int | Terms,
    *,
    log_p: Tensor | None = None,
    gradient: bool = True,
    method: Method = "auto",
) -> BestOfWeights:
    r"""$w_s$ and $c_s$ of the largest of $m$ draws, or of a sum over several $m$, in working precision.

    Args:
        log_q: log-probabilities of the sampled outcomes, (*batch, k), −inf for an impossible one.
        log_rest: log of the mass outside the sample, (*batch,); None means log(1 − Σq).
        f: the value of every outcome, (*batch, k).
        m: the number of draws, at most the number of possible outcomes in the sample; or several of them,
            each with its share.
        log_p: log-probabilities of the target, if it is not the distribution sampled from.
        gradient: whether the coefficients are wanted.
        method: "subsets", a sum over the subsets of the sample, O(m k 2^k), for k ≤ 16; "integral", power
            series at the nodes of a quadrature, O(m² k) for each node; "auto" chooses the faster one.
    """
    terms = {m: 1.0} if isinstance(m, int) else m
    draws, f, order = prepare(log_q, log_rest, f, max(terms), log_p)
    module = METHODS[choose(method, f.shape[-1])]
    weight, coefficient = module.sums(draws, f, terms, gradient=gradient)
    if log_p is not None:
        check_overflow(log_q, log_p, weight, coefficient)
    back = order.argsort(-1)
    return BestOfWeights(weight.gather(-1, back), coefficient.gather(-1, back))


@torch.no_grad()
def best_of_variance(log_q: Tensor, log_rest: Tensor | None, f: Tensor, m: int) -> Tensor:
    r"""$E[f(x_{1..m}) \mid S]^2 - E[f(x_{1..m}) f(x_{m+1..2m}) \mid S]$, (*batch,), for k ≥ 2m."""
    draws, f, _ = prepare(log_q, log_rest, f, 2 * m, None, wide=True)  # a difference that cancels
    return integral.variance(draws, f, m)


def ascending(f: Tensor, log_p: Tensor) -> Tensor:
    """The order by f, and by probability where f is the same, (*batch, k).

    A tie is then broken by the outcomes themselves, not by the order in which they were drawn.
    """
    by_p = log_p.argsort(dim=-1, stable=True)
    return by_p.gather(-1, f.gather(-1, by_p).argsort(dim=-1, stable=True))


def prepare(
    log_q: Tensor,
    log_rest: Tensor | None,
    f: Tensor,
    m: int,
    log_p: Tensor | None,
    *,
    wide: bool = False,
) -> tuple[Draws, Tensor, Tensor]:
    """In ascending order of f: the draws, f, and the order itself, as constants.

    They are in working precision, or in double precision if it is asked for or m is large.
    """
    given, rest, log_total = constants(*complete(log_q, log_rest))
    full, rest = given - log_total.unsqueeze(-1), rest - log_total
    if wide or m > SINGLE_PRECISION:
        full, rest = (x.to(wide_dtype(x.device)) for x in (full, rest))
    # The ratio of the policies is that of log_p and log_q as they are given.
    target = (
        full if log_p is None else full + (log_p.detach().to(full.dtype) - given.to(full.dtype))
    )
    order = ascending(f, full)
    f, full, target = (x.gather(-1, order) for x in (f.detach().to(full.dtype), full, target))
    impossible, covered = full == -torch.inf, rest == -torch.inf
    possible = impossible.logical_not().sum(-1)
    draws = Draws(
        log_p=target.masked_fill(impossible, -torch.inf),
        log_q=full.masked_fill(impossible, LOG_EVERYTHING),
        log_rest=rest.masked_fill(covered, 0.0),
        covered=covered,
        room=possible.masked_fill(covered, m + 1),
    )
    return draws, f, order


def choose(method: str, k: int) -> str:
    """The method for a sample of size k."""
    if method == "auto":
        return "subsets" if k <= AUTO_SUBSETS else "integral"
    if method not in METHODS:
        raise ValueError(f"method is {method!r}; expected 'auto', 'subsets' or 'integral'.")
    return method
