"""Samplers of sequences that a model extends symbol by symbol: one beam loop for all searches."""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor

from swor.errors import can_look, check_k, check_normalized, check_possible
from swor.math.logspace import working_dtype
from swor.samplers.categorical import SMALL, independent, log_mass_outside
from swor.samplers.race import gumbel_like, perturb_children
from swor.types import Sample, Scheme

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


class Found(NamedTuple):
    """What a search has found, without gradient."""

    value: Tensor  # (*batch, k, length)
    log_p: Tensor  # (*batch, k)
    log_rest: Tensor  # (*batch,)
    kappa: Tensor  # (*batch,)


@runtime_checkable
class OwnLogProb(Protocol):
    """A model that finds the log-probabilities of whole sequences in one pass."""

    def log_prob(self, value: Tensor) -> Tensor:
        """From (*batch, k, length) to (*batch, k), with gradient."""
        ...


@runtime_checkable
class OwnDraws(OwnLogProb, Protocol):
    """A model that draws whole sequences at once, independent or distinct."""

    def independent(self, k: int, generator: torch.Generator | None) -> Tensor:
        """From k to (*batch, k, length)."""
        ...

    def distinct(self, k: int, generator: torch.Generator | None) -> Found:
        """As a stochastic beam search would."""
        ...


class _Beams(NamedTuple):
    """The sequences that are still in the search."""

    symbols: Tensor  # (*batch, beams, steps so far)
    log_p: Tensor  # (*batch, beams)
    score: Tensor  # (*batch, beams), by which beams are kept: perturbed, or log_p itself
    log_rest: Tensor  # (*batch,), mass of what was pruned
    kappa: Tensor  # (*batch,), the best score of what was pruned


def stochastic_beam_search(
    model: SequenceModel[State], k: int, *, generator: torch.Generator | None = None
) -> Sample:
    r"""The $k$ sequences of the largest perturbed log-probability: a sample without replacement.

    A beam search in which the score of a prefix is the largest perturbed log-probability of its
    completions, so the search prunes nothing that belongs to the sample (Kool et al. 2019).
    The mass that it prunes adds up to ``log_rest``; the best score that it prunes is ``kappa``.

    Args:
        model: a :class:`SequenceModel`, or a :class:`swor.Factorized`.
        k: the number of distinct sequences.
        generator: the source of randomness.

    Returns:
        A sample whose ``value`` (*batch, k, length) has the symbols.

    >>> from swor import Factorized
    >>> coins = Factorized(torch.full((3, 2), 0.5).log())
    >>> stochastic_beam_search(coins, 8).value.sum(0)  # all of them
    tensor([4, 4, 4])
    """
    with torch.no_grad():
        if isinstance(model, OwnDraws):
            found = model.distinct(k, generator)
        else:
            found = search(model, k, generator=generator)
    return _to_sample(model, found, Scheme.WITHOUT_REPLACEMENT)


def beam_search(model: SequenceModel[State], k: int) -> Sample:
    """Keep the k likeliest prefixes at every step: not random, and no sample in the proper sense.

    Args:
        model: a :class:`SequenceModel`, or a :class:`swor.Factorized`.
        k: the number of distinct sequences; 1 is greedy decoding.

    Returns:
        A sample for :func:`swor.risk`, likeliest first.
    """
    with torch.no_grad():
        found = search(model, k, stochastic=False)
    return _to_sample(model, found, Scheme.BEAM_SEARCH)


def search(
    model: SequenceModel[State],
    k: int,
    *,
    generator: torch.Generator | None = None,
    stochastic: bool = True,
) -> Found:
    """The beam loop: keep the k best prefixes, by perturbed log-probability or by probability."""
    check_k(k)
    state = model.start()
    beams: _Beams | None = None
    for t in range(model.length):
        log_probs, state = model.step(state)
        if beams is None:
            beams = _root(log_probs, generator, stochastic=stochastic)
        log_probs = log_probs.to(working_dtype(log_probs.dtype))
        beams, parents = _extend(beams, log_probs, k, model.end, generator, stochastic=stochastic)
        if t + 1 == model.length or _all_ended(beams.symbols, model.end):
            break  # without a last selection, which may be a large copy
        state = model.select(state, parents, beams.symbols[..., -1])
    if beams is None:
        raise ValueError(f"the model has length {model.length}; expected at least one symbol.")
    if k > beams.log_p.shape[-1]:
        possible = (beams.log_p > -torch.inf).sum(-1).flatten().tolist()
        check_k(k, support=min(possible, default=beams.log_p.shape[-1]))
    return Found(_fill(beams.symbols, model), beams.log_p, beams.log_rest, beams.kappa)


def _root(log_probs: Tensor, generator: torch.Generator | None, *, stochastic: bool) -> _Beams:
    log_p = torch.zeros_like(log_probs[..., 0], dtype=working_dtype(log_probs.dtype))
    score = gumbel_like(log_p, generator) if stochastic else log_p
    nothing = torch.full_like(log_p[..., 0], -torch.inf)
    symbols = torch.empty((*log_p.shape, 0), dtype=torch.long, device=log_p.device)
    return _Beams(symbols, log_p, score, nothing, nothing)


def _extend(
    beams: _Beams,
    log_probs: Tensor,
    k: int,
    end: int | None,
    generator: torch.Generator | None,
    *,
    stochastic: bool,
) -> tuple[_Beams, Tensor]:
    """The best k children of all beams, and the beams that they are children of."""
    if stochastic and log_probs.shape[-1] > SMALL:
        kept, parents, symbols = _keep_in_blocks(beams, log_probs, k, end, generator)
    else:
        log_probs = _stay(log_probs, _closed(beams, end), end or 0)
        score = _scores(log_probs, beams, generator, stochastic=stochastic)
        kept, parents, symbols = _keep(beams, log_probs, score, k)
    history = beams.symbols.gather(
        -2, parents.unsqueeze(-1).expand(*parents.shape, beams.symbols.shape[-1])
    )
    return kept._replace(symbols=torch.cat([history, symbols.unsqueeze(-1)], dim=-1)), parents


def _closed(beams: _Beams, end: int | None) -> Tensor:
    """Beams that ended, or that are impossible: they have only themselves as a child."""
    closed = beams.score == -torch.inf
    if end is not None and beams.symbols.shape[-1]:
        closed = closed | (beams.symbols[..., -1] == end)
    return closed


def _repeat_end(log_probs: Tensor, last: Tensor, end: int | None) -> Tensor:
    return log_probs if end is None else _stay(log_probs, last == end, end)


def _stay(log_probs: Tensor, closed: Tensor, child: int) -> Tensor:
    """Replace the rows of closed beams by certainty of one child."""
    only = torch.arange(log_probs.shape[-1], device=log_probs.device) == child
    certain = torch.where(only, 0.0, -torch.inf).to(log_probs.dtype)
    return torch.where(closed.unsqueeze(-1), certain, log_probs)


def _scores(
    log_probs: Tensor, beams: _Beams, generator: torch.Generator | None, *, stochastic: bool
) -> Tensor:
    if stochastic:
        return perturb_children(log_probs, beams.log_p, beams.score, generator)
    return beams.score.unsqueeze(-1) + log_probs


def _keep(beams: _Beams, log_probs: Tensor, score: Tensor, k: int) -> tuple[_Beams, Tensor, Tensor]:
    """Keep the best k children; account for the others. Also returns their parents and symbols."""
    log_p = (beams.log_p.unsqueeze(-1) + log_probs).flatten(-2)
    top, index = score.flatten(-2).topk(min(k + 1, log_p.shape[-1]), dim=-1)
    kappa = beams.kappa
    log_rest = beams.log_rest
    if log_p.shape[-1] > k:
        kappa = torch.maximum(kappa, top[..., k])
        top, index = top[..., :k], index[..., :k]
        log_rest = torch.logaddexp(log_rest, log_mass_outside(log_p, index))
    kept = _Beams(beams.symbols, log_p.gather(-1, index), top, log_rest, kappa)
    return kept, index // score.shape[-1], index % score.shape[-1]


def _keep_in_blocks(
    beams: _Beams, log_probs: Tensor, k: int, end: int | None, generator: torch.Generator | None
) -> tuple[_Beams, Tensor, Tensor]:
    r"""As :func:`_keep`, for many symbols: keep the best k blocks of symbols, then symbols in them.

    A block is a node of the tree between a beam and its children, so the search prunes it by the
    same rule and accounts for it in the same way; of $n$ symbols only about $2 \sqrt n$ per beam
    race.
    """
    n, size = log_probs.shape[-1], 1
    while 4 * size * size <= n:
        size *= 2
    count = -(-n // size)
    if count * size > n:
        log_probs = F.pad(log_probs, (0, count * size - n), value=-torch.inf)
    closed = _closed(beams, end)
    row, column = divmod(end or 0, count)
    log_mass = log_probs.unflatten(-1, (size, count)).logsumexp(-2)  # sums run along memory
    log_mass = _stay(log_mass, closed, column)
    score = perturb_children(log_mass, beams.log_p, beams.score, generator)
    kept, parents, columns = _keep(beams, log_mass, score, k)
    rows = torch.arange(size, device=log_probs.device)
    index = (parents * (count * size) + columns).unsqueeze(-1) + rows * count
    inside = log_probs.flatten(-2).gather(-1, index.flatten(-2)).view(index.shape)
    mass = log_mass.flatten(-2).gather(-1, parents * count + columns)
    inside = inside - torch.where(mass == -torch.inf, 0.0, mass).unsqueeze(-1)
    inside = _stay(inside, closed.gather(-1, parents), row)
    kept, among, rows = _keep(
        kept, inside, perturb_children(inside, kept.log_p, kept.score, generator), k
    )
    symbols = rows * count + columns.gather(-1, among)
    symbols = torch.where(symbols < n, symbols, 0)  # padding is kept only where nothing is possible
    return kept, parents.gather(-1, among), symbols


def _all_ended(symbols: Tensor, end: int | None) -> bool:
    return end is not None and can_look(symbols) and bool((symbols[..., -1] == end).all())


def _to_sample(model: SequenceModel[State], found: Found, scheme: Scheme) -> Sample:
    check_possible(found.log_p, "sequences")  # before the model is asked about impossible ones
    log_p = log_prob(model, found.value) if torch.is_grad_enabled() else found.log_p
    total = found.log_p.exp().sum(-1) + found.log_rest.exp()
    check_normalized(total, log_p.dtype, steps=model.length)
    return Sample(
        value=found.value,
        log_p=log_p,
        log_rest=found.log_rest.to(log_p.dtype),
        kappa=found.kappa.to(log_p.dtype) if scheme == Scheme.WITHOUT_REPLACEMENT else None,
        scheme=scheme,
    )


def _fill(symbols: Tensor, model: SequenceModel[State]) -> Tensor:
    missing = model.length - symbols.shape[-1]
    return F.pad(symbols, (0, missing), value=model.end or 0)


def ancestral_sample(
    model: SequenceModel[State], k: int, *, generator: torch.Generator | None = None
) -> Sample:
    r"""$k$ independent sequences, each drawn symbol by symbol from $p(x_t \mid x_{<t})$.

    Args:
        model: a :class:`SequenceModel`, or a :class:`swor.Factorized`.
        k: the number of sequences.
        generator: the source of randomness.

    Returns:
        A sample whose ``value`` (*batch, k, length) has the symbols.
    """
    check_k(k)
    value, log_p = _ancestral(model, k, generator)
    if can_look(log_p) and not bool(log_p.isfinite().all()):
        raise ValueError(
            "a sampled sequence has the log-probability NaN or -inf; expected normalised "
            "log-probabilities from every step. Look for a step that masks every symbol."
        )
    if torch.is_grad_enabled():
        log_p = log_prob(model, value)
    return Sample(value=value, log_p=log_p, scheme=Scheme.WITH_REPLACEMENT)


@torch.no_grad()
def _ancestral(
    model: SequenceModel[State], k: int, generator: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    """The sequences, (*batch, k, length), and their log-probabilities."""
    if isinstance(model, OwnDraws):
        value = model.independent(k, generator)
        return value, model.log_prob(value)
    state = model.start()
    parents = symbols = log_p = torch.empty(0)
    history: list[Tensor] = []
    for t in range(model.length):
        log_probs, state = model.step(state)
        if t == 0:
            symbols = independent(log_probs.squeeze(-2), k, generator)
            log_p = log_probs.squeeze(-2).gather(-1, symbols)
            parents = torch.zeros_like(symbols)
        else:
            log_probs = _repeat_end(log_probs, history[-1], model.end)
            symbols = independent(log_probs, 1, generator).squeeze(-1)
            log_p = log_p + log_probs.gather(-1, symbols.unsqueeze(-1)).squeeze(-1)
            parents = torch.arange(k, device=symbols.device).expand_as(symbols)
        history.append(symbols)
        if t + 1 == model.length or _all_ended(symbols.unsqueeze(-1), model.end):
            break
        state = model.select(state, parents, symbols)
    return _fill(torch.stack(history, dim=-1), model), log_p


def log_prob(model: SequenceModel[State], value: Tensor) -> Tensor:
    """Log-probabilities of sequences, with gradient: the model's own, or by stepping again.

    Args:
        model: the model.
        value: (*batch, k, length), filled up with the end symbol.

    Returns:
        (*batch, k)
    """
    if isinstance(model, OwnLogProb):
        return model.log_prob(value)
    state = model.start()
    total = torch.zeros(())
    for t in range(value.shape[-1]):
        log_probs, state = model.step(state)
        log_probs = log_probs.expand(*value.shape[:-1], log_probs.shape[-1])
        if t:
            log_probs = _repeat_end(log_probs, value[..., t - 1], model.end)
        symbols = value[..., t]
        chosen = log_probs.gather(-1, symbols.unsqueeze(-1)).squeeze(-1)
        total = chosen if t == 0 else total + chosen
        lanes = torch.arange(symbols.shape[-1], device=symbols.device).expand_as(symbols)
        state = model.select(state, lanes if t else torch.zeros_like(lanes), symbols)
    return total
