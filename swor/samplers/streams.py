"""Distinct outcomes from an engine that returns independent draws with their log-probabilities."""

from __future__ import annotations

import math
import warnings
from collections.abc import Hashable, Iterable
from typing import Any, TypeVar

import torch
from torch import Tensor

from swor._checks import TOLERANCE, check_count, check_k
from swor.math._logspace import log1mexp, working_dtype
from swor.samplers._distinct import threshold, to_sample
from swor.samplers._tables import DistinctValues
from swor.types import Sample

Outcome = TypeVar("Outcome", bound=Hashable)

# Repetitions, by their expected number of new outcomes: exp(−50) is the chance of more.
TOO_MANY = 50.0
NOTHING_LEFT = 1e-6  # a mass that cannot be told from the rounding of log-probabilities


def distinct_from_stream(
    stream: Iterable[tuple[Outcome, float | Tensor]],
    k: int,
    *,
    max_draws: int | None = None,
    generator: torch.Generator | None = None,
) -> tuple[list[Outcome], Sample]:
    r"""Return the first k distinct outcomes of independent draws, as a sample without replacement.

    The next new outcome of a stream $x_1, x_2, \dots \sim p$ has the distribution $p$ restricted to the
    outcomes that have not appeared. Use it for engines that only return samples with their
    log-probabilities. If you can make the random choices of the engine yourself, :class:`swor.DistinctRuns`
    wastes no draw on duplicates.

    Args:
        stream: pairs of an outcome and its log-probability under the distribution from which it was
            drawn, after any temperature or truncation. The stream must last until k outcomes are distinct.
        k: the number of distinct outcomes.
        max_draws: the largest number of draws. If it is reached, there are fewer than k outcomes and a
            warning. Such a limit biases every estimate, because reaching it depends on the draws.
        generator: the source of randomness of ``kappa``, on the CPU.

    Returns:
        The outcomes in the order of their first appearance, and their sample. Its ``value`` (k,) contains
        their positions in the stream. The mass outside is $1 - \sum p$, to the precision of the
        log-probabilities.

    >>> import swor
    >>> rolls = iter([(5, -1.79), (2, -1.79), (5, -1.79), (4, -1.79)])
    >>> outcomes, sample = distinct_from_stream(rolls, 3)
    >>> outcomes, sample.value
    ([5, 2, 4], tensor([0, 1, 3]))
    """
    check_k(k)
    if max_draws is not None:
        check_count("max_draws", max_draws)
    first: dict[Outcome, int] = {}
    log_p: list[Tensor] = []
    mass, repeats = 0.0, 0
    for position, draw in enumerate(stream):
        outcome, given = to_pair(draw)
        repeats += 1
        if outcome not in first:
            first[outcome] = position
            log_p.append(to_log_prob(outcome, given))
            mass, repeats = drawn_mass(log_p), 0
            _check_left(mass, len(log_p), k)
        check_new(repeats, 1.0 - mass)
        if len(log_p) == k or position + 1 == max_draws:
            break
    _check_enough(len(log_p), k, max_draws)
    return list(first), _sample_of(list(first.values()), log_p, generator)


def to_pair(draw: tuple[Outcome, float | Tensor]) -> tuple[Outcome, float | Tensor]:
    """Return an outcome, which can be recognised when it is drawn again, and its log-probability."""
    try:
        outcome, given = draw
    except (TypeError, ValueError):
        raise TypeError(
            f"a draw is {draw!r}; expected a pair of an outcome and its log-probability. Give, for example, "
            "(tuple(tokens.tolist()), log_p), with the log-probability under the distribution sampled from."
        ) from None
    _check_outcome(outcome)
    return outcome, given


def _check_outcome(outcome: Any) -> None:
    """Check that an outcome can be recognised when it is drawn again."""
    parts = outcome if isinstance(outcome, tuple) else (outcome,)
    tensor = any(isinstance(part, Tensor) for part in parts)
    if tensor or not isinstance(outcome, Hashable):
        reason = "a tensor, which equals nothing but itself" if tensor else "which cannot be hashed"
        raise TypeError(
            f"an outcome is {outcome!r}, {reason}; expected a value that two draws of the same outcome "
            "share. Give, for example, tuple(tokens.tolist())."
        )


def to_log_prob(outcome: object, given: float | Tensor) -> Tensor:
    """Return the log-probability that an engine gave of an outcome as a tensor, ()."""
    try:
        log_p = given if isinstance(given, Tensor) else torch.as_tensor(given, device="cpu")
    except (TypeError, ValueError, RuntimeError):
        log_p = torch.tensor(torch.nan, device="cpu")  # whose error says what was given
    if not log_p.is_floating_point() or log_p.numel() != 1 or not bool(log_p.isfinite()):
        raise ValueError(
            f"the log-probability of {outcome!r} is {given!r}; expected a finite number, at most 0."
        )
    return log_p.to(working_dtype(log_p.dtype)).reshape(())


def drawn_mass(log_p: list[Tensor]) -> float:
    """Return the mass of distinct outcomes; an error if it is more than 1."""
    mass = math.fsum(math.exp(x.item()) for x in log_p)
    if log_p and mass > 1.0 + TOLERANCE[log_p[0].dtype]:
        raise ValueError(
            f"the {len(log_p)} distinct outcomes so far have probabilities that sum to {mass:.6g}; "
            "expected at most 1. Give log-probabilities under the distribution that the draws come "
            "from, with the temperature and the truncation that the engine used."
        )
    return mass


def check_new(repeats: int, rest: float, where: str = "") -> None:
    """Check that new outcomes appear at least as often as the mass outside says."""
    if repeats * rest > TOO_MANY:
        raise ValueError(
            f"the last {repeats} draws{where} repeat earlier ones, although a mass of {rest:.6g} is left; "
            "expected log-probabilities of the distribution that the draws come from. Check the source's "
            "temperature and truncation."
        )


def _check_left(mass: float, found: int, k: int) -> None:
    """Check that some mass is left if more outcomes are needed."""
    if found < k and 1.0 - mass <= NOTHING_LEFT:
        raise ValueError(
            f"k is {k}, but the {found} distinct outcomes so far have a probability of "
            f"{mass:.9g} together, so that no other would be drawn; expected k <= {found}."
        )


def _check_enough(found: int, k: int, max_draws: int | None) -> None:
    if found == k:
        return
    if max_draws is None:
        raise ValueError(
            f"the stream ended after {found} distinct outcomes; expected k = {k}. Draw on until there "
            "are enough: a sample that is shorter because the draws were few gives biased estimates."
        )
    warnings.warn(
        f"the {max_draws} draws that max_draws allows gave only {found} of {k} distinct outcomes. "
        "Estimates are biased, since the size of the sample depends on the draws. Raise "
        "max_draws, or lower k.",
        stacklevel=3,
    )


def _sample_of(
    position: list[int], log_p: list[Tensor], generator: torch.Generator | None
) -> Sample:
    together = torch.stack(log_p)
    exact = together.detach().to("cpu", torch.float64)
    log_rest = log1mexp(exact.logsumexp(0).clamp(max=0.0))
    kappa = threshold(exact, log_rest, generator)
    value = torch.tensor(position, device="cpu")
    return to_sample(DistinctValues(value, exact, log_rest, kappa), together)
