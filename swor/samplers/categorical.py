"""Samplers of a categorical variable whose log-probabilities are all at hand."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from swor.checks import (
    check_count,
    check_k,
    check_log_probs,
    check_normalized,
    check_possible,
    check_shape,
    may_inspect,
    may_validate,
)
from swor.math.logspace import log_remaining, working_dtype
from swor.samplers.tree_race import log_mass_outside, top_k_outcomes
from swor.types import Sample, Scheme


def gumbel_top_k(log_probs: Tensor, k: int, *, generator: torch.Generator | None = None) -> Sample:
    r"""The $k$ largest of $\log p_i + \text{Gumbel}_i$: an ordered sample without replacement.

    Of many outcomes it draws about $2\sqrt{nk}$ Gumbels instead of $n$, which is equal in law: blocks
    of outcomes race by their mass, and only those of the best $k$ blocks race among themselves.

    The log-probabilities are read once and not copied: beyond them, a large domain takes a fraction of
    their memory, and only the k selected entries carry gradient. Going back to logits takes two more
    tensors of their size: the gradient of ``log_softmax``'s result and that of its input.

    Args:
        log_probs: normalised log-probabilities, (*batch, n); −inf masks an outcome.
        k: the number of distinct outcomes.
        generator: the source of randomness.

    Returns:
        A sample whose ``value`` (*batch, k) has indices into the last axis.

    >>> log_probs = torch.tensor([0.7, 0.2, 0.1]).log()
    >>> s = gumbel_top_k(log_probs, 3, generator=torch.Generator().manual_seed(0))
    >>> sorted(s.value.tolist()), s.log_rest
    ([0, 1, 2], tensor(-inf))
    """
    check_log_probs("log_probs", log_probs)
    check_k(k, log_probs.shape[-1])
    with torch.no_grad():
        full = log_probs.to(working_dtype(log_probs.dtype))
        found = top_k_outcomes(full, k, generator)
        check_normalized(found.log_p.exp().sum(-1) + found.log_rest.exp(), log_probs.dtype)
        check_possible(found.log_p)
    log_p = log_probs.gather(-1, found.indices)
    if not may_inspect(
        log_p
    ):  # then k may be larger than the support: what is left over has no mass
        log_p = log_p.masked_fill(found.log_p == -torch.inf, -torch.inf)
    return Sample(
        value=found.indices,
        log_p=log_p,
        log_rest=found.log_rest.to(log_probs.dtype),
        kappa=found.kappa.to(log_probs.dtype),
        scheme=Scheme.WITHOUT_REPLACEMENT,
    )


def with_replacement(
    log_probs: Tensor, k: int, *, generator: torch.Generator | None = None
) -> Sample:
    r"""$x_1, \dots, x_k \sim p$, independent.

    Args:
        log_probs: normalised log-probabilities, (*batch, n); −inf masks an outcome.
        k: the number of samples.
        generator: the source of randomness.

    Returns:
        A sample whose ``value`` (*batch, k) has indices into the last axis.

    >>> with_replacement(torch.tensor([0.0, -torch.inf]), 3).value
    tensor([0, 0, 0])
    """
    check_log_probs("log_probs", log_probs)
    check_k(k)
    value = independent(log_probs, k, generator)
    log_p = log_probs.gather(-1, value)
    return Sample(value=value, log_p=log_p, scheme=Scheme.WITH_REPLACEMENT)


@torch.no_grad()
def independent(log_probs: Tensor, k: int, generator: torch.Generator | None) -> Tensor:
    """Indices that may repeat, (*batch, k)."""
    p = log_probs.to(working_dtype(log_probs.dtype)).exp()
    check_normalized(p.sum(-1), log_probs.dtype)
    rows = p.reshape(-1, p.shape[-1])
    if rows.shape[0] == 0:
        return torch.empty((*p.shape[:-1], k), dtype=torch.long, device=p.device)
    drawn = torch.multinomial(rows, k, replacement=True, generator=generator)
    return drawn.reshape(*p.shape[:-1], k)


def top_k_and_sample(
    log_probs: Tensor,
    k: int,
    *,
    m: int | Literal["auto"] = 1,
    summed: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Sample:
    r"""The $k - m$ likeliest outcomes, and $m$ samples of $p^{D \setminus C}$ from the others.

    The sample of the deterministic sum-and-sample estimator (Liu et al. 2019). Ties are broken by
    index. Drawn with replacement where m > 1.

    Args:
        log_probs: normalised log-probabilities, (*batch, n); −inf masks an outcome.
        k: the number of evaluations in all.
        m: how many of them are sampled; "auto" chooses, for every element of the batch, the $|C|$
            that minimises $(1 - \sum_{c \in C} p_c) / (k - |C|)$.
        summed: sum these distinct outcomes, (*batch, k - m), in place of the likeliest, such as a
            memory of good ones (Liang et al. 2018).
        generator: the source of randomness.

    Returns:
        A sample whose ``value`` (*batch, k) has indices into the last axis, first the summed ones.

    >>> s = top_k_and_sample(torch.tensor([0.1, 0.6, 0.3]).log(), 2)
    >>> s.value[0]
    tensor(1)
    """
    check_log_probs("log_probs", log_probs)
    check_k(k, log_probs.shape[-1])
    full = log_probs.detach().to(working_dtype(log_probs.dtype))
    chosen = _summed(full, k, m, summed)
    log_outside = log_remaining(full.gather(-1, chosen), log_mass_outside(full, chosen))
    check_normalized(log_outside[..., 0].exp(), log_probs.dtype)
    if m == "auto":
        shares = log_outside - torch.log(k - torch.arange(k, dtype=full.dtype, device=full.device))
        count = shares.argmin(-1, keepdim=True)
    else:
        count = torch.full_like(log_outside[..., :1], k - m, dtype=torch.long)
    summed_first = torch.arange(k, device=full.device) < count
    log_mass = log_outside.gather(-1, count)
    check_possible(log_mass)
    value = _sum_then_sample(full, chosen, summed_first, log_mass, generator)
    log_q = torch.log((k - count).to(full.dtype)) + full.gather(-1, value) - log_mass
    log_q = torch.where(summed_first, 0.0, log_q)
    return Sample(
        value=value,
        log_p=log_probs.gather(-1, value),
        log_rest=log_mass_outside(full, value).to(log_probs.dtype),
        scheme=Scheme.TOP_K_AND_SAMPLE,
        log_q=log_q.to(log_probs.dtype),
    )


def _summed(log_probs: Tensor, k: int, m: int | str, given: Tensor | None) -> Tensor:
    """The outcomes that are summed, (*batch, k - m); all that could be, if m is "auto"."""
    if isinstance(m, str):
        if m != "auto" or given is not None:
            raise ValueError(
                f"m is {m!r}; expected 'auto' without summed, or a number of sampled outcomes."
            )
        m = 1
    check_count("m", m, most=k)
    if given is None:
        return likeliest(log_probs, k - m)
    check_shape("summed", given, (*log_probs.shape[:-1], k - m), "the k - m outcomes to sum")
    if may_validate(given) and bool((given.sort(-1).values.diff(dim=-1) == 0).any()):
        raise ValueError("summed names an outcome twice; expected distinct outcomes.")
    return given


def likeliest(log_probs: Tensor, count: int) -> Tensor:
    """The outcomes of the largest probability, (*batch, count); ties are broken by index."""
    return torch.sort(log_probs, dim=-1, descending=True, stable=True).indices[..., :count]


def _sum_then_sample(
    log_probs: Tensor,
    chosen: Tensor,
    summed_first: Tensor,
    log_mass: Tensor,
    generator: torch.Generator | None,
) -> Tensor:
    """Keep the chosen outcomes where they are summed; draw the others from what these leave."""
    k, most = summed_first.shape[-1], chosen.shape[-1]
    kept = torch.where(summed_first[..., :most], -torch.inf, log_probs.gather(-1, chosen))
    drawn = independent(log_probs.scatter(-1, chosen, kept) - log_mass, k, generator)
    return torch.where(summed_first, F.pad(chosen, (0, k - most)), drawn)
