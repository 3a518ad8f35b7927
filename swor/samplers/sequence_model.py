"""The protocol of a sequence model, and the operations on sequences that samplers share."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Protocol, TypeGuard, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from swor._checks import check_log_probs, check_shape, kind, may_inspect
from swor.math._logspace import working_dtype
from swor.samplers._tables import DistinctValues, force_symbol

State = TypeVar("State")


class SequenceModel(Protocol[State]):
    """The protocol of a distribution over sequences, which a search extends symbol by symbol.

    A state holds the results of the model for a number of beams per element of the batch; at the start
    there is one beam. A model may also have a method ``log_prob(value)`` that maps sequences
    (*batch, k, length) to log-probabilities (*batch, k), with gradient, in one pass. Without it, they are
    computed by stepping through the sequences again.

    Attributes:
        length: the largest number of symbols.
        end: the symbol that ends a sequence and pads it to ``length``; None if all sequences have this
            length.

    >>> class Coins:
    ...     length, end = 3, None
    ...
    ...     def start(self) -> int:
    ...         return 1  # the number of beams
    ...
    ...     def step(self, state: int) -> tuple[Tensor, int]:
    ...         return torch.full((state, 2), 0.5).log(), state
    ...
    ...     def select(self, state: int, parents: Tensor, symbols: Tensor) -> int:
    ...         return parents.shape[-1]
    >>> import swor
    >>> swor.stochastic_beam_search(Coins(), 8).value.sum(0)  # all eight sequences
    tensor([4, 4, 4])
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
        """Return the state of one empty sequence per element of the batch."""
        ...

    def step(self, state: State) -> tuple[Tensor, State]:
        """Return normalised log-probabilities of the next symbol, (*batch, beams, symbols); −inf masks."""
        ...

    def select(self, state: State, parents: Tensor, symbols: Tensor) -> State:
        """Return the state of the beams ``parents`` (*batch, beams), each extended by its symbol."""
        ...


class DrawsWholeSequences(Protocol):
    """A model that draws whole sequences in one call, independent or distinct."""

    @property
    def log_probs(self) -> Tensor:
        """The log-probabilities of its symbols, in the precision of the model."""
        ...

    def log_prob(self, value: Tensor) -> Tensor:
        """Map sequences (*batch, k, length) to log-probabilities (*batch, k), with gradient."""
        ...

    def independent(self, k: int, generator: torch.Generator | None) -> Tensor:
        """Draw k independent sequences, (*batch, k, length)."""
        ...

    def distinct(
        self, k: int, generator: torch.Generator | None, *, allow_fewer: bool = False
    ) -> DistinctValues:
        """Draw k distinct sequences with the distribution of a stochastic beam search."""
        ...


def draws_whole_sequences(model: object) -> TypeGuard[DrawsWholeSequences]:
    """Return whether a model has the methods of the protocol; isinstance would take longer than a sample."""
    return all(
        hasattr(model, name) for name in ("log_probs", "log_prob", "independent", "distinct")
    )


def check_model(model: SequenceModel[State]) -> None:
    """Check that an argument has the methods of a sequence model, and at least one symbol."""
    missing = [
        name for name in ("length", "end", "start", "step", "select") if not hasattr(model, name)
    ]
    if missing:
        raise TypeError(
            f"the model is {kind(model)}, which has no {' and no '.join(missing)}; expected a SequenceModel, "
            "or a Factorized(log_probs) for independent variables. For the log-probabilities of a single "
            "variable use gumbel_top_k."
        )
    if not (hasattr(model.length, "__index__") and model.length >= 1):
        raise ValueError(
            f"the model has length {model.length!r}; expected an integer, at least one symbol. Set its "
            "length to the largest number of symbols of a sequence."
        )


def next_symbols(model: SequenceModel[State], state: State, beams: int) -> tuple[Tensor, State]:
    """Return the log-probabilities of the next symbol, (*batch, beams, symbols), after checking their form.

    A model may return a single row that is right for all beams.
    """
    result: object = model.step(state)
    if not (isinstance(result, tuple | list) and len(result) == 2):
        raise TypeError(
            f"step returned {kind(result)}; expected a pair of log-probabilities and a state. Return both, "
            "as in 'return log_probs, state'."
        )
    log_probs, state = result
    check_log_probs("log_probs", log_probs)
    if log_probs.dim() < 2 or log_probs.shape[-2] not in (1, beams):
        raise ValueError(
            f"step returned log-probabilities of shape {tuple(log_probs.shape)}; expected (*batch, "
            f"{beams}, symbols), a row for each of the {beams} beams that start or select left."
        )
    end, symbols = model.end, log_probs.shape[-1]
    if end is not None and not (hasattr(end, "__index__") and 0 <= end < symbols):
        raise ValueError(
            f"the model has the end symbol {end!r} and {symbols} symbols; expected one of 0 to "
            f"{symbols - 1}, or None if all sequences have the same length. Set its end."
        )
    return log_probs, state


def log_prob(model: SequenceModel[State], value: Tensor) -> Tensor:
    """Return the log-probabilities of sequences (*batch, k, length), with gradient.

    They are computed in one pass, or by stepping through sequences that are padded with the end symbol.
    """
    in_one_pass: Callable[[Tensor], Tensor] | None = getattr(model, "log_prob", None)
    if in_one_pass is not None:
        found = in_one_pass(value)
        check_log_probs("log_prob(value)", found)
        check_shape(
            "log_prob(value)", found, tuple(value.shape[:-1]), "one number for each sequence"
        )
        return found
    log_probs, state = model.step(model.start())
    symbols = value.unbind(-1)
    total = log_prob_of_symbols(symbols[0], log_probs)
    lanes = torch.arange(value.shape[-2], device=value.device).expand(value.shape[:-1])
    parents = torch.zeros_like(lanes)
    for last, following in pairwise(symbols):
        state = model.select(state, parents, last)
        log_probs, state = model.step(state)
        log_probs = repeat_end(log_probs, last, model.end)
        total, parents = total + log_prob_of_symbols(following, log_probs), lanes
    return total.to(log_probs.dtype)


def log_prob_of_symbols(symbols: Tensor, log_probs: Tensor) -> Tensor:
    """Return the log-probabilities of symbols (*batch, k) in working precision.

    A sum of them in half precision would lose whole units.
    """
    log_probs = log_probs.expand(*symbols.shape, log_probs.shape[-1])
    chosen = log_probs.gather(-1, symbols.unsqueeze(-1)).squeeze(-1)
    return chosen.to(working_dtype(chosen.dtype))


def log_prob_of(model: SequenceModel[State], found: DistinctValues, *, allow_fewer: bool) -> Tensor:
    """Return the log-probabilities of sequences that were found, with gradient if gradients are enabled.

    At places that are left over the model scores the first sequence, which is always possible, because it
    might not know what to say of an impossible one.
    """
    if not torch.is_grad_enabled():
        return found.log_p
    if not allow_fewer:
        return log_prob(model, found.value)
    impossible = found.log_p == -torch.inf
    value = torch.where(impossible.unsqueeze(-1), found.value[..., :1, :], found.value)
    return log_prob(model, value).masked_fill(impossible, -torch.inf)


def repeat_end(log_probs: Tensor, last: Tensor, end: int | None) -> Tensor:
    """Make sequences that have ended repeat the end symbol."""
    if end is None or (may_inspect(last) and not bool((last == end).any())):
        return log_probs  # not copied, as it may be large
    return force_symbol(log_probs, last == end, end)


def extend(history: Tensor, parents: Tensor, symbols: Tensor) -> Tensor:
    """Return the histories (*batch, beams, t) of the selected beams, each with one more symbol."""
    rows = parents.unsqueeze(-1).expand(*parents.shape, history.shape[-1])
    return torch.cat([history.gather(-2, rows), symbols.unsqueeze(-1)], dim=-1)


def fill(symbols: Tensor, model: SequenceModel[State]) -> Tensor:
    """Pad sequences to the length of the model."""
    missing = model.length - symbols.shape[-1]
    return F.pad(symbols, (0, missing), value=model.end or 0)


def all_ended(symbols: Tensor, end: int | None) -> bool:
    """Return whether every sequence has ended; False if tensor values may not be inspected."""
    return end is not None and may_inspect(symbols) and bool((symbols[..., -1] == end).all())
