r"""Leave-one-out ratios and set probabilities: the choice of the method, and the last steps.

Every method returns the same sums over parts of the set (:class:`swor.math._interface.LeftOut`). Here they
become logarithms of ratios, or the probabilities of the first and the second draw, which rules use as
weights. If no mass is left outside the set, every ratio is 1 by definition, without rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, overload

import torch
from torch import Tensor

from swor._checks import check_log_probs, check_not_nan, check_one_per_set, check_set
from swor.math import _integral, _orderings, _subsets
from swor.math._blocks import in_blocks, split
from swor.math._interface import Interior, LeftOut, interior
from swor.math._logspace import LOG_NOTHING, log1mexp, log_remaining, working_dtype

Method = Literal["auto", "subsets", "integral", "orderings"]

METHODS = {"subsets": _subsets, "integral": _integral, "orderings": _orderings}
LARGEST = {"auto": None, "subsets": 20, "integral": None, "orderings": 9}
AUTO_SUBSETS = 10  # the recursion is faster for k up to here; see benchmarks/ratios.py


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
    full, rest = _checked(log_p, log_rest)
    check_not_nan("log_p", full)
    check_not_nan("log_rest", rest)
    # The gradient of a cumulative sum that starts with log 0 would be NaN.
    log_t = log_remaining(full, rest.masked_fill(rest == -torch.inf, LOG_NOTHING))[..., :-1]
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
    module = METHODS[_choose(method, full.shape[-1])]
    full, rest = full - log_total.unsqueeze(-1), rest - log_total
    numbers = module.numbers(full.shape[-1], full.dtype)
    blocks = split(full.reshape(-1, full.shape[-1]), numbers=numbers)
    found = []
    for inner in map(interior, blocks, split(rest.reshape(-1), numbers=numbers)):
        log_prob = torch.where(inner.covered, 0.0, module.log_prob_set(inner))
        found.append(torch.where(inner.impossible.any(0), -torch.inf, log_prob))
    return torch.cat(found).reshape(rest.shape).to(log_p.dtype)


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
    of the unordered set estimator, so they carry no gradient. Large batches are computed in blocks, so the
    time is linear in the batch. The memory beyond that of the result is a few megabytes, or that of one set
    if this is more: about $k\,2^k$ numbers for "subsets" and $k^2 + 200 k$ for "integral" in float32.

    Args:
        log_p: the log-probabilities of the elements of the set, (*batch, k), in any order.
        log_rest: the log of the mass outside the set, (*batch,). If it is given, ``log_p`` and
            ``log_rest`` are normalised together. If it is None, log(1 − Σp) is used. This loses precision
            if the set has nearly all the mass, so give ``log_rest`` if you know it.
        second_order: whether to return the second-order ratios as well, which are the leave-one-out
            ratios of the set without one of its elements.
        method: "subsets" is a recursion over subsets, exact, in O(k 2^k), for k ≤ 20. "integral" is a
            fitted quadrature, exact to rounding, in O(k²). "orderings" is brute force for checks, for
            k ≤ 9. "auto" uses subsets up to k = 10 and the integral for larger k.

    Returns:
        log R, (*batch, k). If ``second_order`` is True, a pair of log R and log R2, (*batch, k, k), where
        row s has $\log R^{D \setminus s}(S, s')$ and the diagonal is 0.

    >>> log_p = torch.full((2,), 0.1).log()  # two of ten equal outcomes: R = 10 / 2
    >>> leave_one_out(log_p).exp().round()
    tensor([5., 5.])

    References:
        | Estimating Gradients for Discrete Random Variables by Sampling without Replacement
        | (Kool et al., 2020), definition 1 and equation (18)
        | https://arxiv.org/abs/2002.06043
    """
    found = _from_parts(_log_ratios, log_p, log_rest, second_order=second_order, method=method)
    log_r, *log_r2 = (x.to(log_p.dtype) for x in found)
    return (log_r, log_r2[0]) if second_order else log_r


@torch.no_grad()
def first_draw(log_p: Tensor, log_rest: Tensor | None = None) -> Tensor:
    r"""$p_s R(S, s)$, (*batch, k): the probability that s was drawn first, given the set.

    The result is in working precision, for rules that use it as a weight; see :func:`leave_one_out`.
    """
    return _from_parts(_draws, log_p, log_rest, second_order=False)[0]


@torch.no_grad()
def first_and_second_draw(log_p: Tensor, log_rest: Tensor | None = None) -> tuple[Tensor, Tensor]:
    r"""$p_s R(S, s)$, (*batch, k), and $p_{s'} R^{D \setminus s}(S, s')$, (*batch, k, k).

    The diagonal of the second is $p_s$. Both are in working precision, for rules that use them as weights.
    """
    first, second = _from_parts(_draws, log_p, log_rest, second_order=True)
    return first, second


def _from_parts(
    last_steps: Callable[[Interior, LeftOut], tuple[Tensor, ...]],
    log_p: Tensor,
    log_rest: Tensor | None,
    *,
    second_order: bool,
    method: Method = "auto",
) -> tuple[Tensor, ...]:
    """Apply the last steps to the sums over parts of every set, in blocks of the batch."""
    full, rest = constants(*_checked(log_p, log_rest))
    module = METHODS[_choose(method, full.shape[-1])]

    def all_steps(log_p: Tensor, log_rest: Tensor) -> tuple[Tensor, ...]:
        inner = interior(log_p, log_rest)
        return last_steps(inner, module.left_out(inner, second_order=second_order))

    return in_blocks(all_steps, full, rest, numbers=module.numbers(full.shape[-1], full.dtype))


def _log_ratios(inner: Interior, found: LeftOut) -> tuple[Tensor, ...]:
    """The logarithms of the ratios; they are exactly 0 where no mass is left outside the set."""
    inexact = inner.covered.logical_not().to(inner.log_p.dtype)  # a product is faster than a mask
    log_p = inner.log_p * inexact
    log_one = torch.log(found.one) - torch.log(_sum(found.one * inner.mass(found.log_scale)))
    log_r = log_one.add_(found.log_scale).mul_(inexact).sub_(log_p).movedim(0, -1)
    if found.two is None:
        return (log_r,)
    log_r2 = found.two.log_().add_(found.log_scale).mul_(inexact).sub_(log_p)
    _diagonal(log_r2).zero_()
    return log_r, log_r2.movedim((0, 1), (-2, -1))


def _draws(inner: Interior, found: LeftOut) -> tuple[Tensor, ...]:
    """The probabilities of the first and the second draw, given the set."""
    scale = inner.mass(found.log_scale)
    first = found.one * scale
    first = first.div_(_sum(first)).movedim(0, -1)
    if found.two is None:
        return (first,)
    return first, found.two.mul_(scale).movedim((0, 1), (-2, -1))


def _sum(weights: Tensor) -> Tensor:
    """The sum over the elements, by which to divide even if there is no mass and it is 0, (batch,)."""
    return weights.sum(0).clamp(min=torch.finfo(weights.dtype).tiny)


def _diagonal(pairs: Tensor) -> Tensor:
    """The diagonal of (k, k, batch), a view (k, batch)."""
    k = pairs.shape[0]
    return pairs.view(k * k, *pairs.shape[2:])[:: k + 1]


def constants(*given: Tensor) -> tuple[Tensor, ...]:
    """Return tensors without their derivatives; no_grad does not stop those of the forward mode."""
    return tuple(x.detach() for x in given)


def complete(log_p: Tensor, log_rest: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return log_p, log_rest and the log of their total mass, in working precision."""
    full, rest = _checked(log_p, log_rest)
    log_total = torch.cat([full, rest.unsqueeze(-1)], dim=-1).logsumexp(-1)
    check_not_nan("log_p or log_rest", log_total)
    return full, rest, log_total.masked_fill(log_total == -torch.inf, 0.0)  # there may be no mass


def _checked(log_p: Tensor, log_rest: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return log_p and log_rest, which is derived if it is not given, in working precision."""
    check_log_probs("log_p", log_p)
    full = log_p.to(working_dtype(log_p.dtype))
    if log_rest is None:
        log_sum = full.logsumexp(-1)
        check_set(log_sum.exp(), log_p.dtype)
        return full, log_outside(log_sum)
    check_one_per_set("log_rest", log_rest, log_p)
    return full, log_rest.to(full.dtype)


def log_outside(log_sum: Tensor) -> Tensor:
    """Return log(1 − e^x) of the log of a mass; without a derivative, which is infinite, where it is 1."""
    nothing = log_sum >= 0.0
    return log1mexp(log_sum.masked_fill(nothing, -1.0)).masked_fill(nothing, -torch.inf)


def _choose(method: str, k: int) -> str:
    if method not in LARGEST:
        raise ValueError(f"method is {method!r}; expected one of {', '.join(map(repr, LARGEST))}.")
    largest = LARGEST[method]
    if largest is not None and k > largest:
        raise ValueError(
            f"k is {k}; expected at most {largest} for method={method!r}. Use method='auto'."
        )
    return ("subsets" if k <= AUTO_SUBSETS else "integral") if method == "auto" else method
