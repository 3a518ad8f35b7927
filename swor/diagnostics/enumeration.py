r"""Exact expectations and exact moments of estimators, as finite sums.

$$E[e] = \sum_B p(B) \, e(B), \qquad \text{Cov}[e] = \sum_B p(B) \, (e(B) - E[e])(e(B) - E[e])^\top,$$

where $B$ runs over all samples that an estimator can draw.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributions import Distribution

from swor._checks import check_count, check_finite, check_shape, check_tensor
from swor.diagnostics.all_samples import STEP, AllSamples, all_samples
from swor.estimators.baselines import BUILT_IN, Baseline, Subtracted, greedy
from swor.math._best_of.weights import ascending
from swor.math._logspace import wide_dtype
from swor.samplers.distributions import support
from swor.types import Cost, Rule, Sample, Scheme, Weights, without_impossible


def exact(f: Cost, dist: Distribution) -> Tensor:
    r"""The exact expectation, by a sum over all outcomes.

    $$E[f] = \sum_{x \in D} p(x) f(x)$$

    The result is differentiable. Use it for domains that are small enough to list, and to check estimators.

    Args:
        f: the cost, from values (*batch, |D|, *event) to (*batch, |D|).
        dist: Categorical, OneHotCategorical, Bernoulli, or Independent of these, small enough to be
            enumerated.

    Returns:
        (*batch,)

    >>> exact(lambda x: x, torch.distributions.Bernoulli(probs=torch.tensor(0.3)))
    tensor(0.3000)
    """
    domain = support(dist)
    values = _values(f, domain)
    mean = (_probabilities(domain) * values).sum(-1)
    return mean.to(torch.promote_types(values.dtype, domain.log_p.dtype))


def _probabilities(domain: Sample) -> Tensor:
    """Return the probabilities of all outcomes in double precision, in which they sum to 1."""
    return domain.log_p.to(wide_dtype(domain.log_p.device)).softmax(-1)


def _values(f: Cost, domain: Sample) -> Tensor:
    """Return a finite number for every outcome, with 0 for outcomes of probability 0."""
    values = f(domain.value)
    check_tensor("f(x)", values, domain.log_p.dtype)
    check_shape("f(x)", values, tuple(domain.log_p.shape), "one number for every outcome")
    values = without_impossible(values, domain.log_p)
    check_finite("f(x)", values)
    return values


class ExactMoments(NamedTuple):
    """The moments of an estimate and of its gradient, exact up to rounding; inf if they are infinite."""

    mean: Tensor  # (), of the estimate of E[f]
    variance: Tensor  # ()
    gradient: Tensor  # (parameters,), the mean of the gradient
    # (parameters, parameters), of the gradient; NaN next to an infinite variance
    covariance: Tensor
    bias: Tensor  # (), of the estimate
    gradient_bias: Tensor  # (parameters,)

    @property
    def total_variance(self) -> Tensor:
        """The trace of the covariance of the gradient, ()."""
        return self.covariance.diagonal().sum()


def exact_moments(
    rule: Rule,
    scheme: Scheme | str,
    f: Cost,
    dist: Distribution,
    k: int,
    parameters: Sequence[Tensor],
    *,
    baseline: Baseline | float = BUILT_IN,
    ordered: bool = True,
    kappa: bool = True,
) -> ExactMoments:
    r"""Compute the exact moments of the estimate and of the gradient of a rule.

    The moments are sums over all samples that the scheme can draw. Sampled baselines are
    averaged analytically: with an additional sample for every term, $b_s = f(y_s)$ and $y_s \sim p$, the
    gradient has the mean over $y$ that it has with $b_s = E[f]$, and its covariance increases by
    $\text{Var}[f] \, E[\sum_s w_s^2 \, \nabla \log p_s \nabla \log p_s^\top]$. A sample that all terms share
    increases it by $\text{Var}[f] \, E[g g^\top]$ with $g = \sum_s w_s \nabla \log p_s$.

    Use it to prove that a rule is unbiased, or to compare variances without sampling error.

    Args:
        rule: from a sample to weights.
        scheme: how the samples of the rule are drawn.
        f: the cost, from values (|D|, *event) to (|D|,).
        dist: a distribution without batch axes, small enough to be enumerated.
        k: the size of the sample.
        parameters: the tensors to differentiate with respect to; ``dist`` and ``f`` may depend on them.
        baseline: a number, or a :class:`swor.Baseline`. There is no batch, so the mean of a batch is the
            same as no baseline.
        ordered: set it to False for a rule that does not depend on the order, to enumerate far fewer
            samples.
        kappa: set it to False for a rule that does not depend on the threshold, likewise.

    Returns:
        Means, variances and biases of the estimate and of its gradient.

    >>> import swor
    >>> eta = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    >>> dist = torch.distributions.Categorical(logits=eta)
    >>> m = exact_moments(swor.unordered_set, "without_replacement", torch.sqrt, dist, 3, [eta])
    >>> float(m.variance)  # the sample is the whole domain
    0.0
    """
    if dist.batch_shape:
        raise ValueError(
            f"dist has the batch axes {tuple(dist.batch_shape)}; expected none. Compute the "
            "moments of one element at a time."
        )
    domain = support(dist)
    cost = _values(f, domain).to(domain.log_p.dtype)
    p, values = domain.log_p.detach().exp(), cost.detach()
    mean_cost = (p * values).sum()
    drawn = all_samples(domain.log_p.detach(), k, Scheme(scheme), ordered=ordered, kappa=kappa)
    if isinstance(baseline, Baseline):
        subtracted = baseline.mean(k, mean_cost, lambda: greedy(f, dist).to(mean_cost))
        extra = baseline.samples(k)
    else:
        subtracted, extra = baseline, 0
    by_log_p, by_cost, loss, weights = _differentiate(rule, drawn, values, subtracted)
    score, pathwise = _jacobian(domain.log_p, parameters), _jacobian(cost, parameters)
    gradients = by_log_p @ score + by_cost @ pathwise
    mean, variance = _moments(loss.unsqueeze(-1), drawn)
    gradient, covariance = _moments(gradients, drawn)
    if extra:
        spread = (p * (values - mean_cost).square()).sum()
        covariance = covariance + spread * _noise(weights, drawn, score, shared=extra == 1)
    true_gradient = (p * values) @ score + p @ pathwise
    return ExactMoments(
        mean.squeeze(),
        variance.squeeze(),
        gradient,
        covariance,
        mean.squeeze() - mean_cost,
        gradient - true_gradient,
    )


def _differentiate(
    rule: Rule, drawn: AllSamples, cost: Tensor, baseline: Subtracted
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the derivatives of the loss by log p and by cost of every outcome, the loss, and the weights."""
    index = drawn.sample.value
    log_p = drawn.sample.log_p.clone().requires_grad_()
    costs = cost[index].requires_grad_()
    weights: Weights = rule(replace(drawn.sample, log_p=log_p))
    loss = weights.loss(costs, baseline=baseline)
    by_log_p, by_cost = torch.autograd.grad(loss.sum(), (log_p, costs))
    n = len(cost)
    return (
        _to_domain(by_log_p, index, n),
        _to_domain(by_cost, index, n),
        loss.detach(),
        weights.weight.detach(),
    )


def _noise(weights: Tensor, drawn: AllSamples, score: Tensor, *, shared: bool) -> Tensor:
    """Return the covariance that a sampled baseline of variance 1 adds to that of the gradient."""
    index, n = drawn.sample.value, len(score)
    if not shared:
        squares = drawn.probability @ _to_domain(weights.square(), index, n)
        return score.mT @ (squares.unsqueeze(-1) * score)
    total = _to_domain(weights, index, n) @ score
    return total.mT @ (drawn.probability.unsqueeze(-1) * total)


def _moments(x: Tensor, drawn: AllSamples) -> tuple[Tensor, Tensor]:
    """Return the mean and the covariance of x (samples, m): 0 if below rounding, inf if divergent."""
    probability = drawn.probability.unsqueeze(-1)
    mean = (probability * x).sum(0)
    centred = x - mean
    covariance = (probability * centred).mT @ centred
    rounding = (1024 * torch.finfo(x.dtype).eps) ** 2 * (probability * x.square()).sum(0)
    constant = covariance.diagonal() <= rounding
    covariance = covariance.masked_fill(constant | constant.unsqueeze(-1), 0.0)
    if drawn.x is not None:
        infinite = _diverges(x.unflatten(0, (-1, len(drawn.x))), drawn.x, drawn.sample.k)
        covariance = covariance.masked_fill(infinite | infinite.unsqueeze(-1), torch.nan)
        covariance.diagonal()[infinite] = torch.inf
    return mean, covariance


READ_AT = -20.0  # here every p t is below 2e-9, and rounding errors are still small


def _diverges(x: Tensor, log_t: Tensor, k: int) -> Tensor:
    r"""Return whether $E[x^2]$ is infinite, (m,), from the growth of x as the threshold's time $t \to 0$.

    Given a set, the density of $t$ is $\propto t^k$ near 0. If $x \propto t^{-a}$ for some set, $E[x^2]$ is
    finite only if $2a < k + 1$. Importance weights $w_s = p_s / q_\kappa(s) \to 1 / t$ have a = 1, so their
    variance is infinite for k = 1. Their products with the built-in baseline have a = 2, so the variance of
    the gradient is infinite for k ≤ 3.

    Args:
        x: (sets, nodes, m).
        log_t: the nodes, (nodes,).
        k: the size of the sets.
    """
    i = int((log_t - READ_AT).abs().argmin())
    size = x[:, i : i + 2].abs()
    a = torch.round((size[:, 0].log() - size[:, 1].log()) / STEP)
    return ((size[:, 0] > 0) & (2.0 * a >= k + 1)).any(0)


def _to_domain(x: Tensor, index: Tensor, n: int) -> Tensor:
    """Add up the entries that belong to each outcome, (samples, n)."""
    return torch.zeros(len(x), n, dtype=x.dtype).scatter_add(-1, index, x)


def _jacobian(y: Tensor, parameters: Sequence[Tensor]) -> Tensor:
    """Return the derivative of each element of y with respect to all parameters, (n, parameters)."""
    if not y.requires_grad:
        return torch.zeros(len(y), sum(p.numel() for p in parameters), dtype=y.dtype)
    rows = [
        torch.autograd.grad(yi, parameters, retain_graph=True, materialize_grads=True) for yi in y
    ]
    return torch.stack([torch.cat([g.flatten() for g in row]) for row in rows])


def exact_best_of(f: Cost, dist: Distribution, m: int, *, largest: bool = True) -> Tensor:
    r"""The expected best of m draws, by enumerating the domain; differentiable.

    $$J_m = \sum_j f_{(j)} (P_j^m - P_{j-1}^m), \qquad P_j = p_{(1)} + \dots + p_{(j)}$$

    This is the expected maximum of $m$ independent draws, with all outcomes in ascending order of $f$, and
    the quantity that :func:`swor.best_of` estimates. If outcomes tie, the gradient of $f$ is that of the
    more probable one.

    Args:
        f: the value of every outcome, from (*batch, |D|, *event) to (*batch, |D|).
        dist: a distribution small enough to be enumerated.
        m: the number of draws, at least 1.
        largest: True for the largest value, False for the smallest.

    Returns:
        (*batch,)

    >>> dist = torch.distributions.Bernoulli(probs=torch.tensor(0.5))
    >>> exact_best_of(lambda x: x, dist, 3)  # one success in three: 1 − 1/8
    tensor(0.8750)
    """
    check_count("m", m)
    domain = support(dist)
    value = _values(f, domain)
    order = ascending((value if largest else -value).detach(), domain.log_p.detach())
    # The power m multiplies the rounding of a sum of 1 by m, so it must be 1 in double precision.
    below = _probabilities(domain).gather(-1, order).cumsum(-1).clamp(max=1.0)
    before = torch.cat([torch.zeros_like(below[..., :1]), below[..., :-1]], dim=-1)
    best = ((below**m - before**m) * value.gather(-1, order)).sum(-1)
    return best.to(torch.promote_types(value.dtype, domain.log_p.dtype))
