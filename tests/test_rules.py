"""Rules: unbiasedness, theorems and shapes, by enumeration wherever that is possible.

Every rule in ESTIMATORS is tested here without a line of its own.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch
from problems import log_probabilities, seeded
from torch.distributions import Categorical

import swor
from swor.diagnostics.enumeration import exact_moments
from swor.diagnostics.samples import all_samples

RULES = {name: entry for name, entry in swor.ESTIMATORS.items() if entry.rule is not None}
UNBIASED = sorted(name for name, entry in RULES.items() if entry.unbiased)
BIASED = sorted(name for name, entry in RULES.items() if not entry.unbiased)
DISTINCT = sorted(n for n, e in RULES.items() if e.scheme == swor.Scheme.WITHOUT_REPLACEMENT)
N = 4


class Problem:
    """A categorical over N outcomes, and a cost that has parameters of its own."""

    def __init__(self, scale=1.0, seed=0):
        self.theta = scale * torch.randn(N, dtype=torch.float64, generator=seeded(seed))
        self.phi = torch.randn(N, dtype=torch.float64, generator=seeded(seed + 1))
        self.parameters = [self.theta.requires_grad_(), self.phi.requires_grad_()]

    @property
    def dist(self):
        return Categorical(logits=self.theta)

    def cost(self, x):
        return torch.sin(self.phi)[x] * (1.0 + x) + self.theta.square()[x]

    def gradient(self):
        value = swor.exact(self.cost, self.dist)
        return value, torch.cat(torch.autograd.grad(value, self.parameters))


def worst_bias(entry, k, scale, **options):
    problem = Problem(scale)
    moments = exact_moments(
        entry.rule, entry.scheme, problem.cost, problem.dist, k, problem.parameters, **options
    )
    value, gradient = problem.gradient()
    return max((moments.mean - value).abs(), (moments.gradient - gradient).abs().max())


@pytest.mark.parametrize("scale", [0.5, 8.0])
@pytest.mark.parametrize("k", range(1, N + 1))
@pytest.mark.parametrize("name", UNBIASED)
def test_unbiased(name, k, scale):
    for baseline in ("built-in", 0.0, 1.7):
        assert worst_bias(RULES[name], k, scale, baseline=baseline) <= 1e-12


@pytest.mark.parametrize("name", BIASED)
def test_biased(name):
    for k in (2, 3):
        assert worst_bias(RULES[name], k, 0.5) > 1e-4
    assert worst_bias(RULES[name], N, 0.5) <= 1e-12  # the whole domain leaves no room for bias


@pytest.mark.parametrize("k", range(1, N + 1))
@pytest.mark.parametrize("name", UNBIASED)
def test_unbiased_off_policy(name, k):
    """Sampled from q, differentiated by the parameters of p, with the built-in baseline."""
    problem = Problem(0.5)
    log_q = log_probabilities(N, seed=9)
    entry = RULES[name]
    drawn = all_samples(log_q, k, entry.scheme)
    log_p = problem.theta.log_softmax(-1)
    weights = entry.rule(drawn.sample)
    index = drawn.sample.value
    loss = weights.loss(problem.cost(index), log_p=log_p[index])
    estimate = (drawn.probability * loss).sum()
    ours = torch.cat(torch.autograd.grad(estimate, problem.parameters))
    value, gradient = problem.gradient()
    assert (estimate - value).abs() <= 1e-12
    assert (ours - gradient).abs().max() <= 1e-12


def test_without_the_ratio_of_policies_it_is_biased():
    """The off-policy test would notice: the same sum with the weights of q for p."""
    problem = Problem(0.5)
    drawn = all_samples(log_probabilities(N, seed=9), 2, swor.Scheme.WITHOUT_REPLACEMENT)
    loss = swor.unordered_set(drawn.sample).loss(problem.cost(drawn.sample.value))
    assert ((drawn.probability * loss).sum() - problem.gradient()[0]).abs() > 1e-3


def conditional_mean(rule, k, cost, log_probs):
    """E[e | S] for every set, and the unordered set estimate of the same set."""
    drawn = all_samples(log_probs, k, swor.Scheme.WITHOUT_REPLACEMENT)
    value = rule(drawn.sample).mean(cost[drawn.sample.value])
    unordered = swor.unordered_set(drawn.sample).mean(cost[drawn.sample.value])
    sets = (2**drawn.sample.value).sum(-1)
    for s in sets.unique():
        rows = sets == s
        share = drawn.probability[rows] / drawn.probability[rows].sum()
        yield (share * value[rows]).sum(), unordered[rows][0]


@pytest.mark.parametrize(
    "rule",
    [
        swor.single_sample,
        swor.raj,
        swor.importance_weighted,
        *(partial(swor.sum_and_sample, m=m) for m in (1, 2, 3)),
    ],
)
def test_rao_blackwell_of_each_is_the_unordered_set_estimator(rule):
    log_probs, cost = log_probabilities(5), torch.randn(5, dtype=torch.float64, generator=seeded())
    for blackwellised, unordered in conditional_mean(rule, 3, cost, log_probs):
        assert (blackwellised - unordered).abs() <= 1e-12


@pytest.mark.parametrize("k", [2, 3, 4])
@pytest.mark.parametrize("scale", [0.3, 3.0])
def test_the_unordered_set_estimator_has_the_least_variance(k, scale):
    problem = Problem(scale)

    def variance(rule):
        moments = exact_moments(
            rule,
            "without_replacement",
            problem.cost,
            problem.dist,
            k,
            [problem.theta],
            baseline=0.0,
        )
        return moments.variance, moments.total_variance

    ours = variance(swor.unordered_set)
    others = [swor.single_sample, swor.raj, swor.importance_weighted]
    others += [partial(swor.sum_and_sample, m=m) for m in range(1, k + 1)]
    for rule in others:
        for mine, other in zip(ours, variance(rule), strict=True):
            assert mine <= other * (1 + 1e-9) + 1e-20


def test_sum_and_sample_with_all_terms_sampled_is_the_unordered_set_estimator():
    drawn = all_samples(log_probabilities(5), 3, swor.Scheme.WITHOUT_REPLACEMENT).sample
    mine, other = swor.sum_and_sample(drawn, m=3), swor.unordered_set(drawn)
    assert torch.allclose(mine.weight, other.weight, rtol=0, atol=1e-12)


def test_risk_is_the_gradient_of_the_normalised_expectation():
    theta = torch.randn(6, dtype=torch.float64, generator=seeded()).requires_grad_()
    cost = torch.randn(3, dtype=torch.float64, generator=seeded(1))
    log_p = theta.log_softmax(-1)[[4, 0, 2]]
    (exact,) = torch.autograd.grad((log_p.softmax(-1) * cost).sum(), theta, retain_graph=True)
    sample = swor.Sample(torch.tensor([4, 0, 2]), log_p)
    (ours,) = torch.autograd.grad(swor.risk(sample).loss(cost), theta)
    assert torch.allclose(ours, exact, rtol=0, atol=1e-12)


def test_normalised_importance_weights_follow_the_papers_equation():
    """eq:niwpgbl_estimator, terms normalised by W_i and the baseline by W."""
    sample = swor.gumbel_top_k(log_probabilities(6), 3, generator=seeded())
    cost = torch.randn(3, dtype=torch.float64, generator=seeded(1))
    p = sample.log_p.exp()
    q = -torch.expm1(-torch.exp(sample.log_p - sample.kappa))
    total, baseline = (p / q).sum(), (p / q * cost).sum()
    own = total - p / q + p
    expected = (p / q) / own * (cost - baseline / total)
    weights = swor.normalized_importance_weighted(sample)
    ours = weights.weight * (cost - weights.baseline(cost))
    assert torch.allclose(ours, expected, rtol=0, atol=1e-12)


def test_importance_weights_with_a_baseline_follow_the_papers_equation():
    """eq:iwpgbl_estimator, written with the correction in place of a baseline per sample."""
    sample = swor.gumbel_top_k(log_probabilities(6), 3, generator=seeded())
    cost = torch.randn(3, dtype=torch.float64, generator=seeded(1))
    p = sample.log_p.exp()
    q = -torch.expm1(-torch.exp(sample.log_p - sample.kappa))
    expected = p / q * (cost * (1 - p + p / q) - (p / q * cost).sum())
    weights = swor.importance_weighted(sample)
    ours = weights.weight * (cost - weights.baseline(cost))
    assert torch.allclose(ours, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("k", [2, 3, 4])
def test_murthys_variance_is_unbiased(k):
    log_probs, cost = log_probabilities(5), torch.randn(5, dtype=torch.float64, generator=seeded())
    drawn = all_samples(log_probs, k, swor.Scheme.WITHOUT_REPLACEMENT)
    costs = cost[drawn.sample.value]
    estimate = swor.unordered_set(drawn.sample).mean(costs)
    variance = (drawn.probability * (estimate - (log_probs.exp() * cost).sum()).square()).sum()
    ours = (drawn.probability * swor.murthy_variance(drawn.sample, costs)).sum()
    assert (ours - variance).abs() <= 1e-12


@pytest.mark.parametrize("name", sorted(RULES))
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("batch", [(), (3,), (2, 3), (0,)])
def test_shapes_and_dtypes(name, dtype, batch):
    logits = torch.randn(*batch, 6, generator=seeded(), dtype=torch.float64).to(dtype)
    logits.requires_grad_()
    for k in (1, 3, 6):
        dist = Categorical(logits=logits, validate_args=False)
        loss = RULES[name](lambda x: (1.0 + x).to(dtype), dist, k, generator=seeded())
        assert loss.shape == batch and loss.dtype == dtype
        loss.sum().backward()
        assert logits.grad.isfinite().all()


@pytest.mark.parametrize("name", DISTINCT)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_low_entropy_has_no_nan(name, dtype):
    logits = torch.tensor([[0.0, -30.0, -60.0, -90.0], [0.0, 0.0, -300.0, -300.0]], dtype=dtype)
    logits.requires_grad_()
    for k in range(1, 5):
        sample = swor.gumbel_top_k(logits.log_softmax(-1), k, generator=seeded())
        weights = RULES[name].rule(sample)
        loss = weights.loss(torch.arange(2.0 * k, dtype=dtype).reshape(2, k))
        (gradient,) = torch.autograd.grad(loss.sum(), logits)
        assert loss.isfinite().all() and gradient.isfinite().all()
        assert weights.weight.isfinite().all()


@pytest.mark.parametrize("name", DISTINCT)
def test_an_impossible_outcome_has_no_weight_and_no_gradient(name):
    log_p = torch.tensor([0.5, 0.0, 0.2]).double().log().requires_grad_()
    log_rest = torch.tensor(0.3).double().log()
    sample = swor.Sample(torch.arange(3), log_p, log_rest, kappa=log_rest)
    weights = RULES[name].rule(replace(sample))
    if name != "single_sample":
        assert weights.weight[1] <= 0.35  # raj: the mass left at its turn, for a sample of p = 0
    weights.loss(torch.tensor([1.0, 2.0, 3.0]).double()).backward()
    assert log_p.grad.isfinite().all() and log_p.grad[1] == 0
    if name in ("unordered_set", "importance_weighted", "normalized_importance_weighted", "risk"):
        assert weights.weight[1] == 0


def test_the_loss_is_the_estimate_and_carries_the_pathwise_term():
    sample = swor.gumbel_top_k(log_probabilities(3, 5).requires_grad_(), 2, generator=seeded())
    weights = swor.unordered_set(sample)
    cost = torch.rand(3, 2, dtype=torch.float64, generator=seeded()).requires_grad_()
    loss = weights.loss(cost)
    assert torch.equal(loss, weights.mean(cost))
    (by_cost,) = torch.autograd.grad(loss.sum(), cost)
    assert torch.equal(by_cost, weights.weight)


def test_an_external_baseline_replaces_the_built_in_one():
    log_probs = log_probabilities(3, 5).requires_grad_()
    sample = swor.gumbel_top_k(log_probs, 2, generator=seeded())
    weights = swor.unordered_set(sample)
    cost = torch.rand(3, 2, dtype=torch.float64, generator=seeded())
    for baseline in (2.0, torch.full((3, 1), 2.0).double(), torch.tensor(2.0).double()):
        (mine,) = torch.autograd.grad(
            weights.loss(cost, baseline=baseline).sum(), log_probs, retain_graph=True
        )
        by_hand = (weights.weight * (cost - 2.0) * sample.log_p).sum()
        (expected,) = torch.autograd.grad(by_hand, log_probs, retain_graph=True)
        assert torch.allclose(mine, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["unordered_set", "reinforce", "importance_weighted"])
def test_no_built_in_baseline_for_a_single_sample(name):
    dist = Categorical(logits=torch.zeros(3, 4))
    drawn = swor.sample(dist, 1, replacement=name == "reinforce")
    assert RULES[name].rule(drawn).control is None


def test_a_whole_loss_compiles_without_a_break():
    def loss(logits, cost):
        sample = swor.gumbel_top_k(logits.log_softmax(-1), 3)
        return swor.unordered_set(sample).loss(cost).mean()

    logits = torch.randn(5, 400, generator=seeded()).requires_grad_()
    cost = torch.ones(5, 3)
    value = torch.compile(loss, fullgraph=True, backend="aot_eager")(logits, cost)
    value.backward()
    assert torch.allclose(value, torch.tensor(1.0), atol=1e-5)  # weights sum to 1
    assert logits.grad.abs().max() <= 1e-5  # and so do the rows of the baseline
