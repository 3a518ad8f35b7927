"""What users of PyTorch expect: vmap, autocast, inference mode, higher derivatives, pickling."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest
import torch
from problems import log_probabilities, seeded
from proofs import Problem
from torch.func import grad, vmap

import swor
from swor.diagnostics.all_samples import all_samples
from swor.estimators.baselines import BUILT_IN
from swor.math._subsets import made_once

RULES = {n: e for n, e in swor.ESTIMATORS.items() if e.baseline == BUILT_IN}
N = 4


@pytest.mark.parametrize("k", [1, 4, 12])
def test_vmap_over_sampler_rule_and_loss(k: int) -> None:
    log_probs = log_probabilities(5, 20)
    cost = torch.randn(5, k, dtype=torch.float64, generator=seeded())
    sample = swor.gumbel_top_k(log_probs, k, generator=seeded())

    def weigh(log_p: torch.Tensor, log_rest: torch.Tensor) -> torch.Tensor:
        return swor.unordered_set(
            swor.Sample(log_p, log_p, log_rest, scheme="without_replacement")
        ).weight

    together = swor.unordered_set(sample).weight
    torch.testing.assert_close(vmap(weigh)(sample.log_p, sample.log_rest), together)

    def loss(logits: torch.Tensor, cost: torch.Tensor) -> torch.Tensor:
        drawn = swor.gumbel_top_k(logits.log_softmax(-1), k)
        return swor.unordered_set(drawn).loss(cost)

    gradient = vmap(grad(loss), randomness="different")(log_probs, cost)
    assert gradient.shape == (5, 20) and gradient.isfinite().all()
    values = vmap(loss, randomness="different")(log_probs, cost)
    assert values.shape == (5,)


@pytest.mark.parametrize("name", sorted(swor.ESTIMATORS))
def test_an_autocast_around_an_estimator_changes_nothing(name: str) -> None:
    entry = swor.ESTIMATORS[name]
    base = torch.distributions.OneHotCategorical(logits=log_probabilities(3, 2, 8).float())
    dist = torch.distributions.Independent(base, 1)
    if not entry.defined_for(dist):
        dist = torch.distributions.Bernoulli(logits=torch.linspace(-1.0, 1.0, 3))
    largest = entry.largest_k(dist) or 12
    k = min(12, largest)

    def estimate() -> torch.Tensor:
        cost = lambda x: x.float().cos().flatten(2).sum(-1) if x.dim() > 2 else x.cos()  # noqa: E731
        return entry.make(dist, generator=seeded())(cost, dist, k, generator=seeded(1))

    plain = estimate()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(estimate(), plain)


@pytest.mark.parametrize("k", [3, 12])
def test_an_autocast_around_rules_changes_nothing(k: int) -> None:
    sample = swor.gumbel_top_k(log_probabilities(50, 30, scale=3.0).float(), k, generator=seeded())
    cost = torch.randn(50, k, generator=seeded())

    def numbers() -> list[torch.Tensor]:
        weights = swor.unordered_set(sample)
        return [weights.weight, weights.baseline_weights, swor.murthy_variance(sample, cost)]

    plain = numbers()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert all(map(torch.equal, numbers(), plain))


def test_a_first_call_in_inference_mode_leaves_gradients_intact() -> None:
    made_once.cache_clear()
    with torch.inference_mode():
        swor.unordered_set(swor.gumbel_top_k(log_probabilities(9), 5))
    log_probs = log_probabilities(9).requires_grad_()
    sample = swor.gumbel_top_k(log_probs, 5)
    torch.log(swor.log_prob_set(sample.log_p, sample.log_rest).exp()).backward()
    assert log_probs.grad.isfinite().all()


@pytest.mark.parametrize("name", sorted(n for n, e in RULES.items() if e.unbiased))
@pytest.mark.parametrize("baseline", ["built-in", 1.7])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_hessians_are_unbiased_by_enumeration(name: str, baseline: str | float, k: int) -> None:
    """The samples are drawn at θ₀; the mean loss has the second derivatives of E[f] there."""
    at = torch.randn(2 * N, dtype=torch.float64, generator=seeded())
    entry = RULES[name]
    drawn = all_samples(at[:N].log_softmax(-1), k, entry.scheme)

    def cost(theta: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return torch.sin(theta[N:])[index] * (1.0 + index) + theta[:N].square()[index]

    def estimated(theta: torch.Tensor) -> torch.Tensor:
        index = drawn.sample.value
        log_p = theta[:N].log_softmax(-1)[index]
        weights = replace(entry.rule(drawn.sample), log_p=log_p)
        return (drawn.probability * weights.loss(cost(theta, index), baseline=baseline)).sum()

    def exact(theta: torch.Tensor) -> torch.Tensor:
        return (theta[:N].softmax(-1) * cost(theta, torch.arange(N))).sum()

    hessian = torch.autograd.functional.hessian
    torch.testing.assert_close(hessian(estimated, at), hessian(exact, at), rtol=0, atol=1e-11)


def test_a_first_order_surrogate_has_another_hessian() -> None:
    """The test above would notice: the surrogate that stops the gradient of the cost is linear."""
    at = torch.randn(N, dtype=torch.float64, generator=seeded())
    drawn = all_samples(at.log_softmax(-1), 2, swor.Scheme.WITH_REPLACEMENT)
    cost = torch.arange(1.0, 1.0 + N, dtype=torch.float64)

    def linear(theta: torch.Tensor) -> torch.Tensor:
        log_p = theta.log_softmax(-1)[drawn.sample.value]
        loss = 0.5 * (log_p * cost[drawn.sample.value]).sum(-1)
        return (drawn.probability * loss).sum()

    def exact(theta: torch.Tensor) -> torch.Tensor:
        return (theta.softmax(-1) * cost).sum()

    hessian = torch.autograd.functional.hessian
    assert (hessian(linear, at) - hessian(exact, at)).abs().max() > 1e-2


@pytest.mark.parametrize("name", sorted(swor.ESTIMATORS))
def test_entries_can_be_pickled(name: str) -> None:
    entry, problem = swor.ESTIMATORS[name], Problem("square", 3)
    again = pickle.loads(pickle.dumps(entry))
    made = [e.make(problem.dist, generator=seeded()) for e in (entry, again)]
    values = [estimator(problem.f, problem.dist, 2, generator=seeded()) for estimator in made]
    assert torch.equal(*values)


def test_samples_and_weights_can_be_compared() -> None:
    sample = swor.gumbel_top_k(log_probabilities(3, 5), 2)
    weights = swor.unordered_set(sample)
    assert sample == sample and weights == weights
    assert sample != swor.gumbel_top_k(log_probabilities(3, 5), 2)
    assert sample in [sample] and len({sample, sample}) == 1


def test_checks_of_values_can_be_turned_off() -> None:
    wrong = torch.zeros(3)
    swor.set_validate_values(False)
    try:
        swor.gumbel_top_k(wrong, 2)
    finally:
        swor.set_validate_values(True)
    with pytest.raises(ValueError, match="sum to 3"):
        swor.gumbel_top_k(wrong, 2)


@pytest.mark.parametrize("wrong", [torch.nan, torch.inf, -torch.inf])
def test_a_cost_that_is_no_number_is_refused(wrong: float) -> None:
    weights = swor.unordered_set(swor.gumbel_top_k(log_probabilities(5), 2))
    cost = torch.tensor([1.0, wrong], dtype=torch.float64)
    for method in (weights.loss, weights.mean, weights.baseline):
        with pytest.raises(ValueError, match="finite number"):
            method(cost)
    with pytest.raises(ValueError, match="baseline"):
        weights.loss(torch.zeros(2, dtype=torch.float64), baseline=cost)
