"""Models of sequences, as samplers see them."""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor

from swor.checks import may_inspect

State = TypeVar("State")


class SequenceModel(Protocol[State]):
    """A distribution over sequences, as a search sees it.

    A state holds what the model knows of a number of beams per element of the batch: one at the
    start. A model may also have a method ``log_prob(value)``, from sequences (*batch, k, length) to
    log-probabilities (*batch, k) with gradient in one pass; without it they are found by stepping
    through the sequences again.

    Attributes:
        length: the largest number of symbols.
        end: the symbol that ends a sequence, and fills it up to ``length``; None if all sequences
            have this length.
    """

    @property
    def length(self) -> int:
        """The largest number of symbols."""
        ...

    @property
    def end(self) -> int | None:
        """The symbol that ends a sequence."""
        ...

    def start(self) -> State:
        """The state of one empty sequence per element of the batch."""
        ...

    def step(self, state: State) -> tuple[Tensor, State]:
        """Normalised log-probabilities of the next symbol, (*batch, beams, symbols), −inf masks."""
        ...

    def select(self, state: State, parents: Tensor, symbols: Tensor) -> State:
        """The state of the beams ``parents`` (*batch, beams), each extended by its symbol."""
        ...


class SampledSequences(NamedTuple):
    """Distinct sequences in the order sampled, without gradient."""

    value: Tensor  # (*batch, k, length)
    log_p: Tensor  # (*batch, k)
    log_rest: Tensor  # (*batch,)
    kappa: Tensor  # (*batch,)


@runtime_checkable
class ScoresWholeSequences(Protocol):
    """A model that computes the log-probabilities of whole sequences in one pass."""

    def log_prob(self, value: Tensor) -> Tensor:
        """From (*batch, k, length) to (*batch, k), with gradient."""
        ...


@runtime_checkable
class DrawsWholeSequences(ScoresWholeSequences, Protocol):
    """A model that draws whole sequences at once, independent or distinct."""

    def independent(self, k: int, generator: torch.Generator | None) -> Tensor:
        """From k to (*batch, k, length)."""
        ...

    def distinct(self, k: int, generator: torch.Generator | None) -> SampledSequences:
        """As a stochastic beam search would."""
        ...


def log_prob(model: SequenceModel[State], value: Tensor) -> Tensor:
    """Log-probabilities of sequences, with gradient: the model's own, or by stepping again.

    Args:
        model: the model.
        value: (*batch, k, length), filled up with the end symbol.

    Returns:
        (*batch, k)
    """
    if isinstance(model, ScoresWholeSequences):
        return model.log_prob(value)
    state = model.start()
    total = torch.zeros(())
    for t in range(value.shape[-1]):
        log_probs, state = model.step(state)
        log_probs = log_probs.expand(*value.shape[:-1], log_probs.shape[-1])
        if t:
            log_probs = repeat_end(log_probs, value[..., t - 1], model.end)
        symbols = value[..., t]
        chosen = log_probs.gather(-1, symbols.unsqueeze(-1)).squeeze(-1)
        total = chosen if t == 0 else total + chosen
        lanes = torch.arange(symbols.shape[-1], device=symbols.device).expand_as(symbols)
        state = model.select(state, lanes if t else torch.zeros_like(lanes), symbols)
    return total


def repeat_end(log_probs: Tensor, last: Tensor, end: int | None) -> Tensor:
    """Let sequences that have ended repeat the end symbol."""
    return log_probs if end is None else force_symbol(log_probs, last == end, end)


def force_symbol(log_probs: Tensor, rows: Tensor, symbol: int) -> Tensor:
    """Give a symbol the probability 1 in some rows, and leave the other rows as they are."""
    only = torch.arange(log_probs.shape[-1], device=log_probs.device) == symbol
    certain = torch.where(only, 0.0, -torch.inf).to(log_probs.dtype)
    return torch.where(rows.unsqueeze(-1), certain, log_probs)


def fill(symbols: Tensor, model: SequenceModel[State]) -> Tensor:
    """Fill sequences up to the length of the model."""
    missing = model.length - symbols.shape[-1]
    return F.pad(symbols, (0, missing), value=model.end or 0)


def all_ended(symbols: Tensor, end: int | None) -> bool:
    """Whether every sequence has ended, where that may be looked at."""
    return end is not None and may_inspect(symbols) and bool((symbols[..., -1] == end).all())
