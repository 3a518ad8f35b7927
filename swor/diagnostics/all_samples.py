r"""All samples that a scheme can draw from a small domain, with their probabilities.

For samples without replacement, the threshold $\kappa = -\log t$ is continuous. Given the set, $t$ is the
arrival time of the first outcome outside of it, with a density
$\propto \text{rest} \, e^{-\text{rest} \, t} \prod_{i \in S} (1 - e^{-p_i t})$. In $x = \log t$, the density
and the weights of a rule are analytic in the strip $|\text{Im} \, x| < \pi / 2$, so the trapezoid rule has an
error of $e^{-\pi^2 / h}$. The grid extends to the left as far as moments that exist can have
contributions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial
from itertools import combinations, combinations_with_replacement, permutations, product
from typing import NamedTuple

import torch
from torch import Tensor

from swor._checks import check_k
from swor.math._integral import log_excess
from swor.math.ratios import log_prob_ordered, log_prob_set
from swor.samplers._inversion import invert
from swor.samplers._tables import log_mass_outside
from swor.samplers.categorical import likeliest
from swor.types import Sample, Scheme

STEP = 0.25
LEFT = -45.0  # e^LEFT = 3e-20; on the left, moments that exist decay at least like e^x
RIGHT = 45.0  # at t = RIGHT / rest, e^{-rest t} is 3e-20 as well


class AllSamples(NamedTuple):
    """All samples that a scheme can draw, on the first axis, with their probabilities."""

    sample: Sample  # value (samples, k) contains indices into the domain; no gradient
    probability: Tensor  # (samples,)
    # (nodes,), log t of the thresholds, if each sample is repeated for all of them
    x: Tensor | None = None


def all_samples(
    log_probs: Tensor, k: int, scheme: Scheme, *, ordered: bool = True, kappa: bool = True
) -> AllSamples:
    """Enumerate all samples of size k of a categorical variable, with their probabilities.

    Args:
        log_probs: normalised log-probabilities of all outcomes, (n,).
        k: the size of the sample.
        scheme: how samples are drawn; any scheme except a beam search.
        ordered: whether to list every order of a sample. Set it to False for rules that do not depend on
            the order, to list every set, or multiset, only once.
        kappa: whether to list, for every sample without replacement, all nodes of a quadrature over its
            threshold. Set it to False for rules that do not depend on the threshold.

    Returns:
        The samples, whose ``value`` (samples, k) contains indices, and their probabilities, (samples,).

    >>> drawn = all_samples(torch.tensor([0.5, 0.3, 0.2]).log(), 2, Scheme.WITH_REPLACEMENT)
    >>> drawn.sample.value.shape, drawn.probability.sum()
    (torch.Size([9, 2]), tensor(1.0000))
    """
    if scheme == Scheme.WITH_REPLACEMENT:
        return _independent(log_probs, k, ordered)
    if scheme == Scheme.WITHOUT_REPLACEMENT:
        return _distinct(log_probs, k, ordered, kappa)
    if scheme in ENUMERATIONS:
        return ENUMERATIONS[scheme](log_probs, k)
    known = [Scheme.WITH_REPLACEMENT, Scheme.WITHOUT_REPLACEMENT, *ENUMERATIONS]
    raise ValueError(
        f"the scheme is '{scheme}'; expected one of {', '.join(map(repr, map(str, known)))}. A beam "
        "search is not random, so there is nothing to enumerate."
    )


def _possible(log_probs: Tensor) -> list[int]:
    return [i for i, log_p in enumerate(log_probs.tolist()) if log_p > -math.inf]


def _table(rows: Iterable[tuple[int, ...]], k: int) -> Tensor:
    return torch.tensor(list(rows), dtype=torch.long).reshape(-1, k)


def _independent(log_probs: Tensor, k: int, ordered: bool) -> AllSamples:
    domain = _possible(log_probs)
    rows = product(domain, repeat=k) if ordered else combinations_with_replacement(domain, k)
    index = _table(rows, k)
    log_p = log_probs[index]
    log_probability = log_p.sum(-1)
    if not ordered:  # the multinomial coefficient
        copies = torch.nn.functional.one_hot(index, len(log_probs)).sum(-2).double()
        orders = math.lgamma(k + 1) - torch.lgamma(copies + 1).sum(-1)
        log_probability = log_probability + orders.exp().round().to(log_p.dtype).log()
    sample = Sample(index, log_p, scheme=Scheme.WITH_REPLACEMENT)
    return AllSamples(sample, log_probability.exp())


def _distinct(log_probs: Tensor, k: int, ordered: bool, kappa: bool) -> AllSamples:
    distinct = partial(Sample, scheme=Scheme.WITHOUT_REPLACEMENT)
    domain = _possible(log_probs)
    check_k(k, len(domain))
    index = _table(permutations(domain, k) if ordered else combinations(domain, k), k)
    log_p = log_probs[index]
    log_rest = log_mass_outside(log_probs.expand(len(index), -1), index)
    probability = (log_prob_ordered if ordered else log_prob_set)(log_p, log_rest).exp()
    if k == len(domain):  # no mass is left outside, so the threshold is −inf
        return AllSamples(distinct(index, log_p, log_rest, log_rest), probability)
    if not kappa:
        return AllSamples(distinct(index, log_p, log_rest), probability)
    x, share = threshold_nodes(log_p, log_rest)
    sample = distinct(
        index.repeat_interleave(len(x), 0),
        log_p.repeat_interleave(len(x), 0),
        log_rest.repeat_interleave(len(x)),
        -x.repeat(len(index)),
    )
    return AllSamples(sample, (probability.unsqueeze(-1) * share).flatten(), x)


def threshold_nodes(log_p: Tensor, log_rest: Tensor) -> tuple[Tensor, Tensor]:
    r"""Return nodes of a quadrature over the threshold's time t given the set, $p(t \mid S)$.

    Args:
        log_p: the log-probabilities of the elements of each set, (samples, k).
        log_rest: the log of the mass outside, (samples,), finite.

    Returns:
        The nodes $x = \log t$, (nodes,), and their weights, (samples, nodes), which sum to 1.
    """
    right = math.log(RIGHT) - float(log_rest.min())
    x = torch.arange(LEFT, right + STEP, STEP, dtype=log_p.dtype)
    y = log_p.unsqueeze(-1) + x
    log_u = y.clamp(max=0.0) + log_excess(y)
    race = log_rest.unsqueeze(-1) + x
    return x, (race - race.exp() + log_u.sum(-2)).softmax(-1)


def _top_k(log_probs: Tensor, k: int) -> AllSamples:
    """Combine the k - 1 most probable outcomes, ties broken by index, with each of the others."""
    summed = likeliest(log_probs, k - 1)
    others = [i for i in _possible(log_probs) if i not in summed.tolist()]
    index = torch.cat([summed.expand(len(others), -1), torch.tensor(others)[:, None]], dim=-1)
    log_p = log_probs[index]
    log_share = log_p[:, -1] - log_p[:, -1].logsumexp(0)
    log_q = torch.cat([torch.zeros_like(log_p[:, :-1]), log_share[:, None]], dim=-1)
    sample = Sample(index, log_p, scheme=Scheme.TOP_K_AND_SAMPLE, log_q=log_q)
    return AllSamples(sample, log_share.exp())


def _stratified(log_probs: Tensor, k: int) -> AllSamples:
    """List one outcome from each of k equal parts of the probability, in all combinations."""
    p = log_probs.exp()
    upper = p.cumsum(0)
    strata = torch.arange(k, dtype=p.dtype).unsqueeze(-1) / k
    overlap = torch.minimum(upper, strata + 1 / k) - torch.maximum(upper - p, strata)
    chances = k * overlap.clamp(min=0.0)  # (k, n), 0 where an outcome and a stratum do not overlap
    index = torch.tensor(list(product(range(len(p)), repeat=k)))
    sample = Sample(index, log_probs[index], scheme=Scheme.STRATIFIED)
    return AllSamples(sample, chances[torch.arange(k), index].prod(-1))


def _systematic(log_probs: Tensor, k: int) -> AllSamples:
    """List the intervals of u on which the sample is constant; they end where one of its outcomes changes."""
    p = log_probs.exp()
    ends = torch.tensor([0.0, 1.0], dtype=p.dtype)
    steps = torch.cat([ends, (k * p.cumsum(0)).remainder(1.0)]).sort().values
    middle = 0.5 * (steps[1:] + steps[:-1]).unsqueeze(-1)
    position = (torch.arange(k, dtype=p.dtype) + middle) / k
    index = invert(p.expand(len(middle), -1).contiguous(), position)
    return AllSamples(Sample(index, log_probs[index], scheme=Scheme.SYSTEMATIC), steps.diff())


ENUMERATIONS: dict[Scheme, Callable[[Tensor, int], AllSamples]] = {
    Scheme.TOP_K_AND_SAMPLE: _top_k,
    Scheme.STRATIFIED: _stratified,
    Scheme.SYSTEMATIC: _systematic,
}
"""The enumerations of all schemes except with and without replacement, which have options."""
