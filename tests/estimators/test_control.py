"""Control variates with a known mean: under any rule without bias, and trained by the same backward pass."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from problems import log_probabilities, seeded
from torch import Tensor
from torch.distributions import (
    Bernoulli,
    Categorical,
    Independent,
    MixtureSameFamily,
    OneHotCategorical,
)

import swor
from swor.diagnostics.all_samples import all_samples

N, C = 3, 4
LOGITS = torch.randn(N, C, generator=seeded(0), dtype=torch.float64)
TABLE = 3.0 * torch.randn(N, C, generator=seeded(1), dtype=torch.float64)
RULES = {
    name: entry
    for name, entry in swor.ESTIMATORS.items()
    if entry.rule is not None and entry.baseline is not None and entry.baseline.samples(2) == 0
}


def product_of(logits: Tensor) -> Independent:
    return Independent(OneHotCategorical(logits=logits), 1)


def additive_cost(x: Tensor) -> Tensor:
    return (x * TABLE.to(x.dtype)).sum((-1, -2))


@pytest.mark.parametrize("name", [n for n, e in RULES.items() if e.unbiased and not e.mixes_batch])
def test_a_control_variate_under_any_rule_adds_no_bias(name: str) -> None:
    entry, k = RULES[name], 3
    logits = log_probabilities(4, seed=5).requires_grad_()
    dist = Categorical(logits=logits)
    f = torch.randn(4, generator=seeded(6), dtype=torch.float64)
    every = all_samples(dist.logits.detach(), k, entry.scheme, ordered=True, kappa=True)
    repeated = Categorical(logits=logits.expand(len(every.probability), 4))
    index = every.sample.value
    parts = {part: getattr(every.sample, part) for part in ("log_rest", "kappa", "log_q")}
    log_p = repeated.logits.gather(-1, index)
    sample = swor.Sample(index, log_p, **parts, scheme=entry.scheme)
    g = swor.additive(repeated, index, TABLE[:1].expand(len(index), 1, 4))
    loss = every.probability @ swor.controlled(entry.rule(sample), f[index], g)
    truth = (dist.logits.exp() * f).sum()
    torch.testing.assert_close(loss, truth, rtol=0, atol=1e-9)
    got, expected = (torch.autograd.grad(x, logits, retain_graph=True)[0] for x in (loss, truth))
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("replacement", [False, True])
def test_a_perfect_control_variate_leaves_no_variance(replacement: bool) -> None:
    logits = LOGITS.expand(50, N, C).clone().requires_grad_()
    dist = product_of(logits)
    s = swor.sample(dist, 2, replacement=replacement, generator=seeded(2))
    rule = swor.rloo if replacement else swor.unordered_set
    g = swor.additive(dist, s.value, TABLE.expand(50, N, C))
    loss = swor.controlled(rule(s), additive_cost(s.value), g)
    (gradient,) = torch.autograd.grad(loss.sum(), logits)
    truth = LOGITS.clone().requires_grad_()
    exact = (truth.softmax(-1) * TABLE).sum()
    torch.testing.assert_close(loss, exact.expand(50))
    torch.testing.assert_close(gradient[0], torch.autograd.grad(exact, truth)[0])
    torch.testing.assert_close(gradient, gradient[:1].expand(50, N, C))


def test_the_lesson_reaches_the_table_alone_and_the_table_nothing_else() -> None:
    logits = LOGITS.expand(5, N, C).clone().requires_grad_()
    dist = product_of(logits)
    s = swor.sample(dist, 3, generator=seeded(3))
    cost, weights = additive_cost(s.value).square(), swor.unordered_set(s)
    gradients = []
    for learns in (True, False):
        table = TABLE.expand(5, N, C).clone().requires_grad_(learns)
        loss = swor.controlled(weights, cost, swor.additive(dist, s.value, table)).sum()
        wanted = [logits, table] if learns else [logits]
        gradients.append(torch.autograd.grad(loss, wanted, retain_graph=True))
    torch.testing.assert_close(gradients[0][0], gradients[1][0])
    table = TABLE.expand(5, N, C).clone().requires_grad_()
    residual = cost - swor.additive(dist, s.value, table).value
    squares = weights.mean((residual - weights.baseline(residual)).square()).sum()
    torch.testing.assert_close(gradients[0][1], torch.autograd.grad(squares, table)[0])


@pytest.mark.parametrize("name", ["unordered_set_additive", "rloo_additive"])
def test_the_network_learns_an_additive_cost_of_the_context(name: str) -> None:
    x = torch.randn(64, 2, generator=seeded(4))
    dist = product_of(torch.zeros(64, N, C))
    scales = x.sum(-1, keepdim=True)

    def f(z: Tensor) -> Tensor:
        return scales * additive_cost(z)

    module = swor.ESTIMATORS[name].make(dist, context=2, generator=seeded(5))
    optimizer = torch.optim.Adam(module.parameters(), lr=3e-3)
    spread = []
    for step in range(400):
        optimizer.zero_grad()
        loss = module(f, dist, 4, context=x, generator=seeded(step))
        spread.append((loss.detach() - scales.squeeze(-1) * TABLE.float().mean(-1).sum()).var())
        loss.mean().backward()
        optimizer.step()
    assert sum(spread[-20:]) < 0.1 * sum(spread[:20])


def test_double_control_uses_a_scale_of_earlier_steps() -> None:
    logits = LOGITS.expand(5, N, C).clone().requires_grad_()
    dist = product_of(logits)
    module = swor.ESTIMATORS["unordered_set_double_control"].make(dist)

    def gradient(call: Callable[..., Tensor]) -> Tensor:
        loss = call(lambda x: additive_cost(x).sin(), dist, 2, generator=seeded(7))
        return torch.autograd.grad(loss.sum(), logits, retain_graph=True)[0]

    run = [gradient(call) for call in (swor.ESTIMATORS["unordered_set"], module, module)]
    torch.testing.assert_close(run[0], run[1])  # nothing is learned from the first sample itself
    assert not torch.allclose(run[1], run[2])


TANGENTS = [
    "double_control",
    "unordered_set_double_control",
    "rloo_tangents",
    "unordered_set_tangents",
]


@pytest.mark.parametrize("name", TANGENTS)
def test_double_control_learns_the_tangent_of_a_linear_cost(name: str) -> None:
    module = swor.ESTIMATORS[name].make(product_of(LOGITS))
    variances = []
    for step in range(20):
        logits = LOGITS.expand(200, N, C).clone().requires_grad_()
        loss = module(additive_cost, product_of(logits), 3, generator=seeded(step))
        variances.append(torch.autograd.grad(loss.sum(), logits)[0].var(0).sum())
    assert variances[-1] < 0.01 * variances[0]


def test_positive_parts_of_the_tangents_predict_a_convex_cost_better() -> None:
    weights = torch.randn(N * C, 8, generator=seeded(2), dtype=torch.float64)

    def f(x: Tensor) -> Tensor:
        return (x.flatten(-2) @ weights).square().sum(-1)

    def variance(name: str) -> Tensor:
        module = swor.ESTIMATORS[name].make(product_of(LOGITS))
        for step in range(20):
            logits = LOGITS.expand(300, N, C).clone().requires_grad_()
            loss = module(f, product_of(logits), 4, generator=seeded(step))
            (gradient,) = torch.autograd.grad(loss.sum(), logits)
        return gradient.var(0).sum()

    plain = variance("double_control")
    assert variance("rloo_tangents") < 0.8 * plain
    assert variance("unordered_set_tangents") < 0.8 * plain


def test_rodeo_learns_control_variates_of_a_smooth_cost() -> None:
    weights = torch.randn(N * C, 8, generator=seeded(2), dtype=torch.float64)

    def f(x: Tensor) -> Tensor:
        return 0.1 * (x.flatten(-2) @ weights.to(x.dtype)).square().sum(-1)

    module = swor.ESTIMATORS["rodeo"].make(product_of(LOGITS), generator=seeded(3))
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-2)
    spread = []
    for step in range(120):
        logits = LOGITS.expand(50, N, C).clone().requires_grad_()
        optimizer.zero_grad()
        module(f, product_of(logits), 4, generator=seeded(step)).sum().backward()
        spread.append(logits.grad.var(0).sum())
        optimizer.step()
    assert sum(spread[-20:]) / 20 < 0.6 * sum(spread[:3]) / 3


def test_another_number_of_scales_is_refused() -> None:
    dist = product_of(torch.zeros(5, N, C, requires_grad=True))
    with pytest.raises(ValueError, match=r"of 2 control variates; expected 5.*LearnedScales\(5\)"):
        swor.rloo_tangents(additive_cost, dist, 2, scales=swor.LearnedScales(2))


def test_scales_do_not_depend_on_the_units_of_their_control_variates() -> None:
    a = torch.randn(50, 3, generator=seeded(3))
    b = torch.randn(2, 50, 3, generator=seeded(4)) + a
    units = torch.tensor([1e-4, 1e4])
    alpha = []
    for u in (torch.ones(2), units):
        scales = swor.LearnedScales(2)
        scales(a, u[:, None, None] * b)
        alpha.append(u * -torch.linalg.solve(scales.square, scales.cross))
        found = scales(a, u[:, None, None] * b)
        torch.testing.assert_close(found, (alpha[-1] / u).clamp(-2.0, 2.0), rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(alpha[0], alpha[1], rtol=1e-3, atol=1e-6)


def test_a_masked_category_is_no_trouble() -> None:
    logits = LOGITS.masked_fill(torch.eye(N, C, dtype=torch.bool), -torch.inf).requires_grad_()
    for name in (
        "unordered_set_additive",
        "double_control",
        "unordered_set_tangents",
        "rodeo",
        "carms",
    ):
        module = swor.ESTIMATORS[name].make(product_of(logits))
        for seed in range(5):
            loss = module(additive_cost, product_of(logits), 3, generator=seeded(seed))
            assert torch.autograd.grad(loss, logits)[0].isfinite().all()


def test_bad_input_says_what_to_do() -> None:
    dist = product_of(torch.zeros(5, N, C))
    s = swor.sample(dist, 2, generator=seeded())
    weights, cost = swor.unordered_set(s), torch.ones(5, 2)
    with pytest.raises(ValueError, match=r"mean of the control variate has shape \(5, 2\)"):
        swor.controlled(weights, cost, swor.KnownMean(cost, cost))
    with pytest.raises(ValueError, match=r"control.value has shape \(5,\)"):
        swor.controlled(weights, cost, swor.KnownMean(cost[:, 0], cost[:, 0]))
    with pytest.raises(ValueError, match=r"table has shape \(4, 3, 4\).*batch of the distribution"):
        swor.additive(dist, s.value, torch.zeros(4, N, C))
    with pytest.raises(ValueError, match=r"value has shape \(5, 2, 3\).*Pass sample.value"):
        swor.additive(dist, s.value[..., 0], torch.zeros(5, N, C))
    module = swor.ESTIMATORS["unordered_set_additive"].make(dist, context=7)
    with pytest.raises(ValueError, match=r"context has shape \(4, 7\); expected \(5, '…'\)"):
        module(lambda x: pytest.fail("f was evaluated"), dist, 2, context=torch.zeros(4, 7))
    with pytest.raises(TypeError, match="reads no context"):
        swor.ESTIMATORS["relax"].make(dist, context=7)


def test_a_cost_without_a_gradient_by_its_input() -> None:
    dist = product_of(torch.zeros(5, N, C))
    for name in (*TANGENTS, "rodeo"):
        module = swor.ESTIMATORS[name].make(dist)
        with pytest.raises(
            ValueError, match=r"no gradient with respect to its input.*unordered_set_additive"
        ):
            module(lambda x: x.argmax(-1).float().sum(-1), dist, 2)


def test_a_distribution_that_is_not_a_product() -> None:
    mixture = MixtureSameFamily(Categorical(torch.ones(2)), Categorical(logits=torch.zeros(2, 3)))
    with pytest.raises(TypeError, match=r"expected a product.*KnownMean of your own"):
        swor.additive(mixture, torch.zeros(2), torch.zeros(1, 3))


def test_another_network_may_take_the_place_of_the_default() -> None:
    dist = Bernoulli(logits=torch.zeros(5))
    module = swor.ESTIMATORS["rloo_additive"].make(dist)
    module.network = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Unflatten(-1, (1, 2)))
    assert module(torch.ones_like, dist, 2).shape == (5,)


def test_without_gradient_the_value_is_estimated() -> None:
    dist = product_of(torch.zeros(5, N, C))
    with torch.no_grad():
        for name in ("unordered_set_additive", "double_control", "rodeo", "carms"):
            module = swor.ESTIMATORS[name].make(dist)
            assert module(lambda x: additive_cost(x), dist, 2).isfinite().all()


def test_a_cost_that_would_be_broadcast_is_refused() -> None:
    sample = swor.sample(product_of(LOGITS.expand(2, N, C)), 3)
    g = swor.additive(product_of(LOGITS.expand(2, N, C)), sample.value, TABLE.expand(2, N, C))
    with pytest.raises(ValueError, match=r"cost has shape \(2, 1\); expected \(2, 3\)"):
        swor.controlled(swor.unordered_set(sample), torch.ones(2, 1, dtype=torch.float64), g)


def test_the_surrogate_of_rodeo_forgets_the_offset_of_the_costs() -> None:
    plain, shifted = swor.TangentSurrogate(), swor.TangentSurrogate()
    for step in range(20):
        cost = torch.randn(64, generator=torch.Generator().manual_seed(step))
        plain.remember(cost)
        shifted.remember(cost + 1e4)
    shifted.remember(torch.zeros(0))
    torch.testing.assert_close(shifted.variance, plain.variance, rtol=0.01, atol=0.0)
    torch.testing.assert_close(shifted.mean - 1e4, plain.mean, rtol=0.0, atol=0.01)


def test_an_evaluation_teaches_rodeo_nothing() -> None:
    dist = OneHotCategorical(logits=torch.zeros(2, 3))
    estimator = swor.ESTIMATORS["rodeo"].make(dist)
    with torch.no_grad():
        estimator(lambda x: x[..., 0] ** 2, dist, 2)
    assert estimator.surrogate.steps == 0


@pytest.mark.parametrize("name", ["double_control", "rloo_tangents", "rodeo"])
def test_an_infinite_slope_is_named(name: str) -> None:
    dist = OneHotCategorical(logits=torch.zeros(2, 3, requires_grad=True))
    with pytest.raises(ValueError, match="gradient of the cost with respect to its input"):
        swor.ESTIMATORS[name].make(dist)(lambda x: x[..., 0].sqrt(), dist, 3)


def test_an_estimator_that_has_nothing_to_learn_from_one_sample_can_be_warmed_up():
    """With one sample, RODEO has no surrogate, so its scales get no gradient."""
    logits = torch.tensor([0.3, -0.2, 0.5], requires_grad=True)
    dist = torch.distributions.Bernoulli(logits=logits)
    found = swor.gradient_moments("rodeo", lambda x: (x - 0.4) ** 2, dist, [logits], repeats=4, k=1)
    assert found.mean.isfinite().all()
