r"""Leave-one-out ratios and set probabilities: the choice of the method, and two edge cases.

The edge cases are exact by definition. If no mass is left outside the sample, every ratio is 1. An
outcome of probability 0 has weight 0, and the others have the weights that they would have without
it. The methods cannot represent a probability of 0. They are given an overwhelming mass for such an
outcome instead: an outcome that is certain to be drawn first does not affect the others.
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
AUTO_SUBSETS = 8  # the recursion is faster for k up to here; see benchmarks/ratios.py
OVERWHELMING = 200.0


def log_prob_ordered(log_p: Tensor, log_rest: Tensor | None = None) -> Tensor:
    r"""The log-probability of drawing a sample without replacement in the given order.

    $$\log p(B) = \sum_i \left( \log p(b_i) - \log\left(1 - \sum_{j<i} p(b_j)\right) \right)$$

    The result is differentiable.

    Args:
        log_p: the log-probabilities in the order in which they were drawn, (*batch, k).
        log_rest: the log of the mass outside the sample, (*batch,). If it is given, ``log_p`` and
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
    r"""The log-probability of drawing a set without replacement, in any order.

    $$\log p(S) = \log \sum_{B \in \mathcal{B}(S)} p(B)$$

    The sum is over all orderings $B$ of the set. The result is differentiable.

    Args:
        log_p: the log-probabilities of the elements, (*batch, k), in any order.
        log_rest: the log of the mass outside the set, (*batch,). If it is given, ``log_p`` and
            ``log_rest`` are normalised together; if it is None, log(1 − Σp) is used.
        method: as in :func:`leave_one_out`.

    Returns:
        (*batch,)

    >>> log_prob_set(torch.tensor([0.5, 0.25]).log()).exp()  # 0.25 + 0.25 * 0.5 / 0.75
    tensor(0.4167)

    References:
        | Estimating Gradients for Discrete Random Variables by Sampling without Replacement
        | (Kool et al., 2020), equation (6)
        | https://arxiv.org/abs/2002.06043
    """
    full, rest, log_total = complete(log_p, log_rest)
    module = METHODS[_choose(method, log_p.shape[-1])]
    inner = without_edges(full, rest, log_total)
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
    r"""The logarithm of the leave-one-out ratio of every element of a set.

    $$R(S, s) = \frac{p^{D \setminus s}(S \setminus s)}{p(S)}$$

    $p(s) R(S, s)$ is the probability that $s$ was drawn first, given the set. The ratios are constants
    of the unordered set estimator, so they carry no gradient.

    Args:
        log_p: the log-probabilities of the elements of the set, (*batch, k), in any order.
        log_rest: the log of the mass outside the set, (*batch,). If it is given, ``log_p`` and
            ``log_rest`` are normalised together. If it is None, log(1 − Σp) is used. This loses precision
            if the set has nearly all the mass, so give ``log_rest`` if you know it.
        second_order: whether to return the second-order ratios as well, which are the leave-one-out
            ratios of the set without one of its elements.
        method: "subsets" is a recursion over subsets, exact, in O(k 2^k), for k ≤ 20. "integral" is a
            fitted quadrature, exact to rounding, in O(k²). "orderings" is brute force for checks, for
            k ≤ 9. "auto" uses subsets up to k = 8 and the integral for larger k.

    Returns:
        log R, (*batch, k). If ``second_order`` is True, a pair of log R and log R2, (*batch, k, k), where
        row s has $\log R^{D \setminus s}(S, s')$ and the diagonal is 0.

    >>> leave_one_out(torch.full((2,), 0.1).log()).exp().round()  # uniform over 10: R = 10 / 2
    tensor([5., 5.])

    References:
        | Estimating Gradients for Discrete Random Variables by Sampling without Replacement
        | (Kool et al., 2020), definition 1 and equation (18)
        | https://arxiv.org/abs/2002.06043
    """
    ratios = _compute(log_p, log_rest, method, second_order=second_order)
    log_r = (ratios.log_first + ratios.log_total) - ratios.log_p
    log_r = log_r.masked_fill(ratios.exact, 0.0).to(log_p.dtype)
    if not second_order:
        return log_r
    log_r2 = ratios.log_second.sub_(ratios.log_p.unsqueeze(-2))
    log_r2 = log_r2.masked_fill_(ratios.exact.unsqueeze(-2), 0.0).masked_fill_(
        _diagonal(log_r2), 0.0
    )
    return log_r, log_r2.to(log_p.dtype)


@torch.no_grad()
def log_first_draw(log_p: Tensor, log_rest: Tensor | None = None) -> Tensor:
    r"""$\log p_s R(S, s)$, (*batch, k): the log-probability that s was drawn first, given the set.

    The result is in working precision, for rules that use it as a weight; see :func:`leave_one_out`.
    """
    return _first(_compute(log_p, log_rest, "auto", second_order=False))


@torch.no_grad()
def log_draws(log_p: Tensor, log_rest: Tensor | None = None) -> tuple[Tensor, Tensor]:
    r"""$\log p_s R(S, s)$, (*batch, k), and $\log p_{s'} R^{D \setminus s}(S, s')$, (*batch, k, k).

    The diagonal of the second is $\log p_s$. Both are in working precision, for rules that use them as
    weights.
    """
    ratios = _compute(log_p, log_rest, "auto", second_order=True)
    log_p = ratios.log_p.unsqueeze(-2)
    log_second = torch.where(ratios.exact.unsqueeze(-2), log_p, ratios.log_second)
    log_second = torch.where(_diagonal(log_second), log_p, log_second)
    return _first(ratios), log_second.sub_(ratios.log_total.unsqueeze(-1))


def _diagonal(pairs: Tensor) -> Tensor:
    """True on the diagonal of (*batch, k, k)."""
    return torch.eye(pairs.shape[-1], dtype=torch.bool, device=pairs.device)


def _first(ratios: _Ratios) -> Tensor:
    return torch.where(ratios.exact, ratios.log_p - ratios.log_total, ratios.log_first)


class _Ratios(NamedTuple):
    """The result of a method, and the elements for which R = 1 by definition."""

    log_first: Tensor  # (*batch, k), normalised
    log_second: Tensor  # (*batch, k, k), normalised as log_p; meaningless if not requested
    log_p: Tensor  # (*batch, k), in working precision
    log_total: Tensor  # (*batch, 1)
    exact: Tensor  # (*batch, k), where R = 1; for a pair, that of its second element


@torch.no_grad()
def _compute(log_p: Tensor, log_rest: Tensor | None, method: str, *, second_order: bool) -> _Ratios:
    full, rest, log_total = complete(log_p, log_rest)
    module = METHODS[_choose(method, full.shape[-1])]
    inner = without_edges(full, rest, log_total)
    log_first, log_second = module.log_draws(inner.log_p, inner.log_rest, second_order=second_order)
    log_first = log_first.masked_fill(inner.impossible, -torch.inf)
    log_first = log_first.movedim(-1, 0).log_softmax(0).movedim(0, -1)  # the fast axis in memory
    exact = inner.impossible | inner.covered.unsqueeze(-1)
    return _Ratios(log_first, log_second, full, log_total.unsqueeze(-1), exact)


def complete(log_p: Tensor, log_rest: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return log_p, log_rest and the log of their total mass, in working precision."""
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
    return (
        full,
        rest,
        log_total.masked_fill(log_total == -torch.inf, 0.0),
    )  # weights are 0 if there is no mass


class Interior(NamedTuple):
    """Probabilities without the edge cases, and where the edge cases were."""

    log_p: Tensor  # (*batch, k)
    log_rest: Tensor  # (*batch,)
    impossible: Tensor  # (*batch, k)
    covered: Tensor  # (*batch,), where no mass is left outside


def without_edges(log_p: Tensor, log_rest: Tensor, log_total: Tensor) -> Interior:
    """Replace impossible elements and a rest of no mass, for which the formulas have no limit."""
    impossible, covered = log_p == -torch.inf, log_rest == -torch.inf
    overwhelming = log_total.unsqueeze(-1) + OVERWHELMING
    return Interior(
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
