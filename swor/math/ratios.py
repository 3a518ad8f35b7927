r"""Leave-one-out ratios and set probabilities: the choice of method, and the edges of the domain.

Two edges are exact by definition and not by luck of rounding. Where nothing is left outside the
sample, every ratio is 1. An outcome of probability 0 drops out of its set: its weight is 0 and the
others have the weights that they would have without it. The methods are given such an outcome with
an overwhelming mass instead, since what is surely drawn first does not bear on the rest.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, overload

import torch
from torch import Tensor

from swor.checks import (
    check_log_probs,
    check_normalized,
    check_not_nan,
    check_same,
    check_shape,
)
from swor.math import integral, orderings, subsets
from swor.math.logspace import log1mexp, log_remaining, working_dtype

Method = Literal["auto", "subsets", "integral", "orderings"]

METHODS = {"subsets": subsets, "integral": integral, "orderings": orderings}
LARGEST = {"auto": None, "subsets": 20, "integral": None, "orderings": 9}
AUTO_SUBSETS = 8  # up to here the recursion is the faster one: benchmarks/ratios.py
OVERWHELMING = 200.0


def log_prob_ordered(log_p: Tensor, log_rest: Tensor | None = None) -> Tensor:
    r"""$\log p(B) = \sum_i \log p(b_i) - \log(1 - \sum_{j<i} p(b_j))$.

    The log-probability of drawing the sample without replacement in this order. Differentiable.

    Args:
        log_p: log-probabilities in the order drawn, (*batch, k).
        log_rest: log of the mass outside the sample, (*batch,). If it is given, ``log_p`` and
            ``log_rest`` are normalised together; if it is None, log(1 − Σp) is used.

    Returns:
        (*batch,)

    >>> log_prob_ordered(torch.tensor([0.5, 0.25]).log()).exp()  # 0.5 * 0.25 / 0.5
    tensor(0.2500)

    References:
        | Estimating Gradients for Discrete Random Variables by Sampling without Replacement
        | (Kool et al., 2020), equation (4)
        | https://arxiv.org/abs/2002.06043
    """
    full, rest, _ = complete(log_p, log_rest)
    log_t = log_remaining(full, rest)[..., :-1]
    impossible = full == -torch.inf
    terms = full.masked_fill(impossible, 0.0) - log_t.masked_fill(impossible, 0.0)
    return torch.where(impossible.any(-1), -torch.inf, terms.sum(-1)).to(log_p.dtype)


def log_prob_set(
    log_p: Tensor, log_rest: Tensor | None = None, *, method: Method = "auto"
) -> Tensor:
    r"""$\log p(S) = \log \sum_{B \in \mathcal{B}(S)} p(B)$, ``eq:P_S_def``.

    The log-probability of drawing this set without replacement, in whatever order. Differentiable.

    Args:
        log_p: log-probabilities of the elements, (*batch, k), in any order.
        log_rest: log of the mass outside the set, (*batch,); None means log(1 − Σp). Where it is
            given, the two are normalised together.
        method: as in :func:`leave_one_out`.

    Returns:
        (*batch,)

    >>> log_prob_set(torch.tensor([0.5, 0.25]).log()).exp()  # 0.25 + 0.25 * 0.5 / 0.75
    tensor(0.4167)
    """
    full, rest, log_total = complete(log_p, log_rest)
    module = METHODS[_choose(method, log_p.shape[-1])]
    inner = _without_edges(full, rest, log_total)
    total = log_total.unsqueeze(-1)
    log_prob: Tensor = module.log_prob_set(inner.log_p - total, inner.log_rest - log_total)
    log_prob = torch.where(inner.covered, 0.0, log_prob)
    return torch.where(inner.impossible.any(-1), -torch.inf, log_prob).to(log_p.dtype)


@overload
def leave_one_out(
    log_p: Tensor,
    log_rest: Tensor | None = ...,
    *,
    second_order: Literal[False] = ...,
    method: Method = ...,
) -> Tensor: ...
@overload
def leave_one_out(
    log_p: Tensor,
    log_rest: Tensor | None = ...,
    *,
    second_order: Literal[True],
    method: Method = ...,
) -> tuple[Tensor, Tensor]: ...
@torch.no_grad()
def leave_one_out(
    log_p: Tensor,
    log_rest: Tensor | None = None,
    *,
    second_order: bool = False,
    method: Method = "auto",
) -> Tensor | tuple[Tensor, Tensor]:
    r"""$\log R(S, s)$ with $R(S, s) = p^{D \setminus s}(S \setminus s) / p(S)$.

    The leave-one-out ratio: $p(s) R(S, s)$ is the chance that $s$ was drawn first, given the set.
    A constant: it carries no gradient.

    Args:
        log_p: log-probabilities of the elements of the set, (*batch, k), in any order.
        log_rest: log of the mass outside the set, (*batch,); None means log(1 − Σp), which is lost
            to rounding where the set has nearly all the mass, so give it if you know it. Where it is
            given, the two are normalised together.
        second_order: also return the ratios within the set without one element,
            ``eq:second_order_leave_one_out_ratio``.
        method: "subsets", a recursion over subsets, exact, O(k 2^k), k ≤ 20; "integral", a fitted
            quadrature, exact to rounding, O(k²); "orderings", brute force for checks, k ≤ 9; "auto",
            subsets up to k = 8 and the integral beyond.

    Returns:
        log R (*batch, k), or (log R, log R2 (*batch, k, k)) where row s has
        $\log R^{D \setminus s}(S, s')$ and the diagonal is 0.

    >>> leave_one_out(torch.full((2,), 0.1).log()).exp().round()  # uniform over 10: R = 10 / 2
    tensor([5., 5.])
    """
    found = _find(log_p, log_rest, method, second_order=second_order)
    log_r = (found.log_first + found.log_total) - found.log_p
    log_r = log_r.masked_fill(found.exact, 0.0).to(log_p.dtype)
    if not second_order:
        return log_r
    log_r2 = found.log_second.sub_(found.log_p.unsqueeze(-2))
    log_r2 = log_r2.masked_fill_(found.exact.unsqueeze(-2), 0.0).masked_fill_(
        _diagonal(log_r2), 0.0
    )
    return log_r, log_r2.to(log_p.dtype)


@torch.no_grad()
def log_first_draw(log_p: Tensor, log_rest: Tensor | None = None) -> Tensor:
    r"""$\log p_s R(S, s)$, (*batch, k): the chance that s was drawn first, given the set.

    In working precision, for rules that weight by it; see :func:`leave_one_out`.
    """
    return _first(_find(log_p, log_rest, "auto", second_order=False))


@torch.no_grad()
def log_draws(log_p: Tensor, log_rest: Tensor | None = None) -> tuple[Tensor, Tensor]:
    r"""$\log p_s R(S, s)$, (*batch, k), and $\log p_{s'} R^{D \setminus s}(S, s')$, (*batch, k, k).

    The diagonal of the second is $\log p_s$. In working precision, for rules that weight by them.
    """
    found = _find(log_p, log_rest, "auto", second_order=True)
    log_p = found.log_p.unsqueeze(-2)
    log_second = torch.where(found.exact.unsqueeze(-2), log_p, found.log_second)
    log_second = torch.where(_diagonal(log_second), log_p, log_second)
    return _first(found), log_second.sub_(found.log_total.unsqueeze(-1))


def _diagonal(pairs: Tensor) -> Tensor:
    """True on the diagonal of (*batch, k, k)."""
    return torch.eye(pairs.shape[-1], dtype=torch.bool, device=pairs.device)


def _first(found: _Found) -> Tensor:
    return torch.where(found.exact, found.log_p - found.log_total, found.log_first)


class _Found(NamedTuple):
    """What a method has found, and where it is overruled because R = 1 by definition."""

    log_first: Tensor  # (*batch, k), normalised
    log_second: Tensor  # (*batch, k, k), in the units of log_p; meaningless if not asked for
    log_p: Tensor  # (*batch, k), in working precision
    log_total: Tensor  # (*batch, 1)
    exact: Tensor  # (*batch, k); a pair is so by its second element, or if it has none


@torch.no_grad()
def _find(log_p: Tensor, log_rest: Tensor | None, method: str, *, second_order: bool) -> _Found:
    full, rest, log_total = complete(log_p, log_rest)
    module = METHODS[_choose(method, full.shape[-1])]
    inner = _without_edges(full, rest, log_total)
    log_first, log_second = module.log_draws(inner.log_p, inner.log_rest, second_order=second_order)
    log_first = log_first.masked_fill(inner.impossible, -torch.inf)
    log_first = log_first.movedim(-1, 0).log_softmax(0).movedim(0, -1)  # along memory
    exact = inner.impossible | inner.covered.unsqueeze(-1)
    return _Found(log_first, log_second, full, log_total.unsqueeze(-1), exact)


def complete(log_p: Tensor, log_rest: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """In working precision: log_p, log_rest, and the log of the total mass, by which to divide."""
    check_log_probs("log_p", log_p)
    full = log_p.to(working_dtype(log_p.dtype))
    if log_rest is None:
        log_sum = full.logsumexp(-1)
        check_normalized(log_sum.clamp(min=0.0).exp(), log_p.dtype)
        return full, log1mexp(log_sum.clamp(max=0.0)), torch.zeros_like(log_sum)
    check_shape("log_rest", log_rest, tuple(log_p.shape[:-1]), "one number for every sample")
    check_same("log_rest", log_rest, "log_p", log_p)
    rest = log_rest.to(full.dtype)
    log_total = torch.cat([full, rest.unsqueeze(-1)], dim=-1).logsumexp(-1)
    check_not_nan("log_p or log_rest", log_total)
    return full, rest, log_total.masked_fill(log_total == -torch.inf, 0.0)  # no mass: weights 0


class _Inner(NamedTuple):
    """Probabilities that the methods can digest, and where what they make of them is overruled."""

    log_p: Tensor  # (*batch, k)
    log_rest: Tensor  # (*batch,)
    impossible: Tensor  # (*batch, k)
    covered: Tensor  # (*batch,), where nothing is left outside


def _without_edges(log_p: Tensor, log_rest: Tensor, log_total: Tensor) -> _Inner:
    impossible, covered = log_p == -torch.inf, log_rest == -torch.inf
    overwhelming = log_total.unsqueeze(-1) + OVERWHELMING
    return _Inner(
        torch.where(impossible, overwhelming, log_p),
        torch.where(covered, log_total, log_rest),
        impossible,
        covered,
    )


def _choose(method: str, k: int) -> str:
    if method not in LARGEST:
        raise ValueError(f"method is {method!r}; expected one of {', '.join(map(repr, LARGEST))}.")
    largest = LARGEST[method]
    if largest is not None and k > largest:
        raise ValueError(
            f"k is {k}; expected at most {largest} for method={method!r}. Use method='auto'."
        )
    return ("subsets" if k <= AUTO_SUBSETS else "integral") if method == "auto" else method
