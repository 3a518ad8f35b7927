r"""A sample without replacement from a stream of independent draws.

The distinct values of an independent stream $x_1, x_2, \dots \sim p$, in the order of their first
appearance, are an ordered sample without replacement, because the next new value has the distribution
$p$ restricted to the values that have not appeared. If the entropy is high, a few draws are enough, and
they cost less than a race of all outcomes. If a stream is too short, any other sample without
replacement may follow it, for the same reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from swor.math.logspace import log_remaining
from swor.samplers.race import exponential_like, gumbel_like

SHORT = 10  # number of draws up to which comparing all pairs is faster than sorting
Rows = Callable[[Tensor], Tensor]  # from indices of rows to something of these rows


def distinct_values(
    stream: Tensor, k: int, *, code: Callable[[Tensor], Tensor], longer: Sequence[Rows]
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
    value, count = first_distinct(stream, code(stream), k)
    rows = short = _smaller(count, k)
    for draw in longer:
        if rows is None or short is None:
            break
        stream = torch.cat([stream[short], draw(rows)], dim=1)
        value[rows], count = first_distinct(stream, code(stream), k)
        short = _smaller(count, k)
        rows = None if short is None else rows[short]
    if rows is not None:
        raise ValueError(
            f"k is {k}, but an element of the batch has fewer than {k} outcomes of positive "
            "probability; expected k to be at most their number. Lower k, mask fewer outcomes, or "
            "sample with replacement."
        )
    return value


def _smaller(x: Tensor, limit: float) -> Tensor | None:
    """Return the indices of the elements that are smaller than a limit, or None if there are none."""
    if x.numel() == 0 or x.amin().item() >= limit:  # one small reduction in the common case
        return None
    return torch.nonzero(x < limit).squeeze(-1)


def first_distinct(stream: Tensor, code: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the first k distinct values of each stream, and how many distinct values it has.

    Args:
        stream: (batch, draws, *event).
        code: integers that are equal where the values of a stream are equal, (batch, draws).
        k: the number of values to keep.

    Returns:
        The values (batch, k, *event), in the order of their first appearance, and the number of distinct
        values, (batch,). If there are fewer than k, the last values of the stream mean nothing.
    """
    again = _appeared(code)
    count = (~again).cumsum(-1)
    place = count.masked_fill(again, k + 1).clamp_(max=k + 1)  # columns 0 and k + 1 are dropped
    place = place.reshape(*place.shape, *(1,) * (stream.dim() - 2))
    value = stream.new_empty((len(stream), k + 2, *stream.shape[2:]))
    value.scatter_(1, place.expand_as(stream), stream)
    return value.narrow(1, 1, k), count.select(-1, -1)


def _appeared(code: Tensor) -> Tensor:
    """Return which draws (batch, draws) an earlier draw of the stream is equal to."""
    draws = code.shape[-1]
    if draws <= SHORT:
        return (code.unsqueeze(-1) == code.unsqueeze(-2)).tril_(-1).any(-1)
    ordered, position = code.sort(dim=-1, stable=True)
    same = ordered.narrow(-1, 1, draws - 1) == ordered.narrow(-1, 0, draws - 1)
    again = torch.zeros_like(code, dtype=torch.bool)
    return again.scatter_(-1, position.narrow(-1, 1, draws - 1), same)


def log_rest_and_kappa(
    log_p: Tensor, total: Tensor, log_outside: Rows, generator: torch.Generator | None
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
    left = total - torch.cat([torch.zeros_like(total), log_p.exp()], dim=-1).cumsum(-1)
    rest = left.select(-1, -1)
    log_rest, kappa = rest.log(), -(exponential_like(left, generator) / left).sum(-1).log()
    most = _smaller(rest, 0.125)
    if most is not None:
        log_rest[most] = log_outside(most)
        kappa[most] = threshold(log_p[most], log_rest[most], generator)
    return log_rest, kappa


def threshold(log_p: Tensor, log_rest: Tensor, generator: torch.Generator | None) -> Tensor:
    r"""Draw $\kappa$ given the order: $-\log \sum_{i \le k+1} E_i / t_i$, $E_i \sim \text{Exp}(1)$.

    In an exponential race, the time between two arrivals is exponential, and its rate is the mass $t_i$ that
    has not arrived yet.

    Args:
        log_p: in the order sampled, (*batch, k).
        log_rest: (*batch,).
        generator: the source of randomness.
    """
    log_t = log_remaining(log_p, log_rest)
    log_gaps = -gumbel_like(log_t, generator) - log_t
    return -log_gaps.logsumexp(-1)
