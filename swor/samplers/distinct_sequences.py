r"""Distinct sequences of a model, drawn some at a time.

Every draw is a search over the sequences that were not drawn yet, whose probability is
$p(x) / (1 - \sum_{x' \in S} p(x'))$. :class:`Drawn` stores the tree of all draws (see
:mod:`swor.samplers._tree`), for all elements of the batch, as tensors of the paths from its root to its
leaves. A search over :class:`Remaining` finds sequences that are not in the tree. The mass that is then left
at a node is the sum of the mass that the search prunes there and the mass that is left at the children that
it keeps, so nothing cancels.
"""

from __future__ import annotations

from typing import Generic, NamedTuple

import torch
from torch import Tensor

from swor._checks import DRAW_WHOLE, check_count, check_normalized
from swor.math._logspace import working_dtype
from swor.samplers._beams import search_beams
from swor.samplers._distinct import threshold, to_sample
from swor.samplers._tables import DistinctValues
from swor.samplers.sequence_model import (
    SequenceModel,
    State,
    check_model,
    extend,
    log_prob_of,
    next_symbols,
    repeat_end,
)
from swor.types import Sample


class DistinctSequences(Generic[State]):
    r"""Distinct sequences of a model, of which more can be drawn at any time.

    $$x_{k+1} \sim p(x) / \Bigl(1 - \sum_{i \le k} p(x_i)\Bigr), \qquad x \ne x_1, \dots, x_k$$

    Every call of :meth:`draw` is one stochastic beam search over the sequences that were not drawn before,
    for all elements of the batch together. So at any time the sequences are a sample without replacement.
    Use it if the number of sequences is not known in advance; otherwise use
    :func:`swor.stochastic_beam_search`. Drawing all k sequences at once is as fast as a stochastic beam
    search, and drawing them one by one takes k passes through the model.

    The model must not change between draws. Make a new object after each step of an optimiser.

    Args:
        model: a :class:`swor.SequenceModel`, or a :class:`swor.Factorized`.
        generator: the source of randomness.

    >>> import swor
    >>> coins = swor.Factorized(torch.full((3, 2), 0.5).log())
    >>> sequences = DistinctSequences(coins, generator=torch.Generator().manual_seed(0))
    >>> while sequences.log_rest.exp() > 0.3:
    ...     sequences.draw(2)
    >>> sequences.sample().value.shape  # six of eight have three quarters of the mass
    torch.Size([6, 3])

    References:
        | Incremental Sampling Without Replacement for Sequence Models (Shi et al., 2020)
        | https://arxiv.org/abs/2002.09067
    """

    def __init__(
        self, model: SequenceModel[State], *, generator: torch.Generator | None = None
    ) -> None:
        check_model(model)
        self.model, self.generator = model, generator
        self._drawn: Drawn | None = None
        self._log_p = torch.empty(0)  # (*batch, k)
        self._kappa: Tensor | None = None
        self._allow_fewer = False

    @property
    def k(self) -> int:
        """The number of sequences so far."""
        return 0 if self._drawn is None else self._drawn.symbols.shape[-2]

    @property
    def log_rest(self) -> Tensor:
        """The log of the probability mass of the sequences that were not drawn, (*batch,)."""
        if self._drawn is None:
            return torch.zeros((), device="cpu")  # the device of the model is not known yet
        return self._drawn.log_rest[..., 0, 0]

    @torch.no_grad()
    def draw(self, n: int = 1, *, allow_fewer: bool = False) -> None:
        """Draw n more sequences for every element of the batch.

        Args:
            n: the number of sequences. It is an error if an element of the batch has fewer left.
            allow_fewer: whether an element of the batch may have fewer left. All of them are then drawn,
                and the places that are left over have symbols of 0 and the log-probability −inf.
        """
        check_count("n", n)
        self._allow_fewer = self._allow_fewer or allow_fewer
        if self._drawn is not None and not allow_fewer:
            self._check_enough(n, self.log_rest.unsqueeze(-1))
        remaining = Remaining(self.model, self._drawn)
        try:
            found, _ = search_beams(remaining, n, generator=self.generator, allow_fewer=allow_fewer)
        except ValueError as error:
            error.add_note(f"The {self.k} sequences that were drawn before do not count.")
            raise
        if not allow_fewer:
            self._check_enough(n, found.log_p)
        log_p = found.log_p
        if self._drawn is not None:
            log_p = log_p + self.log_rest.unsqueeze(-1)
        self._add(remaining.found(found.value), log_p)

    def sample(self) -> Sample:
        """Return all sequences so far, in the order in which they were drawn.

        Returns:
            A sample whose ``value`` (*batch, k, length) contains the symbols. Unless gradients are disabled,
            ``log_p`` carries the gradient of the model, which takes one more pass through it.
        """
        if self._drawn is None:
            raise ValueError("there is no sequence yet; expected at least one. Call draw first.")
        if self._kappa is None:
            self._kappa = threshold(self._log_p, self.log_rest, self.generator)
        found = DistinctValues(self._drawn.symbols, self._log_p, self.log_rest, self._kappa)
        log_p = log_prob_of(self.model, found, allow_fewer=self._allow_fewer)
        return to_sample(found.padded(self.k) if self._allow_fewer else found, log_p)

    def _add(self, new: Drawn, log_p: Tensor) -> None:
        if self._drawn is not None:
            new = self._drawn.with_more(new)
            log_p = torch.cat([self._log_p, log_p], dim=-1)
        total = log_p.exp().sum(-1) + new.log_rest[..., 0, 0].exp()
        check_normalized(total, log_p.dtype, steps=self.model.length)
        self._drawn, self._log_p, self._kappa = new, log_p, None

    def _check_enough(self, n: int, log_p: Tensor) -> None:
        """Check on every device that n sequences are left, because later draws depend on it."""
        if bool((log_p == -torch.inf).any()):
            left = int((log_p > -torch.inf).sum(-1).min())
            cure = (
                f"expected n <= {left}. Draw fewer"
                if left
                else "expected one or more. Stop drawing"
            )
            raise ValueError(
                f"n is {n}, but an element of the batch has only {left} sequences of positive "
                f"probability besides the {self.k} that were drawn before; {cure}{DRAW_WHOLE}."
            )


class Drawn(NamedTuple):
    """The sequences that were drawn, in order."""

    symbols: Tensor  # (*batch, k, length)
    log_rest: Tensor  # (*batch, k, length + 1): log of the fraction left of a prefix of t symbols

    def with_more(self, new: Drawn) -> Drawn:
        """Return these and more sequences, which reduce the mass left at the prefixes that they share."""
        equal = self.symbols.unsqueeze(-2) == new.symbols.unsqueeze(-3)
        shared = torch.cat([torch.ones_like(equal[..., :1]), equal], dim=-1).cumprod(-1).bool()
        left = torch.where(shared, new.log_rest.unsqueeze(-3), torch.inf).amin(-2)
        log_rest = torch.minimum(self.log_rest, left)
        return Drawn(
            torch.cat([self.symbols, new.symbols], dim=-2),
            torch.cat([log_rest, new.log_rest], dim=-2),
        )


class KeptChildren(NamedTuple):
    """The children that a step of the search kept."""

    parents: Tensor  # (*batch, kept), the beams that they are children of
    log_p: Tensor  # (*batch, kept), given their parents
    log_others: Tensor  # (*batch, beams), log of the fraction left in the children not kept


class Search(NamedTuple, Generic[State]):
    """The state of a search over the remaining sequences."""

    inner: State  # the state of the model
    symbols: Tensor  # (*batch, beams, t)
    shared: Tensor  # (*batch, beams, k), the sequences drawn before that begin with these symbols
    log_probs: Tensor  # of the next symbol, (*batch, beams, n)
    log_left: Tensor  # log of the fraction left in it, (*batch, beams, n)
    past: tuple[KeptChildren, ...]


class Remaining(Generic[State]):
    """The sequences of a model that were not drawn, as a :class:`swor.SequenceModel`.

    Args:
        model: the model.
        drawn: the sequences to leave out; None if there are none.
    """

    def __init__(self, model: SequenceModel[State], drawn: Drawn | None) -> None:
        self.model, self.drawn = model, drawn
        self.length, self.end = model.length, model.end
        self.last: Search[State] | None = None  # the state at the last step

    def start(self) -> Search[State]:
        """Return the state of one empty sequence per element of the batch."""
        nothing = torch.empty(0, device="cpu")
        return Search(self.model.start(), nothing, nothing, nothing, nothing, ())

    def step(self, state: Search[State]) -> tuple[Tensor, Search[State]]:
        """Return log-probabilities of the next symbol, given that the sequence was not drawn before."""
        beams = state.symbols.shape[-2] if state.past else 1
        log_probs, inner = next_symbols(self.model, state.inner, beams)
        log_probs = log_probs.to(working_dtype(log_probs.dtype))
        if state.past:
            log_probs = log_probs.expand(*state.symbols.shape[:-1], log_probs.shape[-1])
            log_probs = repeat_end(log_probs, state.symbols[..., -1], self.end)
        else:
            state = self._root(state, log_probs)
        log_left = self._log_left(state, log_probs)
        self.last = state._replace(inner=inner, log_probs=log_probs, log_left=log_left)
        log_total = log_left.logsumexp(-1, keepdim=True)  # −inf where every continuation was drawn
        return log_left - log_total.masked_fill(log_total == -torch.inf, 0.0), self.last

    def select(self, state: Search[State], parents: Tensor, symbols: Tensor) -> Search[State]:
        """Return the state of the selected beams, each extended by its symbol."""
        rows = parents.unsqueeze(-1).expand(*parents.shape, state.shared.shape[-1])
        shared = state.shared.gather(-2, rows)
        if self.drawn is not None:
            next_symbol = self.drawn.symbols[..., state.symbols.shape[-1]]
            shared = shared & (next_symbol.unsqueeze(-2) == symbols.unsqueeze(-1))
        return state._replace(
            inner=self.model.select(state.inner, parents, symbols),
            symbols=extend(state.symbols, parents, symbols),
            shared=shared,
            past=(*state.past, _kept_children(state, parents, symbols)),
        )

    def found(self, value: Tensor) -> Drawn:
        """Return the sequences that a search has found, with the mass that they leave at their prefixes.

        Args:
            value: the result of the search, (*batch, k, length).
        """
        if self.last is None:
            raise RuntimeError("found was called before a search")
        t = self.last.symbols.shape[-1]  # a search makes no selection after its last step
        same = value[..., :t].unsqueeze(-2) == self.last.symbols.unsqueeze(-3)
        parents = same.all(-1).to(torch.uint8).argmax(-1)
        past = (*self.last.past, _kept_children(self.last, parents, value[..., t]))
        nothing = torch.full_like(past[-1].log_p, -torch.inf)
        log_rest = [nothing] * (self.length - t)  # of a sequence as a whole, and of its padding
        lane = torch.arange(value.shape[-2], device=value.device).expand_as(parents)
        below = nothing
        for step in reversed(past):
            below, lane = _log_rest(step, below), step.parents.gather(-1, lane)
            log_rest.insert(0, below.gather(-1, lane))
        return Drawn(value, torch.stack(log_rest, dim=-1))

    def _root(self, state: Search[State], log_probs: Tensor) -> Search[State]:
        lead, device = log_probs.shape[:-1], log_probs.device
        count = 0 if self.drawn is None else self.drawn.symbols.shape[-2]
        return state._replace(
            symbols=torch.empty((*lead, 0), dtype=torch.long, device=device),
            shared=torch.ones((*lead, count), dtype=torch.bool, device=device),
        )

    def _log_left(self, state: Search[State], log_probs: Tensor) -> Tensor:
        r"""Return $\log p(c \mid v) + \log(1 - \varphi(c))$ of all children c of the beams v."""
        if self.drawn is None:
            return log_probs
        t = state.symbols.shape[-1]
        child = self.drawn.symbols[..., t].unsqueeze(-2).expand_as(state.shared)
        log_rest = self.drawn.log_rest[..., t + 1].unsqueeze(-2)
        log_rest = torch.where(state.shared, log_rest, 0.0)
        fraction = torch.zeros_like(log_probs).scatter_reduce(-1, child, log_rest, "amin")
        return log_probs + fraction


def _kept_children(state: Search[State], parents: Tensor, symbols: Tensor) -> KeptChildren:
    n = state.log_probs.shape[-1]
    index = parents * n + symbols
    log_p = state.log_probs.flatten(-2).gather(-1, index)
    others = state.log_left.flatten(-2).scatter(-1, index, -torch.inf).unflatten(-1, (-1, n))
    return KeptChildren(parents, log_p, others.logsumexp(-1))


def _log_rest(step: KeptChildren, below: Tensor) -> Tensor:
    """Return the log of the fraction left of the beams, from the fraction left of the children they kept."""
    # Impossible children fill up the beams where there are too few; a model may say NaN of these.
    log_left = torch.where(step.log_p == -torch.inf, -torch.inf, step.log_p + below)
    beams = torch.arange(step.log_others.shape[-1], device=below.device).unsqueeze(-1)
    own = step.parents.unsqueeze(-2) == beams
    inside = torch.where(own, log_left.unsqueeze(-2), -torch.inf).logsumexp(-1)
    return torch.logaddexp(step.log_others, inside)
