"""Exact moments, streaming moments and comparisons."""

from __future__ import annotations

import math
import runpy
import subprocess
import sys
from io import StringIO
from pathlib import Path

import mpmath
import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Bernoulli, Categorical, Independent, OneHotCategorical

import swor
from swor.diagnostics import bias, enumeration
from swor.diagnostics.enumeration import ExactMoments, exact_moments
from swor.diagnostics.samples import all_samples, threshold_nodes
from swor.diagnostics.streaming import start, update
from swor.diagnostics.variance import GradientMoments, gradient_moments
from swor.estimators.sums import sum_and_sample
from swor.types import Sample, Scheme, Weights

WITHOUT, WITH, TOP = Scheme.WITHOUT_REPLACEMENT, Scheme.WITH_REPLACEMENT, Scheme.TOP_K_AND_SAMPLE
PROBABILITIES = (0.4, 0.25, 0.2, 0.1, 0.05)
COSTS = torch.tensor([1.0, -0.5, 2.0, 0.3, 4.0], dtype=torch.float64)


def cost(index: Tensor) -> Tensor:
    return COSTS[index]


def logits(probabilities: tuple[float, ...] = PROBABILITIES) -> Tensor:
    return torch.tensor(probabilities, dtype=torch.float64).log().requires_grad_()


def moments(rule, scheme, k, **options) -> ExactMoments:
    parameter = logits()
    return exact_moments(
        rule, scheme, cost, Categorical(logits=parameter), k, [parameter], **options
    )


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# All samples


@pytest.mark.parametrize("scheme", [WITH, WITHOUT, TOP])
@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("k", [1, 2, 4, 5])
def test_probabilities_of_all_samples_sum_to_one(scheme: Scheme, ordered: bool, k: int) -> None:
    drawn = all_samples(logits().detach(), k, scheme, ordered=ordered)
    assert float(drawn.probability.sum()) == pytest.approx(1.0, abs=1e-13)


def test_impossible_outcomes_are_not_drawn() -> None:
    log_probs = torch.tensor([0.5, 0.0, 0.3, 0.2], dtype=torch.float64).log()
    for scheme in (WITH, WITHOUT, TOP):
        drawn = all_samples(log_probs, 2, scheme)
        assert not (drawn.sample.value == 1).any()
        assert float(drawn.probability.sum()) == pytest.approx(1.0, abs=1e-13)


def test_beams_have_no_distribution() -> None:
    with pytest.raises(ValueError, match="not random"):
        all_samples(logits().detach(), 2, Scheme.BEAM_SEARCH)


# Rules do not change when orders or thresholds that they do not look at are left out


@pytest.mark.parametrize(
    ("rule", "scheme", "options"),
    [
        (swor.reinforce, WITH, {"ordered": False}),
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


# Sampled baselines


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


@pytest.mark.parametrize("baseline", ["sampled", "shared"])
@pytest.mark.parametrize(
    ("rule", "scheme"),
    [
        (swor.reinforce, WITH),
        (swor.sum_and_sample, WITHOUT),
        (swor.deterministic_sum_and_sample, TOP),
    ],
)
def test_sampled_baselines_agree_with_brute_force(rule, scheme: Scheme, baseline) -> None:
    mean, covariance = brute_force_with_fresh_baselines(
        rule, scheme, 3, shared=baseline == "shared"
    )
    m = moments(rule, scheme, 3, baseline=baseline)
    torch.testing.assert_close(m.gradient, mean, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(m.covariance, covariance, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(m.gradient_bias, torch.zeros_like(mean), rtol=0.0, atol=1e-14)


# The importance-weighted estimator


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


def test_thresholds_integrate_to_the_set_probability() -> None:
    log_p = logits().detach()[:2].unsqueeze(0)
    log_rest = torch.tensor([0.35], dtype=torch.float64).log()
    x, share = threshold_nodes(log_p, log_rest)
    torch.testing.assert_close(share.sum(-1), torch.ones(1).double())
    mean_t = (share * x.exp()).sum()  # of min over the rest, given the two came first
    p1, p2, rest = 0.4, 0.25, 0.35
    second = 1 / rest - rest / (rest + p1) ** 2 - rest / (rest + p2) ** 2 + rest
    first = 1 - rest / (rest + p1) - rest / (rest + p2) + rest
    assert float(mean_t) == pytest.approx(second / first, rel=1e-12)


# The theorems


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


# Streaming


@pytest.mark.parametrize("sizes", [(100,), (1, 99), (50, 3, 47), (2,) * 50])
def test_streams_agree_with_two_passes(sizes: tuple[int, ...]) -> None:
    x = 1e4 + torch.randn(100, 3, dtype=torch.float64, generator=generator())
    stream = start(3)
    for chunk in x.split(sizes):
        stream = update(stream, chunk)
    torch.testing.assert_close(stream.mean, x.mean(0))
    torch.testing.assert_close(stream.variance, x.var(0), rtol=1e-9, atol=0.0)
    torch.testing.assert_close(stream.total, x.var(0).sum(), rtol=1e-9, atol=0.0)


def test_standard_errors_of_variances_are_right() -> None:
    """The errors of many streams have the spread that each of them claims."""
    x = torch.randn(400, 300, 2, dtype=torch.float64, generator=generator()) ** 3
    streams = [update(start(2), chunk) for chunk in x]
    spread = torch.stack([s.variance for s in streams]).std(0)
    claimed = torch.stack([s.variance_error for s in streams]).square().mean(0).sqrt()
    torch.testing.assert_close(claimed, spread, rtol=0.15, atol=0.0)
    spread = torch.stack([s.total for s in streams]).std()
    claimed = torch.stack([s.total_error for s in streams]).square().mean().sqrt()
    torch.testing.assert_close(claimed, spread, rtol=0.15, atol=0.0)


# gradient_moments


NAMES = ["unordered_set", "reinforce", "sum_and_sample", "deterministic_sum_and_sample"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("method", ["batch", "loop"])
def test_measured_moments_are_the_exact_ones(name: str, method) -> None:
    entry = swor.ESTIMATORS[name]
    exact = moments(entry.rule, entry.scheme, 3)
    parameter = logits()
    repeats = 20_000 if method == "batch" else 500
    m = gradient_moments(
        name, cost, Categorical(logits=parameter), [parameter], k=3, repeats=repeats,
        generator=generator(1), method=method,
    )  # fmt: skip
    assert m.method == method
    assert m.repeats == repeats
    assert bool(((m.mean - exact.gradient).abs() < 4.5 * m.mean_error).all())
    variance = exact.covariance.diagonal()
    assert bool(((m.variance - variance).abs() < 4.5 * m.variance_error).all())
    assert abs(float(m.trace - exact.total_variance)) < 4.0 * float(m.trace_error)
    assert abs(float(m.value - exact.mean)) < 4.0 * float(m.value_error)


class Encoder(nn.Module):
    """Two binary variables for each of three records."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 2, dtype=torch.float64)
        self.decoder = nn.Linear(2, 1, dtype=torch.float64)
        for i, parameter in enumerate(self.parameters()):
            nn.init.normal_(parameter, generator=generator(i))
        self.x = torch.randn(3, 4, dtype=torch.float64, generator=generator(9))

    def dist(self) -> Independent:
        return Independent(Bernoulli(logits=self.linear(self.x)), 1)

    def cost(self, value: Tensor) -> Tensor:
        return self.decoder(value).squeeze(-1).square() + value[..., 0] * self.x[:, :1]


def test_auto_chooses_by_what_f_allows() -> None:
    model = Encoder()

    def method(f, parameters, estimator="unordered_set") -> str:
        return gradient_moments(
            estimator, f, model.dist(), parameters, k=2, repeats=4, generator=generator()
        ).method

    encoder = list(model.linear.parameters())
    assert method(model.cost, encoder) == "batch"
    assert method(model.cost, model.parameters()) == "loop"  # f has parameters
    assert method(lambda v: model.cost(v.reshape(3, -1, 2)), encoder) == "loop"  # one batch axis
    assert method(lambda v: v[..., 0] - v[..., 0].mean(), encoder) == "loop"  # mixes the batch
    own = swor.ESTIMATORS["unordered_set"].estimate
    assert method(model.cost, encoder, own) == "loop"  # an unknown estimator
    assert method(model.cost, encoder, "reinforce_batch_mean") == "loop"


@pytest.mark.parametrize("kind", ["binary", "one_hot", "index", "scalar"])
def test_batch_and_loop_agree(kind: str) -> None:
    """Where nothing is random, at k = |D|, both are the exact gradient of the batch's mean."""
    table = torch.randn(2, 3, dtype=torch.float64, generator=generator()).requires_grad_()
    dist, k = {
        "binary": (Independent(Bernoulli(logits=table), 1), 8),
        "one_hot": (OneHotCategorical(logits=table), 3),
        "index": (Categorical(probs=table.softmax(-1)), 3),
        "scalar": (Bernoulli(logits=table.sum()), 2),
    }[kind]

    def f(value: Tensor) -> Tensor:
        value = value.double()
        return _polynomial(value) if dist.event_shape else (value + 0.3).square()

    loss = swor.exact(f, dist).mean()
    (true,) = torch.autograd.grad(loss, table, retain_graph=True)
    for method in ("batch", "loop"):
        m = gradient_moments("unordered_set", f, dist, [table], k=k, repeats=3, method=method)
        torch.testing.assert_close(m.mean, true.flatten(), rtol=1e-10, atol=1e-12)
        assert float(m.trace) < 1e-24
        assert float(m.value) == pytest.approx(loss.item())


def _polynomial(value: Tensor) -> Tensor:
    return (value * torch.arange(1.0, value.shape[-1] + 1).double()).sum(-1).square()


def test_memory_does_not_depend_on_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    largest = 0
    original = update

    def spy(stream, x):
        nonlocal largest
        largest = max(largest, x.numel())
        return original(stream, x)

    monkeypatch.setattr("swor.diagnostics.variance.update", spy)
    monkeypatch.setattr("swor.diagnostics.variance.NUMBERS", 1000)
    parameter = logits()
    for repeats in (500, 2000):
        gradient_moments(
            "reinforce", cost, Categorical(logits=parameter), [parameter], k=2, repeats=repeats
        )
        assert largest <= 1000


def test_bad_input_is_refused() -> None:
    parameter = logits()
    dist = Categorical(logits=parameter)
    with pytest.raises(ValueError, match=r"no estimator 'unordered'.*unordered_set"):
        gradient_moments("unordered", cost, dist, [parameter])
    with pytest.raises(ValueError, match="at least 2"):
        gradient_moments("unordered_set", cost, dist, [parameter], repeats=1)
    with pytest.raises(ValueError, match="parameters is empty"):
        gradient_moments("unordered_set", cost, dist, [])
    with pytest.raises(ValueError, match="expected 'auto', 'batch' or 'loop'"):
        gradient_moments("unordered_set", cost, dist, [parameter], method="fast")


# compare


def result(
    names=("unordered_set", "reinforce", "reinforce_sampled_baseline", "risk"), k=3, **options
):
    parameter = logits()
    return swor.compare(
        names, cost, Categorical(logits=parameter), parameters=[parameter], k=k,
        repeats=options.pop("repeats", 4000), generator=generator(3), **options,
    )  # fmt: skip


def test_compare_finds_bias_and_the_best() -> None:
    r = result()
    assert r.exact
    by_name = {row.name: row for row in r.rows}
    assert by_name["risk"].at_k.z > 6.0
    for name in ("unordered_set", "reinforce", "reinforce_sampled_baseline"):
        assert by_name[name].at_k.z < 4.0
    assert r.evaluations == 6  # what the fresh samples take
    assert by_name["reinforce"].at_evaluations.k == 6
    assert by_name["reinforce_sampled_baseline"].at_evaluations.k == 3
    assert by_name["unordered_set"].at_evaluations.k == 5  # the whole domain
    assert by_name["unordered_set"].at_evaluations.log_variance == -math.inf
    assert r.recommend().startswith("Use unordered_set with k = 5: no sign of bias, no variance")


def test_compare_agrees_with_exact_variances() -> None:
    r = result(("unordered_set", "reinforce"), repeats=20_000, evaluations=3)
    for row in r.rows:
        entry = swor.ESTIMATORS[row.name]
        exact = math.log(float(moments(entry.rule, entry.scheme, 3).total_variance))
        assert abs(row.at_k.log_variance - exact) < 4.0 * row.at_k.log_variance_error
        assert row.at_evaluations is row.at_k


def test_compare_without_enumeration(monkeypatch: pytest.MonkeyPatch) -> None:
    """A domain that is too large: against the mean of the other unbiased ones."""
    monkeypatch.setattr(bias, "SMALL_DOMAIN", 1)
    r = result(repeats=20_000)
    by_name = {row.name: row for row in r.rows}
    assert not r.exact
    assert by_name["risk"].at_k.z > 6.0
    assert all(row.at_k.z < 4.0 for row in r.rows if row.name != "risk")
    alone = result(("reinforce",))
    assert math.isnan(alone.rows[0].at_k.z)


def test_compare_takes_callables_and_counts_their_evaluations() -> None:
    def wasteful(f, dist, k, /, *, generator=None):
        f(torch.zeros(7, dtype=torch.long))
        return 1.3 * swor.ESTIMATORS["unordered_set"](f, dist, k, generator=generator)

    r = result({"wasteful": wasteful, "unordered_set": swor.ESTIMATORS["unordered_set"]}, k=2)
    row = r.rows[0]
    assert row.unbiased is None
    assert row.at_k.evaluations == 9
    assert row.at_k.z > 6.0  # a gradient 30 % too large
    assert "wasteful" not in r.recommend()


def test_compare_leaves_out_what_does_not_apply() -> None:
    r = result(("unordered_set", "disarm"))
    assert [row.name for row in r.rows] == ["unordered_set"]
    assert "disarm" in r.left_out
    assert "disarm" in str(r)
    with pytest.raises(ValueError, match="no estimator is left"):
        result(("disarm",))


def test_the_largest_of_many_comparisons_is_judged_as_such() -> None:
    g = torch.randn(200, 5000, dtype=torch.float64, generator=generator())
    s = update(start(5000), g)
    m = GradientMoments(
        s.mean, s.mean_error, s.variance, s.variance_error, s.total, s.total_error,
        s.mean[0], s.mean_error[0], s.variance[0], 200, "loop",
    )  # fmt: skip
    zero = torch.zeros(5000, dtype=torch.float64)
    assert bias.z_score(m, bias.Reference(zero, zero), 1e-16) < 4.0
    off = zero.clone()
    off[17] = 0.6
    assert bias.z_score(m, bias.Reference(off, zero), 1e-16) > 4.0


def test_comparison_as_text_table_frame_and_plot() -> None:
    pytest.importorskip("rich")
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure
    from rich.console import Console

    r = result(repeats=200)
    assert "unordered_set" in str(r)
    assert "-inf" in str(r)
    console = Console(width=150, record=True, file=StringIO())
    console.print(r)
    assert "reinforce_sampled_baseline" in console.export_text()
    frame = pytest.importorskip("pandas") and r.to_frame()
    assert list(frame["estimator"]) == [row.name for row in r.rows]
    assert frame["log_variance"].dtype.kind == "f"
    ax = r.plot(Figure().subplots())
    assert [t.get_text() for t in ax.get_yticklabels()].count("risk") == 1


def test_importing_swor_needs_torch_alone() -> None:
    code = (
        "import sys, swor; swor.compare, swor.gradient_moments; "
        "print([m for m in ('rich', 'pandas', 'matplotlib', 'tyro') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
def test_the_example_recommends(capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(__file__).parents[1] / "examples" / "compare_estimators.py"
    runpy.run_path(str(path), run_name="__main__")
    assert "Use unordered_set with k = 8" in capsys.readouterr().out


def test_estimators_that_list_the_domain_are_left_out_where_it_is_too_large() -> None:
    logits = torch.zeros(20, 10, requires_grad=True)
    dist = Independent(OneHotCategorical(logits=logits), 1)
    names = ["unordered_set", "deterministic_sum_and_sample", "stratified", "systematic"]
    names.append("deterministic_sum_and_sample_sampled_baseline")
    result = swor.compare(
        names,
        lambda z: z[..., 0].sum(-1),
        dist,
        parameters=[logits],
        repeats=3,
        generator=torch.Generator().manual_seed(0),
    )
    assert [row.name for row in result.rows] == ["unordered_set"]
    assert set(result.left_out) == set(names[1:])
