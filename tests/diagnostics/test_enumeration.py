"""Exact moments by enumeration: theorems, closed forms, infinite variances."""

from __future__ import annotations

import math

import mpmath
import pytest
import torch
from five_outcomes import COSTS, cost, generator, logits, moments
from torch import Tensor
from torch.distributions import Bernoulli, Categorical, Independent

import swor
from swor.diagnostics import enumeration
from swor.diagnostics.all_samples import all_samples
from swor.diagnostics.enumeration import exact_moments
from swor.estimators.baselines import Sampled
from swor.rules.sums import sum_and_sample
from swor.types import Sample, Scheme, Weights

WITHOUT, WITH, TOP = Scheme.WITHOUT_REPLACEMENT, Scheme.WITH_REPLACEMENT, Scheme.TOP_K_AND_SAMPLE


@pytest.mark.parametrize(
    ("rule", "scheme", "options"),
    [
        (swor.rloo, WITH, {"ordered": False}),
        (swor.unordered_set, WITHOUT, {"ordered": False, "kappa": False}),
        (swor.sum_and_sample, WITHOUT, {"kappa": False}),
        (swor.importance_weighted, WITHOUT, {"ordered": False}),
        (swor.risk, WITHOUT, {"ordered": False, "kappa": False}),
    ],
)
def test_fewer_samples_have_the_same_moments(rule, scheme, options) -> None:
    everything, fewer = moments(rule, scheme, 4), moments(rule, scheme, 4, **options)
    for a, b in zip(everything, fewer, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-13)


def brute_force_with_fresh_baselines(
    rule, scheme, k: int, *, shared: bool
) -> tuple[Tensor, Tensor]:
    """Mean and covariance over samples and over every value of the baselines' samples."""
    parameter = logits()
    log_probs = parameter.log_softmax(-1)
    drawn = all_samples(log_probs.detach(), k, scheme, kappa=False)
    score = torch.eye(5, dtype=torch.float64) - log_probs.exp().detach()
    terms = 1 if shared else k
    draws = torch.cartesian_prod(*[torch.arange(5)] * terms).reshape(-1, terms)
    p_draws = log_probs.detach()[draws].sum(-1).exp()
    weight = rule(drawn.sample).weight
    advantage = cost(drawn.sample.value)[:, None] - cost(draws).expand(-1, k)[None]
    g = torch.einsum("bk,bdk,bkp->bdp", weight, advantage, score[drawn.sample.value])
    p = (drawn.probability[:, None] * p_draws).unsqueeze(-1)
    mean = (p * g).sum((0, 1))
    centred = g - mean
    return mean, torch.einsum("bdp,bdq->pq", p * centred, centred)


@pytest.mark.parametrize("baseline", [Sampled(), Sampled(shared=True)])
@pytest.mark.parametrize(
    ("rule", "scheme"),
    [
        (swor.rloo, WITH),
        (swor.sum_and_sample, WITHOUT),
        (swor.deterministic_sum_and_sample, TOP),
    ],
)
def test_sampled_baselines_agree_with_brute_force(rule, scheme: Scheme, baseline) -> None:
    mean, covariance = brute_force_with_fresh_baselines(rule, scheme, 3, shared=baseline.shared)
    m = moments(rule, scheme, 3, baseline=baseline)
    torch.testing.assert_close(m.gradient, mean, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(m.covariance, covariance, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(m.gradient_bias, torch.zeros_like(mean), rtol=0.0, atol=1e-14)


def importance_second_moment(p: tuple[float, ...], k: int, f: tuple[float, ...]) -> mpmath.mpf:
    """E[(Σ w f)²] of a categorical by adaptive quadrature in high precision."""
    from itertools import combinations

    total = mpmath.mpf(0)
    for chosen in combinations(range(len(p)), k):
        rest = 1 - mpmath.fsum(mpmath.mpf(p[i]) for i in chosen)

        def density(t, chosen=chosen, rest=rest):
            u = {i: -mpmath.expm1(-mpmath.mpf(p[i]) * t) for i in chosen}
            e = mpmath.fsum(mpmath.mpf(p[i]) / u[i] * f[i] for i in chosen)
            return rest * mpmath.exp(-rest * t) * mpmath.fprod(u.values()) * e**2

        total += mpmath.quad(density, [0, 1, 5, 20, 100, mpmath.inf])
    return total


@pytest.mark.parametrize("k", [2, 3])
def test_importance_weighted_variance_to_nine_digits(k: int) -> None:
    p, f = (0.5, 0.3, 0.15, 0.05), (1.0, -0.5, 2.0, 3.0)
    parameter = logits(p)
    m = exact_moments(
        swor.importance_weighted,
        WITHOUT,
        lambda x: torch.tensor(f, dtype=torch.float64)[x],
        Categorical(logits=parameter),
        k,
        [parameter],
        ordered=False,
    )
    with mpmath.workdps(30):
        second = importance_second_moment(p, k, f)
        mean = mpmath.fsum(a * b for a, b in zip(p, f, strict=True))
        reference = float(second - mean**2)
    assert float(m.variance) == pytest.approx(reference, rel=1e-9)


def uniform_gradient_variance(n: int, k: int) -> float:
    r"""Importance weights without a baseline, p = 1/n, gradient by the logits of $f = 1_0$.

    $w = p / u$ for all in S, and only $0 \in S$ has a cost: $g = 1_{0 \in S} w (e_0 - p)$.
    $E[w^2 1_{0 \in S}] = p^2 C(n-1, k-1) \int \text{rest} \, e^{-\text{rest} t} u^{k-2} dt$, a beta function.
    """
    p, rest = 1 / n, (n - k) / n
    beta = math.gamma(rest / p) * math.gamma(k - 1) / math.gamma(rest / p + k - 1)
    second = p**2 * math.comb(n - 1, k - 1) * (rest / p) * beta
    return (second - p**2) * ((1 - p) ** 2 + (n - 1) * p**2)


@pytest.mark.parametrize("k", [2, 3, 4, 6])
def test_importance_weighted_variance_in_closed_form(k: int) -> None:
    parameter = torch.zeros(7, dtype=torch.float64, requires_grad=True)
    m = exact_moments(
        swor.importance_weighted,
        WITHOUT,
        lambda x: (x == 0).double(),
        Categorical(logits=parameter),
        k,
        [parameter],
        baseline=0.0,
        ordered=False,
    )
    assert float(m.total_variance) == pytest.approx(uniform_gradient_variance(7, k), rel=1e-11)


@pytest.mark.parametrize(("baseline", "finite_from"), [(0.0, 2), ("built-in", 4)])
def test_infinite_variances_are_said_to_be(baseline, finite_from: int) -> None:
    for k in (1, 2, 3, 4):
        m = moments(swor.importance_weighted, WITHOUT, k, baseline=baseline, ordered=False)
        assert bool(torch.isfinite(m.total_variance)) == (k >= finite_from)
        assert bool(torch.isfinite(m.variance)) == (k >= 2)
        torch.testing.assert_close(m.gradient_bias, torch.zeros(5).double(), rtol=0.0, atol=1e-12)
    m = moments(swor.importance_weighted, WITHOUT, 1, baseline=baseline, ordered=False)
    assert m.covariance.diagonal().isinf().all()
    assert m.covariance[0, 1].isnan()


def test_the_variance_at_k_3_grows_without_bound() -> None:
    """The power count says inf: a quadrature cut at t ≥ e^x grows linearly in -x."""
    parameter = logits()
    drawn = all_samples(parameter.detach(), 3, WITHOUT, ordered=False)
    by_log_p, *_ = enumeration._differentiate(swor.importance_weighted, drawn, COSTS, "built-in")
    score = torch.eye(5, dtype=torch.float64) - parameter.detach().exp()
    g = (by_log_p @ score).square().sum(-1) * drawn.probability
    assert drawn.x is not None
    by_node = g.unflatten(0, (-1, len(drawn.x))).sum(0)
    far = by_node[(drawn.x > -30.0) & (drawn.x < -10.0)]
    torch.testing.assert_close(far, far[0].expand_as(far), rtol=1e-3, atol=0.0)
    assert float(far[0]) > 0.0


def test_a_cost_of_zero_has_no_infinite_variance() -> None:
    parameter = logits()
    dist = Categorical(logits=parameter)
    m = exact_moments(
        swor.importance_weighted, WITHOUT, lambda x: 0.0 * COSTS[x], dist, 1, [parameter]
    )
    assert float(m.total_variance) == 0.0


def random_problem(seed: int) -> tuple[Tensor, Tensor]:
    noise = generator(seed)
    parameter = 1.5 * torch.randn(5, dtype=torch.float64, generator=noise)
    return parameter.requires_grad_(), torch.randn(5, dtype=torch.float64, generator=noise)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("k", [1, 2, 3, 4, 5])
def test_unordered_set_has_the_least_variance(seed: int, k: int) -> None:
    """As the Rao-Blackwellised version of the others: of the value and of the gradient."""
    parameter, costs = random_problem(seed)

    def variance(rule) -> tuple[float, Tensor]:
        m = exact_moments(
            rule, WITHOUT, lambda x: costs[x], Categorical(logits=parameter), k, [parameter],
            baseline=0.0,
        )  # fmt: skip
        return float(m.variance), m.covariance.diagonal()

    value, gradient = variance(swor.unordered_set)
    others = [swor.single_sample, swor.importance_weighted, swor.raj]
    others += [lambda s, m=m: sum_and_sample(s, m=m) for m in range(1, k + 1)]
    for other in others:
        other_value, other_gradient = variance(other)
        assert value <= other_value * (1 + 1e-9) + 1e-15
        assert bool((gradient <= other_gradient * (1 + 1e-9) + 1e-15).all())


def test_the_theorem_would_notice_a_worse_rule() -> None:
    unordered = moments(swor.unordered_set, WITHOUT, 3, baseline=0.0)
    risky = moments(lambda s: sum_and_sample(s, m=1), WITHOUT, 3)
    assert float(risky.variance) > 1.1 * float(unordered.variance)


def test_bias_of_a_wrong_rule_is_seen() -> None:
    def equal_weights(sample: Sample) -> Weights:
        return Weights(torch.full_like(sample.log_p.detach(), 1 / sample.k), None, sample.log_p)

    assert abs(float(moments(equal_weights, WITHOUT, 2).bias)) > 0.01
    assert float(moments(swor.risk, WITHOUT, 2).gradient_bias.norm()) > 0.01


def test_whole_domain_has_no_variance() -> None:
    for rule in (swor.unordered_set, swor.importance_weighted, swor.sum_and_sample):
        m = moments(rule, WITHOUT, 5)
        assert float(m.variance) == 0.0
        assert float(m.total_variance) == 0.0


def test_moments_with_a_decoder() -> None:
    """A cost with parameters of its own: the pathwise term is part of the gradient."""
    parameter, scale = logits(), torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    dist = Categorical(logits=parameter)
    m = exact_moments(
        swor.unordered_set, WITHOUT, lambda x: scale * COSTS[x], dist, 2, [parameter, scale]
    )
    loss = swor.exact(lambda x: scale * COSTS[x], dist)
    true = torch.cat([g.flatten() for g in torch.autograd.grad(loss, (parameter, scale))])
    torch.testing.assert_close(m.gradient, true, rtol=1e-12, atol=1e-14)


def test_batches_are_refused() -> None:
    dist = Categorical(logits=torch.zeros(2, 3))
    with pytest.raises(ValueError, match="one element at a time"):
        exact_moments(swor.unordered_set, WITHOUT, cost, dist, 2, [torch.zeros(1)])


def test_the_cost_of_an_impossible_outcome_is_not_used() -> None:
    parameter = torch.tensor([0.3, -0.2, -torch.inf], dtype=torch.float64, requires_grad=True)
    dist, wild = Categorical(logits=parameter), torch.tensor([1.0, 2.0, torch.nan]).double()
    assert swor.exact(lambda x: wild[x], dist).isfinite()
    assert swor.exact_best_of(lambda x: wild[x], dist, 2).isfinite()
    m = exact_moments(swor.unordered_set, WITHOUT, lambda x: wild[x], dist, 2, [parameter])
    assert float(m.bias.abs()) <= 1e-15 and float(m.gradient_bias.norm()) <= 1e-15


@pytest.mark.parametrize("wrong", [torch.nan, torch.inf])
def test_a_sum_over_the_domain_refuses_a_cost_that_is_no_number(wrong: float) -> None:
    dist, wild = Categorical(logits=torch.zeros(3)), torch.tensor([1.0, 2.0, wrong])
    for call in (
        lambda: swor.exact(lambda x: wild[x], dist),
        lambda: swor.exact_best_of(lambda x: wild[x], dist, 2),
        lambda: exact_moments(swor.unordered_set, WITHOUT, lambda x: wild[x], dist, 2, []),
    ):
        with pytest.raises(ValueError, match=r"f\(x\) contains NaN or an infinite number"):
            call()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_the_mean_of_a_constant_is_not_rounded(dtype: torch.dtype) -> None:
    dist = Independent(Bernoulli(logits=torch.zeros(12, dtype=dtype)), 1)
    mean = swor.exact(lambda x: torch.full(x.shape[:-1], 3.0, dtype=dtype), dist)
    assert mean.dtype == dtype and mean == 3.0
