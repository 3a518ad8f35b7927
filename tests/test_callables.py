"""Estimators that take the function: unbiased where they say so, biased where they say so."""

from __future__ import annotations

import math
from functools import partial
from itertools import product

import pytest
import torch
from proofs import DISTRIBUTIONS, Problem, assert_unbiased, exact, expected, z_scores
from torch import Tensor

import swor
from swor.estimators import arsm as arsm_module
from swor.estimators import coupling, local
from swor.samplers import strata

ENUMERATED = ("local_expectation", "local_unordered_set")
CONTINUOUS = ("arm", "disarm", "arsm")


def quadratic_control(z: Tensor) -> Tensor:
    """Any smooth function of the perturbed log-probabilities."""
    return (0.3 * z.square() + torch.sin(z)).sum((-1, -2)) + 0.2 * z[..., 0, 0] * z[..., -1, 1]


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize(
    "dist", ["categorical", "one_hot", "bernoullis", "one_hots", "categoricals"]
)
@pytest.mark.parametrize("name", ENUMERATED)
def test_unbiased_by_enumeration(name: str, dist: str, k: int) -> None:
    mean = expected(swor.ESTIMATORS[name], dist, k)
    torch.testing.assert_close(mean, exact(dist), rtol=0, atol=1e-12)


def test_enumeration_sees_a_wrong_local_estimator(monkeypatch: pytest.MonkeyPatch) -> None:
    mean_of_gradients = lambda weights, cost: weights.loss(cost).mean(-1)  # noqa: E731
    monkeypatch.setattr(local, "_combine", mean_of_gradients)
    wrong = expected(swor.local_unordered_set, "categoricals", 2)
    assert (wrong - exact("categoricals")).abs().max() > 1e-2


def test_all_categories_of_a_single_variable_are_exact() -> None:
    for estimate, k in ((swor.local_expectation, 1), (swor.local_unordered_set, 3)):
        problem = Problem("categorical", 7)
        moments = problem.moments(estimate(problem.f, problem.dist, k))
        torch.testing.assert_close(moments, exact("categorical").expand(7, -1))


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("dist", ["bernoulli", "two_categories", "bernoullis", "square"])
@pytest.mark.parametrize("name", CONTINUOUS)
def test_binary_unbiased(name: str, dist: str, k: int) -> None:
    assert_unbiased(swor.ESTIMATORS[name], dist, k)


@pytest.mark.parametrize("dist", ["categorical", "one_hot", "categoricals"])
def test_arsm_unbiased(dist: str) -> None:
    assert_unbiased(swor.arsm, dist, 1)


def test_arsm_is_its_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    """Term by term for two variables; swaps that are not centred would be unbiased as well."""
    problem = Problem("categoricals")
    noise = torch.randn(1, 2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    monkeypatch.setattr(arsm_module, "gumbel_like", lambda x, generator: noise)
    gradient = problem.moments(swor.arsm(problem.f, problem.dist, 1))[1:7].reshape(2, 3)
    pi = torch.softmax(-noise[0], -1)
    table = torch.empty(3, 3, dtype=torch.float64)
    for m, j in product(range(3), repeat=2):
        swapped = pi.clone()
        swapped[:, m], swapped[:, j] = pi[:, j], pi[:, m]
        x = (swapped * torch.exp(-problem.logits.detach())).argmin(-1)
        table[m, j] = problem.f(x.unsqueeze(0)).detach().squeeze()
    for i, m in product(range(2), range(3)):
        terms = [(table[m, j] - table[:, j].mean()) * (1 / 3 - pi[i, j]) for j in range(3)]
        torch.testing.assert_close(gradient[i, m], sum(terms))


def test_the_same_test_sees_a_wrong_scale_of_arsm(monkeypatch: pytest.MonkeyPatch) -> None:
    right = arsm_module.factors

    def scaled(dist: torch.distributions.Distribution, k: int) -> object:
        variables = right(dist, k)

        class Wrong(type(variables)):  # type: ignore[misc]
            def surrogate(self, cost: Tensor, gradient: Tensor) -> Tensor:
                return super().surrogate(cost, gradient / self.c)

        return Wrong(*variables)

    monkeypatch.setattr(arsm_module, "factors", scaled)
    with pytest.raises(AssertionError, match="z-scores"):
        assert_unbiased(swor.arsm, "categoricals", 1)


@pytest.mark.parametrize("common_noise", [True, False])
@pytest.mark.parametrize("dist", ["one_hot", "bernoulli", "one_hots", "bernoullis"])
def test_rebar_unbiased(dist: str, common_noise: bool) -> None:
    options = {"temperature": 0.7, "scale": 1.3, "common_noise": common_noise}
    assert_unbiased(partial(swor.rebar, **options), dist, 1)


@pytest.mark.parametrize("common_noise", [True, False])
@pytest.mark.parametrize("dist", ["categorical", "bernoulli", "categoricals", "square"])
def test_relax_unbiased(dist: str, common_noise: bool) -> None:
    options = {"control": quadratic_control, "common_noise": common_noise}
    assert_unbiased(partial(swor.relax, **options), dist, 1)


def without_its_argmax(
    log_probs: Tensor, index: Tensor, generator: torch.Generator | None
) -> Tensor:
    """The conditional Gumbel with each entry's own noise where that of the winner belongs."""
    log_probs = log_probs.expand(*index.shape, log_probs.shape[-1])
    g = coupling.gumbel_like(log_probs, generator)
    wrong = g - torch.nn.functional.softplus(-log_probs)
    return torch.where(torch.arange(3) == index.unsqueeze(-1), g, wrong)


def test_the_same_test_sees_a_wrong_conditional_gumbel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coupling, "conditional_gumbel", without_its_argmax)
    wrong = partial(swor.relax, control=quadratic_control, common_noise=False)
    with pytest.raises(AssertionError, match="z-scores"):
        assert_unbiased(wrong, "categoricals", 1)


def test_the_same_test_sees_a_missing_slope(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coupling, "_behind", torch.ones_like)
    with pytest.raises(AssertionError, match="z-scores"):
        assert_unbiased(partial(swor.rebar, temperature=0.7), "one_hots", 1)


def test_conditional_gumbel_keeps_its_argmax_and_its_law() -> None:
    generator = torch.Generator().manual_seed(0)
    log_probs = torch.tensor([0.7, 0.2, 0.1], dtype=torch.float64).log().expand(200_000, 3)
    z = log_probs + coupling.gumbel_like(log_probs, generator)
    winners = z.argmax(-1)
    again = coupling.conditional_gumbel(log_probs, winners, generator)
    assert torch.equal(again.argmax(-1), winners)
    for moment in (lambda x: x, torch.square, lambda x: x * x.roll(1, -1)):
        difference = moment(z) - moment(again)  # paired by the winner
        error = difference.std(0) / len(z) ** 0.5
        assert (difference.mean(0) / error).abs().max() < 4.0


def gradient_by_logits(estimate: Tensor, logits: Tensor) -> Tensor:
    return torch.autograd.grad(estimate.sum(), logits, retain_graph=True)[0]


@pytest.mark.parametrize("common_noise", [True, False])
def test_relax_trains_its_control_by_the_squared_gradient(common_noise: bool) -> None:
    torch.manual_seed(0)
    control = swor.ControlVariate(2, 3, hidden=(5,)).double()
    for parameter in control.parameters():
        torch.nn.init.normal_(parameter, std=0.3)

    def run() -> tuple[Tensor, Problem]:
        problem = Problem("one_hots", 4)
        generator = torch.Generator().manual_seed(1)
        options = {"control": control, "common_noise": common_noise}
        return swor.relax(problem.f, problem.dist, 1, **options, generator=generator), problem

    estimate, problem = run()
    by_bias, by_psi = torch.autograd.grad(
        estimate.sum(), [control.layers[0].bias, problem.psi], retain_graph=True
    )
    plain = swor.relax(problem.f, problem.dist, 1, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(by_psi, torch.autograd.grad(plain.sum(), problem.psi)[0])
    numeric = torch.empty_like(by_bias)
    for i in range(5):
        squares = []
        for step in (1e-5, -2e-5):
            with torch.no_grad():
                control.layers[0].bias[i] += step
            moved, at = run()
            squares.append(gradient_by_logits(moved, at.logits).square().sum())
        with torch.no_grad():
            control.layers[0].bias[i] += 1e-5
        numeric[i] = (squares[0] - squares[1]) / 2e-5
    torch.testing.assert_close(by_bias, numeric, rtol=1e-6, atol=1e-9)


def test_rebar_trains_temperature_and_scale_by_the_squared_gradient() -> None:
    def squared(temperature: float, scale: float) -> Tensor:
        problem = Problem("one_hots", 4)
        generator = torch.Generator().manual_seed(1)
        options = {"temperature": temperature, "scale": scale, "generator": generator}
        estimate = swor.rebar(problem.f, problem.dist, 1, **options)
        return gradient_by_logits(estimate, problem.logits).square().sum()

    problem = Problem("one_hots", 4)
    learned = [torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in (0.7, 1.3)]
    generator = torch.Generator().manual_seed(1)
    options = {"temperature": learned[0], "scale": learned[1], "generator": generator}
    estimate = swor.rebar(problem.f, problem.dist, 1, **options)
    *by, by_psi = torch.autograd.grad(estimate.sum(), [*learned, problem.psi])
    h = 1e-5
    numeric = [
        (squared(0.7 + h, 1.3) - squared(0.7 - h, 1.3)) / (2 * h),
        (squared(0.7, 1.3 + h) - squared(0.7, 1.3 - h)) / (2 * h),
    ]
    torch.testing.assert_close(torch.stack(by), torch.stack(numeric), rtol=1e-6, atol=1e-8)
    # The pathwise term is that of the outcome alone.
    generator = torch.Generator().manual_seed(1)
    plain = swor.relax(problem.f, problem.dist, 1, generator=generator)
    torch.testing.assert_close(by_psi, torch.autograd.grad(plain.sum(), problem.psi)[0])


def test_a_trained_control_variate_has_less_variance() -> None:
    torch.manual_seed(0)
    control = swor.ControlVariate(2, 3, hidden=(20,)).double()
    optimizer = torch.optim.Adam(control.parameters(), lr=0.02)

    def variance() -> float:
        problem = Problem("one_hots", 20_000)
        generator = torch.Generator().manual_seed(1)
        estimate = swor.relax(problem.f, problem.dist, 1, control=control, generator=generator)
        return float(gradient_by_logits(estimate, problem.logits).var(0).sum())

    before = variance()
    for _ in range(100):
        problem = Problem("one_hots", 64)
        optimizer.zero_grad()
        swor.relax(problem.f, problem.dist, 1, control=control).mean().backward()
        optimizer.step()
    assert variance() < 0.7 * before


@pytest.mark.parametrize("dist", ["one_hots", "bernoullis"])
@pytest.mark.parametrize("name", ["gumbel_softmax", "straight_through"])
def test_relaxations_are_biased(name: str, dist: str) -> None:
    z = z_scores(swor.ESTIMATORS[name], dist, 1, exact(dist))
    assert z[1:-1].max() > 10.0
    if name == "straight_through":  # only in the gradient by the logits
        assert max(z[0], z[-1]) < 4.0
    assert not swor.ESTIMATORS[name].unbiased


def test_reinmax_is_biased_and_exact_for_a_quadratic() -> None:
    bias = (expected(swor.reinmax, "one_hots", 1) - exact("one_hots")).abs()
    assert bias[1:-1].max() > 1e-3
    assert max(bias[0], bias[-1]) < 1e-12

    def quadratic(x: Tensor) -> Tensor:
        return x[..., 0] * x[..., 1] - 2.0 * x[..., 2].square() + 0.5 * x[..., 1]

    mean = expected(lambda f, dist, k: swor.reinmax(quadratic, dist, k), "one_hot", 1)
    problem = Problem("one_hot")
    target = problem.moments(swor.exact(quadratic, problem.dist))
    torch.testing.assert_close(mean, target, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["straight_through", "reinmax", "rebar", "relax"])
def test_the_value_is_that_of_outcomes(name: str) -> None:
    seen = []

    def f(x: Tensor) -> Tensor:
        seen.append(x.detach())
        return x.square().sum((-1, -2))

    dist = torch.distributions.OneHotCategorical(logits=torch.randn(50, 2, 3, requires_grad=True))
    value = swor.ESTIMATORS[name](f, torch.distributions.Independent(dist, 1), 3)
    assert torch.equal(value, torch.full((50,), 2.0))
    assert ((seen[0] == 0) | (seen[0] == 1)).all()
    assert (seen[0].sum(-1) == 1).all()


@pytest.mark.parametrize("name", ["gumbel_softmax", "straight_through"])
def test_a_temperature_can_be_learned(name: str) -> None:
    problem = Problem("one_hots", 3)
    log_temperature = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    options = {"temperature": log_temperature.exp()}
    getattr(swor, name)(problem.f, problem.dist, 2, **options).sum().backward()
    assert log_temperature.grad is not None
    assert log_temperature.grad.abs() > 0


@pytest.mark.parametrize("name", ["gumbel_softmax", "straight_through", "reinmax", "rebar", "arsm"])
def test_masked_categories_leave_no_nan(name: str) -> None:
    logits = torch.tensor([0.3, -torch.inf, 0.1], requires_grad=True)
    dist = torch.distributions.OneHotCategorical(logits=logits, validate_args=False)
    temperature = torch.tensor(0.5, requires_grad=True)
    options = {} if name == "arsm" else {"temperature": temperature}
    value = getattr(swor, name)(lambda x: (x * torch.arange(3.0)).sum(-1), dist, 4, **options)
    value.backward()
    assert value.isfinite() and logits.grad is not None and logits.grad.isfinite().all()
    assert logits.grad[1] == 0
    assert temperature.grad is None or temperature.grad.isfinite()


@pytest.mark.parametrize("k", [1, 2, 3])
def test_vimco_unbiased_for_its_objective(k: int) -> None:
    def objective(problem: Problem) -> Tensor:
        draws = torch.cartesian_prod(*[torch.arange(3)] * k).reshape(-1, k)
        log_p = problem.dist.logits[draws].sum(-1)
        bound = problem.f(draws).logsumexp(-1) - math.log(k)
        return (log_p.exp() * bound).sum()

    problem = Problem("categorical")
    mean = expected(swor.vimco, "categorical", k)
    torch.testing.assert_close(mean, problem.moments(objective(problem)), rtol=0, atol=1e-12)
    if k > 1:
        assert (mean - exact("categorical")).abs().max() > 1e-3


def test_the_baseline_of_vimco_absorbs_a_shift() -> None:
    gradients = []
    for shift in (0.0, 50.0):
        problem = Problem("categorical", 100)
        generator = torch.Generator().manual_seed(0)
        shifted = lambda x, f=problem.f, shift=shift: f(x) + shift  # noqa: E731
        estimate = swor.vimco(shifted, problem.dist, 4, generator=generator)
        gradients.append(problem.moments(estimate)[:, 1:])
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("name", ["stratified", "systematic"])
@pytest.mark.parametrize("k", [1, 2, 4])
def test_strata_unbiased_by_enumeration(name: str, k: int) -> None:
    from swor.diagnostics.enumeration import exact_moments

    problem = Problem("one_hot")
    rule, scheme = swor.ESTIMATORS[name].rule, swor.ESTIMATORS[name].scheme
    parameters = [problem.logits, problem.psi]
    moments = exact_moments(rule, scheme, problem.f, problem.dist, k, parameters)
    mean = torch.cat([moments.mean.reshape(1), moments.gradient])
    torch.testing.assert_close(mean, exact("one_hot"), rtol=0, atol=1e-12)
    replaced = exact_moments(
        swor.reinforce_no_baseline, "with_replacement", problem.f, problem.dist, k, parameters
    )
    assert moments.variance <= replaced.variance + 1e-12


@pytest.mark.parametrize("name", ["stratified", "systematic"])
def test_strata_are_drawn_as_enumerated(name: str) -> None:
    assert_unbiased(swor.ESTIMATORS[name], "bernoullis", 3)
    p = torch.tensor([0.13, 0.0, 0.52, 0.35])
    sampler = swor.stratified_sample if name == "stratified" else swor.systematic_sample
    value = sampler(p.log().expand(1000, 4), 10, generator=torch.Generator().manual_seed(0)).value
    copies = torch.nn.functional.one_hot(value, 4).sum(-2)
    # From 1.3 to 6.5 in strata: four whole ones, and a part of two.
    assert copies[:, 2].unique().tolist() == ([4, 5, 6] if name == "stratified" else [5, 6])
    assert (copies[:, 1] == 0).all()


def test_positions_at_the_edges_of_outcomes_are_possible_outcomes() -> None:
    p = torch.tensor([0.0, 0.5, 0.0, 0.5, 0.0])
    positions = torch.tensor([0.0, 0.49, 0.5, 1.0])  # the last is what rounding may make of 1 - u
    assert strata.invert(p, positions).tolist() == [1, 1, 3, 3]


def test_disarm_never_has_more_variance_than_arm() -> None:
    variances = []
    for estimate in (swor.disarm, swor.arm):
        problem = Problem("square", 50_000)
        generator = torch.Generator().manual_seed(0)
        moments = problem.moments(estimate(problem.f, problem.dist, 1, generator=generator))
        variances.append(moments[:, 1:-1].var(0))
    assert (variances[0] < variances[1]).all()


def test_undefined_distributions_are_refused_by_name() -> None:
    problem = Problem("categorical")
    with pytest.raises(TypeError, match="OneHotCategorical"):
        swor.gumbel_softmax(problem.f, problem.dist, 1)
    with pytest.raises(TypeError, match="use arsm"):
        swor.disarm(problem.f, problem.dist, 1)
    with pytest.raises(ValueError, match="positive"):
        swor.straight_through(problem.f, Problem("one_hot").dist, 1, temperature=0.0)
    with pytest.raises(ValueError, match="evaluations"):
        swor.ESTIMATORS["arsm"].evaluations(1)
    with pytest.raises(ValueError, match="k is 4"):
        swor.local_unordered_set(problem.f, problem.dist, 4)
    with pytest.raises(ValueError, match="Use relax with a ControlVariate"):
        swor.rebar(lambda x: (x[..., 0] > 0.5).double(), Problem("one_hot").dist, 1)
    with pytest.raises(ValueError, match="the cost has shape"):
        swor.arsm(lambda x: x.sum(), Problem("bernoullis").dist, 1)


@pytest.mark.parametrize(
    ("dist", "dtype"),
    [
        *((dist, torch.float64) for dist in DISTRIBUTIONS),
        *(
            (dist, dtype)
            for dist in ("one_hot", "square")
            for dtype in (torch.bfloat16, torch.float32)
        ),
    ],
    ids=str,
)
@pytest.mark.parametrize("name", swor.ESTIMATORS)
def test_contract(name: str, dist: str, dtype: torch.dtype) -> None:
    entry = swor.ESTIMATORS[name]
    for batch in ((), (2, 3)):
        for k in (1, 2):
            problem = Problem(dist, *batch, dtype=dtype)
            counted = 0

            def f(x: Tensor, problem: Problem = problem) -> Tensor:
                nonlocal counted
                cost = problem.f(x)
                counted += cost.shape[-1]
                return cost

            if not entry.defined_for(problem.dist):
                with pytest.raises(TypeError, match=name):
                    entry(f, problem.dist, k)
                continue
            estimate = entry(f, problem.dist, k, generator=torch.Generator().manual_seed(0))
            assert estimate.shape == batch and estimate.dtype == dtype
            assert counted == entry.evaluations(k, problem.dist)
            assert problem.moments(estimate).isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", swor.ESTIMATORS)
def test_low_entropy(name: str, dtype: torch.dtype) -> None:
    entry = swor.ESTIMATORS[name]
    for dist in ("one_hots", "bernoullis"):
        logits = 40.0 * DISTRIBUTIONS[dist][0].sign()
        problem = Problem(dist, 20, dtype=dtype, logits=logits)
        if not entry.defined_for(problem.dist):
            continue
        for k in (1, 2):
            estimate = entry(problem.f, problem.dist, k)
            assert problem.moments(estimate).isfinite().all()


@pytest.mark.parametrize(
    "name", ["gumbel_softmax", "straight_through", "rebar", "relax", "arm", "disarm", "arsm"]
)
def test_noise_is_per_batch_element(name: str) -> None:
    problem = Problem("square", 4, 500)
    estimate = swor.ESTIMATORS[name](problem.f, problem.dist, 1)
    gradient = problem.moments(estimate)[..., 1:]
    assert (gradient.std(1) > 0).all()
    assert (gradient.std(0).mean(0) > 0).all()


def test_seeds_decide_everything() -> None:
    for name, entry in swor.ESTIMATORS.items():
        problem = Problem("square", 5)
        if entry.defined_for(problem.dist):
            runs = [
                entry(problem.f, problem.dist, 2, generator=torch.Generator().manual_seed(3))
                for _ in range(2)
            ]
            assert torch.equal(*runs), name
