r"""Draws of a categorical variable as indices: independent ones, and distinct ones by three methods.

**A stream.** The distinct values of an independent stream $x_1, x_2, \dots \sim p$, in the order of their
first appearance, are an ordered sample without replacement, because the next new value has the distribution
$p$ restricted to the values that have not appeared. If the entropy is high, a few draws are enough, and
they cost less than a race of all outcomes. If a stream is too short, any other sample without
replacement may follow it, for the same reason.

**One by one**, for compiled code. The $i$-th draw has the probabilities $p$ without the outcomes that were
drawn before. The outcomes lie in blocks. A draw takes a block with the probability of its remaining mass,
and then one of its remaining outcomes. The mass of this block is then summed anew, so that nothing cancels.
The $k$ draws together touch about $2 k \sqrt n$ numbers and no branch depends on a value.

**A race** of all outcomes, :mod:`swor.samplers._race`, otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from swor._checks import DRAW_WHOLE, check_k, check_normalized, check_possible, may_inspect
from swor.math._logspace import log_remaining, working_dtype
from swor.samplers._inversion import draw, invert_one
from swor.samplers._race import exponential_like, gumbel_like, top_k_outcomes
from swor.samplers._tables import (
    DistinctValues,
    block_masses,
    block_members,
    log_mass_outside,
    near_root,
)
from swor.types import Sample, Scheme

FEW_OUTCOMES = 256  # up to which a race of all outcomes is about as fast as a stream at its best
SPARSE = 15  # outcomes per sample from which on a stream may be faster
SELDOM = 0.1  # repeated draws per sample up to which a stream is faster
LARGEST_TABLE = 2**22  # number of probabilities beyond which a race in blocks saves a copy of them
FEW_SAMPLES = 16  # largest number of samples that compiled code draws one by one
FEW_DRAWS = 12  # length of a stream up to which comparing all pairs is faster than sorting

OfRows = Callable[[Tensor], Tensor]  # from indices of rows of the batch to a tensor of these rows


@torch.no_grad()
def independent(log_probs: Tensor, k: int, generator: torch.Generator | None) -> Tensor:
    """Draw indices that may repeat, (*batch, k)."""
    p = log_probs.to(working_dtype(log_probs.dtype)).exp()
    check_normalized(p.sum(-1), log_probs.dtype)
    return draw(p, k, generator)


@torch.no_grad()
def distinct(
    log_probs: Tensor,
    k: int,
    generator: torch.Generator | None,
    *,
    dtype: torch.dtype | None = None,
    factors: int = 1,
    allow_fewer: bool = False,
) -> DistinctValues:
    """Draw k distinct indices, (*batch, k), by the fastest of three methods with the same distribution.

    If tensor values may be inspected and draws of these policies seldom repeat themselves, the indices come
    from a stream of independent draws. Compiled code draws a few of them one by one. The exponential race
    serves for the rest: on an accelerator, for few outcomes or very many, and for confident policies. The
    probabilities may have been normalised in another dtype, and as a product of several factors.
    """
    full = log_probs.to(working_dtype(log_probs.dtype))
    n, dtype = full.shape[-1], dtype or log_probs.dtype
    if allow_fewer:  # a stream would not end
        return _without_stream(full, min(k, n), generator, dtype, factors).padded(k)
    check_k(k, n, DRAW_WHOLE)
    p = _seldom_repeating(full, k)
    if p is not None:
        total = p.sum(-1, keepdim=True)
        check_normalized(total, dtype, steps=factors)
        found = _from_stream(full, p, total, k, generator)
    else:
        found = _without_stream(full, k, generator, dtype, factors)
        check_possible(found.log_p, cure=DRAW_WHOLE)
    return found


def _seldom_repeating(full: Tensor, k: int) -> Tensor | None:
    r"""Return the probabilities if a stream would seldom repeat itself, and None otherwise.

    Two draws are equal with probability $\sum_x p(x)^2$, so about $k \sum_x p(x)^2$ draws per sample are
    repeated.
    """
    n = full.shape[-1]
    if not (may_inspect(full) and max(FEW_OUTCOMES, SPARSE * k) <= n):
        return None
    if not 0 < full.numel() <= LARGEST_TABLE:
        return None
    p = full.exp()
    repeated = k * p.norm().item() ** 2 / (full.numel() // n)
    return p if repeated < SELDOM else None


def _without_stream(
    full: Tensor, k: int, generator: torch.Generator | None, dtype: torch.dtype, factors: int
) -> DistinctValues:
    """Draw k indices; impossible ones come last, with the log-probability −inf."""
    if torch.compiler.is_compiling() and k <= FEW_SAMPLES:
        return draw_one_by_one(full, k, generator)
    top = top_k_outcomes(full, k, generator)
    found = DistinctValues(top.indices, top.log_p, top.log_rest, top.kappa)
    check_normalized(found.total(), dtype, steps=factors)
    return found


def _from_stream(
    log_probs: Tensor, p: Tensor, total: Tensor, k: int, generator: torch.Generator | None
) -> DistinctValues:
    """Draw from probabilities (*batch, n) with the sum ``total`` (*batch, 1)."""
    batch, n = p.shape[:-1], p.shape[-1]
    if len(batch) != 1:
        log_probs, p, total = (x.reshape(-1, x.shape[-1]) for x in (log_probs, p, total))
        found = _from_stream(log_probs, p, total, k, generator)
        return DistinctValues(*(x.reshape((*batch, *x.shape[1:])) for x in found))

    def race(rows: Tensor) -> Tensor:
        found = top_k_outcomes(log_probs[rows], k, generator)
        check_possible(found.log_p, cure=DRAW_WHOLE)
        return found.indices

    def log_outside(rows: Tensor) -> Tensor:
        return log_mass_outside(log_probs[rows], value[rows])

    draws = k + 3 + 16 * k * k // n  # enough for most: about k² / n of them repeat
    stream = draw(p, draws, generator)
    value = distinct_values(stream, k, code=lambda x: x, longer=[race])
    log_p = log_probs.gather(-1, value)
    return DistinctValues(value, log_p, *log_rest_and_kappa(log_p, total, log_outside, generator))


def distinct_values(
    stream: Tensor, k: int, *, code: Callable[[Tensor], Tensor], longer: Sequence[OfRows]
) -> Tensor:
    """Return the first k distinct values of every stream, (batch, k, *event).

    Args:
        stream: independent draws, (batch, draws, *event).
        k: the number of values.
        code: from a stream to integers (batch, draws), which are equal where the values are.
        longer: ways to draw the values that follow in the streams that are too short, from the indices of
            these streams to (rows, draws, *event), to be tried in turn. If the last is not enough, k is
            larger than the number of possible outcomes.
    """
    value, fewer = first_distinct(stream, code(stream), k)
    rows = short = _true(fewer)
    for draw_more in longer:
        if rows is None or short is None:
            break
        stream = torch.cat([stream[short], draw_more(rows)], dim=1)
        value[rows], fewer = first_distinct(stream, code(stream), k)
        short = _true(fewer)
        rows = None if short is None else rows[short]
    if rows is not None:
        raise ValueError(
            f"k is {k}, but an element of the batch has fewer than {k} outcomes of positive "
            "probability; expected k to be at most their number. Lower k, mask fewer outcomes, or "
            f"sample with replacement{DRAW_WHOLE}."
        )
    return value


def first_distinct(stream: Tensor, code: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the first k distinct values of streams (batch, draws, *event), by their codes (batch, draws).

    Also return whether a stream has fewer, (batch,); its last values are then repetitions.
    """
    again, order = _appeared(code).sort(dim=-1, stable=True)  # new values first
    order = order.narrow(1, 0, k)
    if stream.dim() > 2:
        order = order.reshape(*order.shape, *(1,) * (stream.dim() - 2))
        order = order.expand(*order.shape[:2], *stream.shape[2:])
    return stream.gather(1, order), again.select(1, k - 1)


def _appeared(code: Tensor) -> Tensor:
    """Return which draws (batch, draws) an earlier draw of the stream is equal to."""
    draws = code.shape[-1]
    if draws <= FEW_DRAWS:
        return (code.unsqueeze(-1) == code.unsqueeze(-2)).tril_(-1).any(-1)
    ordered, position = code.sort(dim=-1, stable=True)
    same = ordered.narrow(-1, 1, draws - 1) == ordered.narrow(-1, 0, draws - 1)
    again = torch.zeros_like(code, dtype=torch.bool)
    return again.scatter_(-1, position.narrow(-1, 1, draws - 1), same)


def _true(x: Tensor) -> Tensor | None:
    """Return the indices of the elements that are true, or None if there are none, the common case."""
    return torch.nonzero(x).squeeze(-1) if x.any().item() else None


def log_rest_and_kappa(
    log_p: Tensor, total: Tensor, log_outside: OfRows, generator: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    r"""Return the log of the mass outside a sample, and its threshold $\kappa$, each (batch,).

    The mass outside is $1 - \sum_{s \in S} p_s$ if it is at least one eighth. Otherwise the difference would
    cancel, and it is computed by ``log_outside``.

    Args:
        log_p: in the order sampled, (batch, k).
        total: the sum of all probabilities, 1 up to rounding, (batch, 1).
        log_outside: from the indices of rows to the log of their mass outside, as a sum.
        generator: the source of randomness.
    """
    left = total - F.pad(log_p.exp(), (1, 0)).cumsum(-1)
    rest = left.select(-1, -1)
    log_rest, kappa = rest.log(), -(exponential_like(left, generator) / left).sum(-1).log()
    if rest.numel() and rest.amin().item() < 0.125:
        most = torch.nonzero(rest < 0.125).squeeze(-1)
        log_rest[most] = log_outside(most)
        kappa[most] = threshold(log_p[most], log_rest[most], generator)
    return log_rest, kappa


def draw_one_by_one(log_probs: Tensor, k: int, generator: torch.Generator | None) -> DistinctValues:
    """Draw k distinct outcomes, one after the other; impossible ones have the log-probability −inf."""
    n = log_probs.shape[-1]
    size = near_root(n)
    log_mass = block_masses(log_probs, size)
    value: list[Tensor] = []
    log_p: list[Tensor] = []
    for _ in range(k):
        block = draw_index(log_mass, generator)
        member = block_members(block.squeeze(-1), n, size)
        inside = log_probs.gather(-1, member.clamp(max=n - 1))
        taken = member >= n
        for earlier in value:
            taken = taken | (member == earlier)
        inside = inside.masked_fill(taken, -torch.inf)
        place = draw_index(inside, generator)
        value.append(member.gather(-1, place).clamp(max=n - 1))
        log_p.append(inside.gather(-1, place))
        left = inside.masked_fill(_is_at(place, inside), -torch.inf).logsumexp(-1, keepdim=True)
        log_mass = torch.where(_is_at(block, log_mass), left, log_mass)
    values, log_ps, log_rest = torch.cat(value, -1), torch.cat(log_p, -1), log_mass.logsumexp(-1)
    return DistinctValues(values, log_ps, log_rest, threshold(log_ps, log_rest, generator))


def draw_index(log_mass: Tensor, generator: torch.Generator | None) -> Tensor:
    """Draw an index with probabilities that need not be normalised: from (*batch, n) to (*batch, 1)."""
    most = log_mass.amax(-1, keepdim=True)
    most = most.masked_fill(most == -torch.inf, 0.0)  # where nothing is left
    return invert_one(torch.exp(log_mass - most), generator)


def _is_at(index: Tensor, like: Tensor) -> Tensor:
    """True at an index (*batch, 1) of the last axis of a tensor."""
    return torch.arange(like.shape[-1], device=like.device) == index


def threshold(log_p: Tensor, log_rest: Tensor, generator: torch.Generator | None) -> Tensor:
    r"""Draw $\kappa$ given the order: $-\log \sum_{i \le k+1} E_i / t_i$, $E_i \sim \text{Exp}(1)$.

    In an exponential race, the time between two arrivals is exponential, and its rate is the mass $t_i$ that
    has not arrived yet.
    """
    log_t = log_remaining(log_p, log_rest)
    log_gaps = -gumbel_like(log_t, generator) - log_t
    return -log_gaps.logsumexp(-1)


def to_sample(found: DistinctValues, log_p: Tensor) -> Sample:
    """Return distinct values as a sample; their log_p with gradient defines its dtype and device."""
    return Sample(
        value=found.value.to(log_p.device),
        log_p=log_p,
        log_rest=found.log_rest.to(log_p),
        kappa=found.kappa.to(log_p),
        scheme=Scheme.WITHOUT_REPLACEMENT,
    )
