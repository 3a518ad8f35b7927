"""The mathematics of sampling without replacement."""

from __future__ import annotations

import math
from functools import partial

import mpmath as mp
import pytest
import torch
from ratios_reference import two_levels
from torch.utils._python_dispatch import TorchDispatchMode

import swor
from swor.math import ratios
from swor.math._interface import interior

METHODS = ["orderings", "subsets", "integral"]


def random_set(k, n, seed=0, scale=2.0, batch=(3, 2), dtype=torch.float64):
    g = torch.Generator().manual_seed(seed)
    log_probs = (scale * torch.randn(*batch, n, generator=g, dtype=dtype)).log_softmax(-1)
    return log_probs[..., :k], log_probs[..., k:].logsumexp(-1)


def measured(log_a, na, log_b, nb, log_rest, dtype, method):
    """Our logs for a set of two levels, and the reference for the inputs as rounded."""
    log_p = torch.tensor([log_a] * na + [log_b] * nb, dtype=torch.float64).to(dtype)
    rest = torch.tensor(log_rest, dtype=torch.float64).to(dtype)
    r, r2 = swor.leave_one_out(log_p, rest, second_order=True, method=method)
    ours = {"set": swor.log_prob_set(log_p, rest, method=method)}
    if na:
        ours["a"] = r[0]
    if nb:
        ours["b"] = r[-1]
    if na > 1:
        ours["aa"] = r2[0, 1]
    if nb > 1:
        ours["bb"] = r2[-1, -2]
    if na and nb:
        ours["ab"], ours["ba"] = r2[0, -1], r2[-1, 0]
    exact = two_levels(log_p[0].item(), na, log_p[-1].item(), nb, rest.item())
    return ours, exact


def worst_error(ours, exact):
    """The largest relative error of a ratio; of log p(S), relative to its own size beyond 1."""
    errors = []
    for name, value in ours.items():
        difference = abs(float(mp.mpf(value.item()) - exact[name]))
        scale = max(1.0, abs(float(exact[name]))) if name == "set" else 1.0
        errors.append(difference / scale)
    return max(errors)


LEVELS = [
    (1 - 1e-9, 1e-150, 1e-9),
    (0.5, 0.01, 1.0),
    (0.3, 1e-30, 1e-50),
    (1e-50, 1e-150, 1.0),
    (1e-2, 1e-9, 1e-20),
    (1e-150, 1e-3, 1e-3),
    (0.9, 1e-50, 1e-50),
]


@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-12), (torch.float32, 2e-5)])
@pytest.mark.parametrize("k", [1, 2, 3, 5, 8, 9, 16, 64])
def test_accuracy_against_many_digits(k, dtype, tolerance):
    methods = ["auto", "integral"] + (["subsets"] if k <= 12 else [])
    for a, b, rest in LEVELS:
        for na in sorted({k, k // 2, 1}):
            for method in methods:
                if k == 1 and method == "integral":
                    continue  # covered by the subsets: one factor, no pair
                ours, exact = measured(
                    math.log(a), na, math.log(b), k - na, math.log(rest), dtype, method
                )
                assert worst_error(ours, exact) <= tolerance, (a, b, rest, na, method)


@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-12), (torch.float32, 2e-5)])
@pytest.mark.parametrize("k", [11, 64, 256])
def test_the_bracket_fits_wherever_the_integrand_rises(k, dtype, tolerance):
    """It rises where the clocks of the sample ring, long before the first one outside rings."""
    for log_a, log_b in ((3, 3), (7, 0), (10, 8), (15.5, -3), (20, 0), (30, 14), (36, 3)):
        for na in (k, k // 2, 1):
            ours, exact = measured(float(log_a), na, float(log_b), k - na, 0.0, dtype, "integral")
            assert worst_error(ours, exact) <= tolerance, (log_a, log_b, na)


@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-12), (torch.float32, 2e-5)])
@pytest.mark.parametrize("k", [256, 1000])
def test_accuracy_of_large_sets(k, dtype, tolerance):
    for a, b, rest in LEVELS[:4]:
        ours, exact = measured(math.log(a), 3, math.log(b), k - 3, math.log(rest), dtype, "auto")
        assert worst_error(ours, exact) <= tolerance, (a, b, rest)


@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-12), (torch.float32, 2e-5)])
@pytest.mark.parametrize("n", [1e6, 1e20])
@pytest.mark.parametrize("k", [1, 2, 7, 16, 256])
def test_uniform_has_a_closed_form(k, n, dtype, tolerance):
    log_p = torch.full((k,), -math.log(n), dtype=dtype)
    total = log_p.exp().double()[0]  # the probability as rounded
    log_rest = torch.log1p(-k * total).to(dtype)
    r, r2 = swor.leave_one_out(log_p, log_rest, second_order=True)
    exact = torch.tensor(n / k, dtype=torch.float64).log()
    slack = abs(float(log_p.double()[0]) + math.log(n)) + tolerance
    assert (r.double() - exact).abs().max() <= slack
    if k > 1:
        off = ~torch.eye(k, dtype=torch.bool)
        assert (r2.double()[off] - math.log((n - 1) / (k - 1))).abs().max() <= slack


def test_spread_over_150_orders_of_magnitude_agrees():
    log_p = -torch.linspace(0.1, 345.0, 12, dtype=torch.float64)
    for log_rest in (0.0, -20.0, -115.0):
        rest = torch.tensor(log_rest, dtype=torch.float64)
        by_subsets = swor.leave_one_out(log_p, rest, second_order=True, method="subsets")
        by_integral = swor.leave_one_out(log_p, rest, second_order=True, method="integral")
        for x, y in zip(by_subsets, by_integral, strict=True):
            assert (x - y).abs().max() <= 1e-12


@pytest.mark.parametrize("k", [1, 2, 3, 5])
@pytest.mark.parametrize("method", ["subsets", "integral"])
def test_agrees_with_brute_force(k, method):
    for scale in (0.1, 3.0, 20.0):
        log_p, log_rest = random_set(k, 7, scale=scale)
        exact = swor.leave_one_out(log_p, log_rest, second_order=True, method="orderings")
        ours = swor.leave_one_out(log_p, log_rest, second_order=True, method=method)
        for x, y in zip(ours, exact, strict=True):
            assert (x - y).abs().max() <= 1e-12
        set_exact = swor.log_prob_set(log_p, log_rest, method="orderings")
        set_ours = swor.log_prob_set(log_p, log_rest, method=method)
        assert (set_ours - set_exact).abs().max() <= 1e-12 * set_exact.abs().max().clamp(min=1)


@pytest.mark.parametrize("method", METHODS)
def test_the_definition_of_the_ratio(method):
    """R(S, s) is the probability of the smaller set in the smaller domain, over that of S."""
    log_p, log_rest = random_set(4, 7, batch=())
    r, r2 = swor.leave_one_out(log_p, log_rest, second_order=True, method=method)
    whole = swor.log_prob_set(log_p, log_rest, method=method)
    for s in range(4):
        others = [i for i in range(4) if i != s]
        without = swor.log_prob_set(log_p[others], log_rest, method=method)
        assert torch.allclose(r[s], without - whole, rtol=0, atol=1e-12)
        inner = swor.leave_one_out(log_p[others], log_rest, method=method)
        assert torch.allclose(r2[s, others], inner, rtol=0, atol=1e-12)
        assert r2[s, s] == 0


@pytest.mark.parametrize("k", [1, 3, 8, 9, 40])
def test_weights_and_rows_sum_to_one(k):
    log_p, log_rest = random_set(k, 50, scale=4.0)
    r, r2 = swor.leave_one_out(log_p, log_rest, second_order=True)
    assert torch.allclose((r + log_p).exp().sum(-1), torch.ones(3, 2, dtype=torch.float64))
    if k > 1:
        rows = (r2 + log_p.unsqueeze(-2)).exp().sum(-1)
        assert torch.allclose(rows, torch.ones_like(rows), rtol=0, atol=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_the_whole_domain_has_ratios_of_exactly_one(method):
    log_p = torch.randn(3, 5, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
    nothing = torch.full((3,), -torch.inf)
    r, r2 = swor.leave_one_out(log_p, nothing, second_order=True, method=method)
    assert (r == 0).all() and (r2 == 0).all()
    assert (swor.log_prob_set(log_p, nothing, method=method) == 0).all()


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-6)])
@pytest.mark.parametrize("method", METHODS)
def test_an_impossible_outcome_drops_out(method, dtype, tolerance):
    log_p = torch.tensor([0.4, 0.0, 0.2, 0.0], dtype=dtype).log()
    log_rest = torch.tensor(0.4, dtype=dtype).log()
    r, r2 = swor.leave_one_out(log_p, log_rest, second_order=True, method=method)
    kept = torch.tensor([0, 2])
    small, small2 = swor.leave_one_out(log_p[kept], log_rest, second_order=True)
    assert torch.allclose(r[kept], small, rtol=0, atol=tolerance)
    assert torch.allclose(r2[kept][:, kept], small2, rtol=0, atol=tolerance)
    assert r.isfinite().all() and r2.isfinite().all()
    assert swor.log_prob_set(log_p, log_rest, method=method) == -torch.inf
    assert swor.log_prob_ordered(log_p, log_rest) == -torch.inf


def test_the_rest_is_derived_or_normalised_with_the_sample():
    log_p, log_rest = random_set(3, 6)
    derived = swor.leave_one_out(log_p)
    shifted = swor.leave_one_out(log_p + 5.0, log_rest + 5.0)
    exact = swor.leave_one_out(log_p, log_rest)
    assert torch.allclose(derived, exact, rtol=0, atol=1e-12)
    assert torch.allclose(shifted, exact, rtol=0, atol=1e-12)
    for function in (swor.log_prob_ordered, swor.log_prob_set):
        exact = function(log_p, log_rest)
        assert torch.allclose(function(log_p), exact, rtol=0, atol=1e-12)
        assert torch.allclose(function(log_p + 5.0, log_rest + 5.0), exact, rtol=0, atol=1e-12)


def test_set_probabilities_sum_to_one():
    log_probs = torch.randn(6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    log_probs = log_probs.log_softmax(-1)
    for k in range(1, 7):
        sets = torch.combinations(torch.arange(6), k)
        total = swor.log_prob_set(log_probs[sets]).exp().sum()
        assert abs(total - 1) <= 1e-12


def test_log_probabilities_are_differentiable():
    log_p, log_rest = random_set(3, 6, batch=())
    log_p, log_rest = log_p.requires_grad_(), log_rest.requires_grad_()
    assert torch.autograd.gradcheck(swor.log_prob_ordered, (log_p, log_rest))
    for method in ("subsets", "integral"):
        assert torch.autograd.gradcheck(
            lambda p, r, method=method: swor.log_prob_set(p, r, method=method), (log_p, log_rest)
        )


def test_ratios_are_constants():
    log_p, log_rest = random_set(3, 6)
    r, r2 = swor.leave_one_out(log_p.requires_grad_(), log_rest, second_order=True)
    assert not r.requires_grad and not r2.requires_grad


@pytest.mark.parametrize("k", [4, 12])
def test_compiles_without_a_break_and_agrees(k):
    log_p, log_rest = random_set(k, 20, dtype=torch.float32)

    def ratios(log_p, log_rest):
        return swor.leave_one_out(log_p, log_rest, second_order=True)

    compiled = torch.compile(ratios, fullgraph=True)(log_p, log_rest)
    for x, y in zip(compiled, ratios(log_p, log_rest), strict=True):
        assert torch.allclose(x, y, rtol=0, atol=1e-5)


def test_large_batches_go_in_blocks_that_change_nothing(monkeypatch):
    blocks = []

    def counted(*block):
        blocks.append(block)
        return interior(*block)

    for k in (1, 4, 12):
        log_p, log_rest = random_set(k, 20, batch=(5, 7))
        sample = swor.Sample(log_p, log_p, log_rest, scheme="without_replacement")

        def numbers(log_p=log_p, log_rest=log_rest, sample=sample):
            weights = swor.unordered_set(sample)
            p = log_p.clone().requires_grad_()
            log_prob = swor.log_prob_set(p, log_rest)
            gradient = torch.autograd.grad(log_prob.square().sum(), p)
            ratios = swor.leave_one_out(log_p, log_rest, second_order=True)
            baseline = [] if weights.baseline_weights is None else [weights.baseline_weights]
            return [
                *ratios,
                swor.leave_one_out(log_p),
                log_prob,
                *gradient,
                weights.weight,
                *baseline,
            ]

        whole = numbers()
        for size in (1, 3 * 4 * 2**4, 3 * 12 * 800):
            with monkeypatch.context() as patch:
                patch.setattr("swor.math._blocks.CACHED", size)
                patch.setattr(ratios, "interior", counted)
                for x, y in zip(numbers(), whole, strict=True):
                    torch.testing.assert_close(x, y, rtol=1e-12, atol=1e-12)
        assert len(blocks) > 35
        blocks.clear()


@pytest.mark.parametrize("k", [2, 5, 12])
@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-12), (torch.float32, 5e-5)])
def test_weights_are_probabilities_times_ratios(k, dtype, tolerance):
    """They are computed without logarithms, and have all their digits in the extremes as well."""
    for a, b, rest in LEVELS:
        p = torch.tensor([a] * (k // 2) + [b] * (k - k // 2), dtype=torch.float64)
        total = p.sum() + rest
        log_p, log_rest = (p / total).log().to(dtype), (rest / total).log().to(dtype)
        r, r2 = swor.leave_one_out(log_p.double(), log_rest.double(), second_order=True)
        weights = swor.unordered_set(
            swor.Sample(log_p, log_p, log_rest, scheme="without_replacement")
        )
        tiny = 1e-37 if dtype == torch.float32 else 1e-290
        for ours, exact in (
            (weights.weight, (log_p.double() + r).exp()),
            (weights.baseline_weights, (log_p.double() + r2).exp()),
        ):
            assert (ours.double() - exact).abs().le(tolerance * exact + tiny).all(), (a, b, rest)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("batch", [(0,), (2, 0), (0, 3)])
def test_an_empty_batch(method, batch):
    log_p, log_rest = torch.zeros(*batch, 3), torch.zeros(*batch)
    r, r2 = swor.leave_one_out(log_p, log_rest, second_order=True, method=method)
    assert r.shape == (*batch, 3) and r2.shape == (*batch, 3, 3)
    assert swor.log_prob_set(log_p, log_rest, method=method).shape == batch


@pytest.mark.parametrize("k", [1, 3, 12])
def test_without_any_mass_all_weights_are_zero(k):
    log_p, log_rest = torch.full((2, k), -torch.inf), torch.full((2,), -torch.inf)
    log_p[1] = -math.log(k)
    weights = swor.unordered_set(swor.Sample(log_p, log_p, log_rest, scheme="without_replacement"))
    assert (weights.weight[0] == 0).all()
    torch.testing.assert_close(weights.weight[1], torch.full((k,), 1 / k))
    if k > 1:
        assert (weights.baseline_weights[0] == 0).all()
    assert all((x == 0).all() for x in swor.leave_one_out(log_p, log_rest, second_order=True))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("shift", [-900.0, 900.0])
def test_impossible_outcomes_of_unnormalised_sets(method, shift):
    log_p = torch.tensor([0.4, 0.0, 0.2], dtype=torch.float64).log()
    log_rest = torch.tensor(0.4, dtype=torch.float64).log()
    exact = swor.leave_one_out(log_p, log_rest, second_order=True, method=method)
    ours = swor.leave_one_out(log_p + shift, log_rest + shift, second_order=True, method=method)
    for x, y in zip(ours, exact, strict=True):
        torch.testing.assert_close(x, y, rtol=0, atol=3e-12)


@pytest.mark.parametrize("method", ["subsets", "integral"])
def test_edge_cases_have_finite_gradients(method):
    log_p = torch.tensor([[0.4, 0.0, 0.2], [0.5, 0.3, 0.2]], dtype=torch.float64).log()
    log_rest = torch.tensor([0.4, 0.0], dtype=torch.float64).log()
    log_p, log_rest = log_p.requires_grad_(), log_rest.requires_grad_()
    log_prob = swor.log_prob_set(log_p, log_rest, method=method)
    gradients = torch.autograd.grad(log_prob[1], (log_p, log_rest))
    assert all(x.isfinite().all() for x in gradients)


def test_compiles_for_any_k():
    """The tables of the recursion are constants of the graph, also where k is dynamic."""

    def ratios(log_p, log_rest):
        return swor.leave_one_out(log_p, log_rest, second_order=True)

    compiled = torch.compile(ratios, fullgraph=True, backend="eager")
    for k in (4, 2, 8):
        log_p, log_rest = random_set(k, 20)
        for x, y in zip(compiled(log_p, log_rest), ratios(log_p, log_rest), strict=True):
            torch.testing.assert_close(x, y)


class NoFloat32Product(TorchDispatchMode):
    """Refuses products of float32 matrices, which some settings round before they are multiplied."""

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        if str(function).split(".")[1] in ("mm", "bmm", "addmm", "baddbmm"):
            assert all(x.dtype == torch.float64 for x in arguments if isinstance(x, torch.Tensor))
        return function(*arguments, **(options or {}))


@pytest.mark.parametrize("setting", ["high", "medium"])
@pytest.mark.parametrize("k", [4, 16])
def test_lower_precision_of_products_is_not_used(setting, k):
    log_p, rest = random_set(k, 2 * k, dtype=torch.float32)
    expected = swor.leave_one_out(log_p, rest, second_order=True)
    torch.set_float32_matmul_precision(setting)
    try:
        with NoFloat32Product():
            found = swor.leave_one_out(log_p, rest, second_order=True)
    finally:
        torch.set_float32_matmul_precision("highest")
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_lower_precision_for_one_backend_is_noticed(monkeypatch):
    def mixed():
        raise RuntimeError("mix of the legacy and new APIs")

    monkeypatch.setattr(torch, "get_float32_matmul_precision", mixed)
    with NoFloat32Product():
        ratios.first_and_second_draw(*random_set(4, 8, dtype=torch.float32))


@pytest.mark.parametrize("log_rest", [None, torch.tensor(-torch.inf, dtype=torch.float64)])
@pytest.mark.parametrize(
    "log_prob",
    [
        swor.log_prob_ordered,
        swor.log_prob_set,
        partial(swor.log_prob_set, method="integral"),
        partial(swor.log_prob_set, method="orderings"),
    ],
)
def test_the_gradient_of_a_whole_domain_is_that_of_its_logits(log_prob, log_rest):
    """The derivative by a mass outside that is 0 is infinite, and no parameter of a policy changes it."""
    logits = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64).log().requires_grad_()

    def of_logits(logits):
        return log_prob(logits.log_softmax(-1), log_rest)

    (gradient,) = torch.autograd.grad(of_logits(logits), logits)
    step = 1e-5 * torch.eye(3, dtype=torch.float64)
    with torch.no_grad():
        differences = [(of_logits(logits + h) - of_logits(logits - h)) / 2e-5 for h in step]
    torch.testing.assert_close(gradient, torch.stack(differences), rtol=0, atol=1e-6)
