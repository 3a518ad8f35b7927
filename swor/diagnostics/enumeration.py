r"""Exact moments of an estimator: a finite sum over all the samples that it could have drawn.

$$E[e] = \sum_B p(B) \, e(B), \qquad \text{Cov}[e] = \sum_B p(B) \, (e(B) - E[e])(e(B) - E[e])^\top.$$
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations, product
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.distributions import Distribution

from swor.estimators.registry import Cost, Rule
from swor.math.integral import integrand
from swor.math.ratios import log_prob_ordered
from swor.samplers.categorical import log_mass_outside, top_k_and_sample
from swor.samplers.distributions import support
from swor.types import Sample, Scheme


def exact(f: Cost, dist: Distribution) -> Tensor:
    r"""$E[f] = \sum_{x \in D} p(x) f(x)$ by going through the domain; differentiable.

    Args:
        f: the cost, from values (*batch, |D|, *event) to (*batch, |D|).
        dist: a distribution small enough to be enumerated.

    Returns:
        (*batch,)

    >>> exact(lambda x: x, torch.distributions.Bernoulli(probs=torch.tensor(0.3)))
    tensor(0.3000)
    """
    domain = support(dist)
    p = domain.log_p.exp()
    return (p * f(domain.value)).sum(-1)


class ExactMoments(NamedTuple):
    """Moments of an estimate and of its gradient, exact but for rounding."""

    mean: Tensor  # (), of the estimate of E[f]
    variance: Tensor  # ()
    gradient: Tensor  # (parameters,), the mean of the gradient
    covariance: Tensor  # (parameters, parameters), of the gradient


class AllSamples(NamedTuple):
    """Every sample that a scheme could draw, on the first axis, and its probability."""

    sample: Sample  # value (samples, k) has indices into the domain; no gradient
    probability: Tensor  # (samples,)


def exact_moments(
    rule: Rule,
    scheme: Scheme,
    f: Cost,
    dist: Distribution,
    k: int,
    parameters: Sequence[Tensor],
    *,
    baseline: Literal["built-in"] | float = "built-in",
) -> ExactMoments:
    r"""Mean and variance of a rule's estimate, mean and covariance of its gradient.

    Args:
        rule: from a sample to weights.
        scheme: how the rule's samples are drawn.
        f: the cost, from values (|D|, *event) to (|D|,).
        dist: a distribution without batch axes, small enough to be enumerated.
        k: the size of the sample.
        parameters: what to differentiate by; ``dist`` and ``f`` depend on them.
        baseline: as in :meth:`swor.Weights.loss`.

    >>> import swor
    >>> eta = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    >>> dist = torch.distributions.Categorical(logits=eta)
    >>> m = exact_moments(swor.unordered_set, "without_replacement", torch.sqrt, dist, 3, [eta])
    >>> float(m.variance)  # the whole domain was sampled
    0.0
    """
    domain = support(dist)
    cost = f(domain.value)
    drawn, probability = all_samples(domain.log_p.detach(), k, Scheme(scheme))
    log_p = drawn.log_p.clone().requires_grad_()
    costs = cost.detach()[drawn.value].requires_grad_()
    loss = rule(replace(drawn, log_p=log_p)).loss(costs, baseline=baseline)
    by_log_p, by_cost = torch.autograd.grad(loss.sum(), (log_p, costs))
    gradients = _to_domain(by_log_p, drawn.value, len(cost)) @ _jacobian(domain.log_p, parameters)
    gradients = gradients + _to_domain(by_cost, drawn.value, len(cost)) @ _jacobian(
        cost, parameters
    )
    mean, variance = _moments(loss.detach().unsqueeze(-1), probability)
    gradient, covariance = _moments(gradients, probability)
    return ExactMoments(mean.squeeze(), variance.squeeze(), gradient, covariance)


def _moments(x: Tensor, probability: Tensor) -> tuple[Tensor, Tensor]:
    mean = probability @ x
    centred = x - mean
    return mean, (probability.unsqueeze(-1) * centred).mT @ centred


def _to_domain(x: Tensor, index: Tensor, n: int) -> Tensor:
    """Add up what belongs to each outcome, (samples, n)."""
    return torch.zeros(len(x), n, dtype=x.dtype).scatter_add(-1, index, x)


def _jacobian(y: Tensor, parameters: Sequence[Tensor]) -> Tensor:
    """The derivative of each element of y by all parameters, (n, parameters)."""
    if not y.requires_grad:
        return torch.zeros(len(y), sum(p.numel() for p in parameters), dtype=y.dtype)
    rows = [
        torch.autograd.grad(yi, parameters, retain_graph=True, materialize_grads=True) for yi in y
    ]
    return torch.stack([torch.cat([g.flatten() for g in row]) for row in rows])


def all_samples(log_probs: Tensor, k: int, scheme: Scheme) -> AllSamples:
    """Every sample of size k of a categorical, with its probability.

    The threshold kappa is continuous; given the set it is integrated by quadrature, so every
    ordered sample appears once for every node.

    Args:
        log_probs: normalised log-probabilities of all outcomes, (n,).
        k: the size of the sample.
        scheme: with replacement, without, or top-k-and-sample.
    """
    if scheme == Scheme.WITH_REPLACEMENT:
        return _independent_samples(log_probs, k)
    if scheme == Scheme.TOP_K_AND_SAMPLE:
        return _top_k_samples(log_probs, k)
    if scheme == Scheme.WITHOUT_REPLACEMENT:
        return _distinct_samples(log_probs, k)
    raise ValueError(f"the scheme is '{scheme}'; expected a random one.")


def _distinct_samples(log_probs: Tensor, k: int) -> AllSamples:
    n = log_probs.shape[-1]
    index = torch.tensor(list(permutations(range(n), k)))
    log_p = log_probs[index]
    log_rest = log_mass_outside(log_probs.expand(len(index), n), index)
    probability = log_prob_ordered(log_p, log_rest).exp()
    if k == n:
        sample = Sample(index, log_p, log_rest, log_rest)
        return AllSamples(sample, probability)
    kappa, share = kappa_given_set(log_p, log_rest)
    nodes = kappa.shape[-1]
    sample = Sample(
        index.repeat_interleave(nodes, 0),
        log_p.repeat_interleave(nodes, 0),
        log_rest.repeat_interleave(nodes),
        kappa.flatten(),
    )
    return AllSamples(sample, (probability.unsqueeze(-1) * share).flatten())


def kappa_given_set(log_p: Tensor, log_rest: Tensor) -> tuple[Tensor, Tensor]:
    r"""Nodes and shares that integrate over $p(\kappa \mid S)$, each (*batch, nodes).

    The time of the first outcome outside the set has the density of the integrand of
    :mod:`swor.math.integral`.
    """
    f = integrand(log_p, log_rest, left_out=2)
    return log_rest.unsqueeze(-1) - f.x, f.log_f.softmax(-1)


def _independent_samples(log_probs: Tensor, k: int) -> AllSamples:
    index = torch.tensor(list(product(range(log_probs.shape[-1]), repeat=k)))
    log_p = log_probs[index]
    sample = Sample(index, log_p, scheme=Scheme.WITH_REPLACEMENT)
    return AllSamples(sample, log_p.sum(-1).exp())


def _top_k_samples(log_probs: Tensor, k: int) -> AllSamples:
    """The k - 1 likeliest outcomes with each of the others."""
    drawn = top_k_and_sample(log_probs, k)
    summed = drawn.value[: k - 1]
    others = [i for i in range(len(log_probs)) if i not in summed.tolist()]
    index = torch.cat([summed.expand(len(others), -1), torch.tensor(others)[:, None]], dim=-1)
    log_p = log_probs[index]
    log_share = log_p[:, -1] - log_p[:, -1].logsumexp(0)
    log_q = torch.cat([torch.zeros_like(log_p[:, :-1]), log_share[:, None]], dim=-1)
    sample = Sample(index, log_p, scheme=Scheme.TOP_K_AND_SAMPLE, log_q=log_q)
    return AllSamples(sample, log_share.exp())
