"""Samplers of sequences that a model extends symbol by symbol."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from swor._checks import (
    DEAD_END,
    DRAW_WHOLE,
    check_k,
    check_normalized,
    check_possible,
    may_validate,
)
from swor.samplers._beams import search_beams
from swor.samplers._distinct import independent, to_sample
from swor.samplers._tables import DistinctValues
from swor.samplers.sequence_model import (
    SequenceModel,
    State,
    all_ended,
    check_model,
    draws_whole_sequences,
    fill,
    log_prob,
    log_prob_of,
    log_prob_of_symbols,
    next_symbols,
    repeat_end,
)
from swor.types import Sample, Scheme


def stochastic_beam_search(
    model: SequenceModel[State],
    k: int,
    *,
    allow_fewer: bool = False,
    generator: torch.Generator | None = None,
) -> Sample:
    r"""Draw k distinct sequences by a beam search over perturbed log-probabilities.

    $$b_1, \dots, b_k = \text{arg top-}k_x \; (\log p(x) + \text{Gumbel}_x)$$

    The result is an ordered sample without replacement. The score of a prefix is the largest perturbed
    log-probability of its completions, so the search never prunes a prefix of a sequence in the sample. The
    pruned mass adds up to ``log_rest``, and the best pruned score is ``kappa``. Use it for any sequence
    model; it keeps k beams, as a beam search does.

    Args:
        model: a :class:`SequenceModel`, or a :class:`swor.Factorized`.
        k: the number of distinct sequences.
        allow_fewer: whether an element of the batch may have fewer than k sequences of positive
            probability. Such an element is drawn whole. The places that are left over come last and have
            symbols of 0, the log-probability −inf and, by every rule, the weight 0.
        generator: the source of randomness.

    Returns:
        A sample whose ``value`` (*batch, k, length) contains the symbols.

    >>> from swor import Factorized
    >>> coins = Factorized(torch.full((3, 2), 0.5).log())
    >>> stochastic_beam_search(coins, 8).value.sum(0)  # all eight sequences
    tensor([4, 4, 4])

    References:
        | Stochastic Beams and Where to Find Them: The Gumbel-Top-k Trick for Sampling Sequences
        | Without Replacement (Kool et al., 2019c)
        | https://arxiv.org/abs/1903.06059
    """
    with torch.no_grad():
        if draws_whole_sequences(model):  # and checks them itself
            found = model.distinct(k, generator, allow_fewer=allow_fewer)
            dtype, checked = model.log_probs.dtype, True
        else:
            found, dtype = search_beams(model, k, generator=generator, allow_fewer=allow_fewer)
            checked = False
    return _to_sample(model, found, dtype, allow_fewer=allow_fewer, checked=checked)


def beam_search(model: SequenceModel[State], k: int, *, allow_fewer: bool = False) -> Sample:
    """Find k probable sequences by a deterministic beam search.

    The k most probable prefixes are kept at every step. The result is not random, so no estimator is unbiased
    for it; use it with :func:`swor.risk`, or to decode.

    Args:
        model: a :class:`SequenceModel`, or a :class:`swor.Factorized`.
        k: the number of distinct sequences; 1 is greedy decoding.
        allow_fewer: whether an element of the batch may have fewer than k sequences, as in
            :func:`stochastic_beam_search`.

    Returns:
        A sample whose ``value`` (*batch, k, length) contains the symbols, the most probable sequence first.

    >>> from swor import Factorized
    >>> beam_search(Factorized(torch.tensor([[0.9, 0.1], [0.4, 0.6]]).log()), 2).value
    tensor([[0, 1],
            [0, 0]])
    """
    with torch.no_grad():
        found, dtype = search_beams(model, k, stochastic=False, allow_fewer=allow_fewer)
    sample = _to_sample(model, found, dtype, allow_fewer=allow_fewer)
    return replace(sample, kappa=None, scheme=Scheme.BEAM_SEARCH)


def ancestral_sample(
    model: SequenceModel[State], k: int, *, generator: torch.Generator | None = None
) -> Sample:
    r"""Draw k independent sequences from a sequence model.

    $$x_t \sim p(x_t \mid x_{<t})$$

    Use it for :func:`swor.rloo`.

    Args:
        model: a :class:`SequenceModel`, or a :class:`swor.Factorized`.
        k: the number of sequences.
        generator: the source of randomness.

    Returns:
        A sample whose ``value`` (*batch, k, length) contains the symbols.

    >>> from swor import Factorized
    >>> ancestral_sample(Factorized(torch.full((3, 2), 0.5).log()), 4).value.shape
    torch.Size([4, 3])
    """
    check_k(k)
    value, log_p = _ancestral(model, k, generator)
    if may_validate(log_p) and not bool(log_p.isfinite().all()):
        raise ValueError(
            "a sampled sequence has the log-probability NaN or -inf; expected normalised "
            "log-probabilities from every step. Check whether a step masks every symbol."
        )
    if torch.is_grad_enabled():
        log_p = log_prob(model, value)
    return Sample(value=value, log_p=log_p, scheme=Scheme.WITH_REPLACEMENT)


def _to_sample(
    model: SequenceModel[State],
    found: DistinctValues,
    dtype: torch.dtype,
    *,
    allow_fewer: bool,
    checked: bool = False,
) -> Sample:
    """Check sequences of a model with log-probabilities of a dtype, and return them as a sample.

    It has a gradient if gradients are enabled.
    """
    if not checked:  # before the model scores impossible ones
        check_normalized(found.total(), dtype, steps=model.length, cure=DEAD_END)
        if not allow_fewer:
            check_possible(found.log_p, "sequences", DRAW_WHOLE)
    log_p = log_prob_of(model, found, allow_fewer=allow_fewer)
    log_p = log_p if torch.is_grad_enabled() else log_p.to(dtype)
    return to_sample(found.padded(found.log_p.shape[-1]) if allow_fewer else found, log_p)


@torch.no_grad()
def _ancestral(
    model: SequenceModel[State], k: int, generator: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    """Return the sequences, (*batch, k, length), and their log-probabilities, (*batch, k)."""
    if draws_whole_sequences(model):
        value = model.independent(k, generator)
        return value, model.log_prob(value)
    check_model(model)
    log_probs, state = next_symbols(model, model.start(), 1)
    symbols = independent(log_probs.squeeze(-2), k, generator)
    log_p = log_prob_of_symbols(symbols, log_probs)
    parents, history = torch.zeros_like(symbols), [symbols]
    while len(history) < model.length and not all_ended(symbols.unsqueeze(-1), model.end):
        state = model.select(state, parents, symbols)
        log_probs, state = next_symbols(model, state, k)
        log_probs = log_probs.expand(*symbols.shape, log_probs.shape[-1])
        log_probs = repeat_end(log_probs, symbols, model.end)
        symbols = independent(log_probs, 1, generator).squeeze(-1)
        log_p = log_p + log_prob_of_symbols(symbols, log_probs)
        parents = torch.arange(k, device=symbols.device).expand_as(symbols)
        history.append(symbols)
    return fill(torch.stack(history, dim=-1), model), log_p.to(log_probs.dtype)
