"""The beam loop: one for all searches, stochastic or not, and for all models."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from swor.errors import check_k
from swor.math.logspace import working_dtype
from swor.samplers.categorical import SMALL, log_mass_outside
from swor.samplers.model import Found, SequenceModel, State, all_ended, fill, stay
from swor.samplers.race import gumbel_like, perturb_children


class _Beams(NamedTuple):
    """The sequences that are still in the search."""

    symbols: Tensor  # (*batch, beams, steps so far)
    log_p: Tensor  # (*batch, beams)
    score: Tensor  # (*batch, beams), by which beams are kept: perturbed, or log_p itself
    log_rest: Tensor  # (*batch,), mass of what was pruned
    kappa: Tensor  # (*batch,), the best score of what was pruned


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
        if t + 1 == model.length or all_ended(beams.symbols, model.end):
            break  # without a last selection, which may be a large copy
        state = model.select(state, parents, beams.symbols[..., -1])
    if beams is None:
        raise ValueError(f"the model has length {model.length}; expected at least one symbol.")
    if k > beams.log_p.shape[-1]:
        possible = (beams.log_p > -torch.inf).sum(-1).flatten().tolist()
        check_k(k, support=min(possible, default=beams.log_p.shape[-1]))
    return Found(fill(beams.symbols, model), beams.log_p, beams.log_rest, beams.kappa)


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
        log_probs = stay(log_probs, _closed(beams, end), end or 0)
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
    log_mass = stay(log_mass, closed, column)
    score = perturb_children(log_mass, beams.log_p, beams.score, generator)
    kept, parents, columns = _keep(beams, log_mass, score, k)
    rows = torch.arange(size, device=log_probs.device)
    index = (parents * (count * size) + columns).unsqueeze(-1) + rows * count
    inside = log_probs.flatten(-2).gather(-1, index.flatten(-2)).view(index.shape)
    mass = log_mass.flatten(-2).gather(-1, parents * count + columns)
    inside = inside - torch.where(mass == -torch.inf, 0.0, mass).unsqueeze(-1)
    inside = stay(inside, closed.gather(-1, parents), row)
    kept, among, rows = _keep(
        kept, inside, perturb_children(inside, kept.log_p, kept.score, generator), k
    )
    symbols = rows * count + columns.gather(-1, among)
    symbols = torch.where(symbols < n, symbols, 0)  # padding is kept only where nothing is possible
    return kept, parents.gather(-1, among), symbols
