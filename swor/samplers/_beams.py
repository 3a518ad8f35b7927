"""The loop of a beam search, which all searches and all models share."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from swor._checks import DRAW_WHOLE, check_k
from swor.math._logspace import working_dtype
from swor.samplers._race import Ended, Parents, gumbel_like, top_k_children, top_k_of
from swor.samplers._tables import DistinctValues, force_symbol
from swor.samplers.sequence_model import (
    SequenceModel,
    State,
    all_ended,
    check_model,
    extend,
    fill,
    next_symbols,
)


class Beams(NamedTuple):
    """The sequences that are still in the search."""

    symbols: Tensor  # (*batch, beams, steps so far)
    log_p: Tensor  # (*batch, beams)
    score: Tensor  # (*batch, beams), the rank of a beam: perturbed, or log_p itself
    log_rest: Tensor  # (*batch,), log of the pruned mass
    kappa: Tensor  # (*batch,), the best pruned score


def search_beams(
    model: SequenceModel[State],
    k: int,
    *,
    generator: torch.Generator | None = None,
    stochastic: bool = True,
    allow_fewer: bool = False,
) -> tuple[DistinctValues, torch.dtype]:
    """Keep the k best prefixes at every step, by perturbed log-probability or by log-probability.

    Returns the sequences in the order of their scores, the log of the pruned mass, and the best pruned score;
    and the dtype of the model's log-probabilities, which are converted if it is half precision. With
    ``allow_fewer``, places that are left over have the log-probability −inf, and their symbols mean nothing.
    """
    check_k(k)
    check_model(model)
    log_probs, state = next_symbols(model, model.start(), 1)
    beams = _root(log_probs, generator, stochastic=stochastic)
    while True:
        beams, parents = _extend(beams, log_probs, k, model.end, generator, stochastic=stochastic)
        if beams.symbols.shape[-1] == model.length or all_ended(beams.symbols, model.end):
            break  # the last selection is not needed, and may be a large copy
        state = model.select(state, parents, beams.symbols[..., -1])
        log_probs, state = next_symbols(model, state, beams.log_p.shape[-1])
    found = DistinctValues(fill(beams.symbols, model), beams.log_p, beams.log_rest, beams.kappa)
    if k > beams.log_p.shape[-1]:
        if not allow_fewer:
            possible = (beams.log_p > -torch.inf).sum(-1).flatten().tolist()
            check_k(k, min(possible, default=beams.log_p.shape[-1]), DRAW_WHOLE)
        found = found.padded(k)
    return found, log_probs.dtype


def _root(log_probs: Tensor, generator: torch.Generator | None, *, stochastic: bool) -> Beams:
    log_p = torch.zeros_like(log_probs[..., 0], dtype=working_dtype(log_probs.dtype))
    score = gumbel_like(log_p, generator) if stochastic else log_p
    nothing = torch.full_like(log_p[..., 0], -torch.inf)
    symbols = torch.empty((*log_p.shape, 0), dtype=torch.long, device=log_p.device)
    return Beams(symbols, log_p, score, nothing, nothing)


def _extend(
    beams: Beams,
    log_probs: Tensor,
    k: int,
    end: int | None,
    generator: torch.Generator | None,
    *,
    stochastic: bool,
) -> tuple[Beams, Tensor]:
    """Return the best k children of all beams, and the indices of their parents."""
    log_probs = log_probs.to(working_dtype(log_probs.dtype))
    ended, n = Ended(_ended(beams, end), end or 0), log_probs.shape[-1]
    if stochastic:
        kept = top_k_children(log_probs, Parents(beams.log_p, beams.score), k, generator, ended)
    else:
        log_p = beams.log_p.unsqueeze(-1) + force_symbol(log_probs, *ended)
        kept = top_k_of(log_p, log_p, k)
    parents, symbols = kept.indices // n, kept.indices % n
    extended = Beams(
        extend(beams.symbols, parents, symbols),
        kept.log_p,
        kept.g,
        torch.logaddexp(beams.log_rest, kept.log_rest),
        torch.maximum(beams.kappa, kept.kappa),
    )
    return extended, parents


def _ended(beams: Beams, end: int | None) -> Tensor:
    """Return which beams have ended or are impossible; their only child is themselves."""
    ended = beams.score == -torch.inf
    if end is not None and beams.symbols.shape[-1]:
        ended = ended | (beams.symbols[..., -1] == end)
    return ended
