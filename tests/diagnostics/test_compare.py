"""Comparisons of estimators: bias, variance, recommendation, and how they are shown."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from io import StringIO

import pytest
import torch
from five_outcomes import cost, generator, logits, moments
from torch import nn
from torch.distributions import Categorical, Independent, OneHotCategorical

import swor
from swor.diagnostics import _bias as bias
from swor.diagnostics import _gradients as gradients
from swor.diagnostics import _hits
from swor.diagnostics.enumeration import exact_moments
from swor.estimators.estimator import Estimator
from swor.samplers.distributions import draw
from swor.types import Scheme


def result(names=("unordered_set", "rloo", "reinforce_sampled_baseline", "risk"), k=3, **options):
    parameter = logits()
    return swor.compare(
        names, cost, Categorical(logits=parameter), parameters=[parameter], k=k,
        repeats=options.pop("repeats", 4000), generator=generator(3), **options,
    )  # fmt: skip


def test_compare_finds_bias_and_the_best() -> None:
    r = result(evaluations=6)
    assert r.exact
    by_name = {row.name: row for row in r.rows}
    assert by_name["risk"].at_k.bias_found
    for name in ("unordered_set", "rloo", "reinforce_sampled_baseline"):
        assert by_name[name].proven and not by_name[name].looks_biased
    assert by_name["rloo"].at_evaluations.k == 6
    assert by_name["reinforce_sampled_baseline"].at_evaluations.k == 3
    assert by_name["unordered_set"].at_evaluations.k == 5  # the whole domain
    assert by_name["unordered_set"].at_evaluations.log_variance == -math.inf
    best = "Use unordered_set with k = 5: proven to be unbiased, a variance below rounding"
    assert r.recommend().startswith(best)
    assert "risk (biased by definition)" in r.recommend()


def test_compare_agrees_with_exact_variances() -> None:
    r = result(("unordered_set", "rloo"), repeats=20_000, evaluations=3)
    for row in r.rows:
        entry = swor.ESTIMATORS[row.name]
        exact = math.log(float(moments(entry.rule, entry.scheme, 3).total_variance))
        assert abs(row.at_k.log_variance - exact) < 4.0 * row.at_k.log_variance_error
        assert row.at_evaluations is row.at_k


def test_what_differs_by_noise_alone_is_as_good() -> None:
    rloo = swor.ESTIMATORS["rloo"]
    said = result({"one": rloo, "other": rloo}, repeats=1000).recommend()
    assert "is as good within the error" in said and "comes next" not in said


def unproven(name: str, scale: float = 1.0) -> Estimator:
    """An entry that a user made: what it declares is not proven, so it is measured."""
    entry = swor.ESTIMATORS[name]

    def scaled(f, dist, k, *, generator=None):
        return scale * entry(f, dist, k, generator=generator)

    return replace(entry, function=entry.function if scale == 1.0 else scaled)


def test_compare_without_enumeration(monkeypatch: pytest.MonkeyPatch) -> None:
    """A domain that is too large: against the mean of those that are proven to be unbiased."""
    monkeypatch.setattr(gradients, "SMALL_DOMAIN", 1)
    proven = {name: swor.ESTIMATORS[name] for name in ("rloo", "unordered_set", "risk")}
    r = result({"own": unproven("unordered_set"), **proven}, repeats=20_000)
    by_name = {row.name: row for row in r.rows}
    assert not r.exact
    assert by_name["risk"].at_k.bias_found
    own = by_name["own"]
    assert not own.looks_biased and own.at_k.squared_bias.error > 0.0
    alone = result({"own": unproven("unordered_set")})
    assert math.isnan(alone.rows[0].at_k.squared_bias.estimate)
    assert "own (bias not tested; compare with unordered_set as well)" in alone.recommend()


def test_compare_takes_callables_and_counts_their_evaluations() -> None:
    def wasteful(f, dist, k, /, *, generator=None):
        f(torch.zeros(7, dtype=torch.long))
        return 1.3 * swor.ESTIMATORS["unordered_set"](f, dist, k, generator=generator)

    entry = swor.ESTIMATORS["unordered_set"]
    r = result({"wasteful": wasteful, "unordered_set": entry}, k=3, evaluations=10, repeats=1000)
    row = r.rows[0]
    assert row.unbiased is None
    assert row.at_k.evaluations == 10
    assert row.at_k.bias_found  # a gradient 30 % too large
    assert "wasteful (a bias was measured)" in r.recommend()


COSTS = torch.rand(20, generator=torch.Generator().manual_seed(0))


def confident(names, *, mode=9.0, **options):
    """A policy with one likely outcome of twenty, with the default repeats."""
    logits = torch.tensor([mode] + [0.0] * 19, requires_grad=True)
    options = {"k": 4, "generator": generator(0), **options}
    return swor.compare(
        names, lambda x: COSTS[x], Categorical(logits=logits), parameters=[logits], **options
    )


UNBIASED = [n for n, e in swor.ESTIMATORS.items() if e.unbiased and not e.learns and e.rule]


def test_a_confident_policy_makes_no_unbiased_estimator_biased() -> None:
    r = confident(UNBIASED)
    assert not any(row.looks_biased for row in r.rows)
    by_name = {row.name: row for row in r.rows}
    for name in ("rloo", "reinforce_no_baseline", "raj", "single_sample"):  # too few draws
        assert not by_name[name].at_k.reliable
        assert name in r.recommend()
    assert str(r).count("–") >= 8
    assert "too few draws decide the variance; increase repeats" in r.recommend()


@pytest.mark.parametrize("name", ["unordered_set", "sum_and_sample", "rloo", "raj"])
def test_a_variance_that_is_shown_is_the_exact_one(name: str) -> None:
    entry, costs = swor.ESTIMATORS[name], COSTS.double()
    for mode in (9.0, 14.0):
        logits = torch.tensor([mode] + [0.0] * 19, dtype=torch.float64).requires_grad_()
        exact = exact_moments(
            entry.rule, entry.scheme, lambda x: costs[x], Categorical(logits=logits), 4, [logits],
            ordered=name in ("sum_and_sample", "raj"), kappa=False,
        )  # fmt: skip
        (row,) = confident([name], mode=mode).rows
        error = abs(row.at_k.log_variance - math.log(float(exact.total_variance)))
        assert error < 4.0 * row.at_k.log_variance_error or not row.at_k.reliable
        assert row.at_k.reliable == (name in ("unordered_set", "sum_and_sample"))


def test_a_bias_of_a_confident_policy_is_found_with_enough_draws() -> None:
    own = {"right": unproven("rloo"), "wrong": unproven("unordered_set", 1.3)}
    few = confident(own)
    assert all(math.isnan(row.at_k.squared_bias.estimate) for row in few.rows)
    assert "right and wrong (too few draws" in few.recommend()
    right, wrong = confident(own, repeats=40_000).rows
    assert right.at_k.reliable and not right.looks_biased
    assert wrong.looks_biased


def test_estimators_without_enough_draws_are_no_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    """Independent samples of a very confident policy are all the same, and so are their gradients of 0."""
    monkeypatch.setattr(gradients, "SMALL_DOMAIN", 1)
    entries = {name: swor.ESTIMATORS[name] for name in ("rloo", "unordered_set")}
    r = confident({**entries, "own": unproven("unordered_set")}, mode=16.0)
    assert not r.rows[0].at_k.reliable and r.rows[0].at_k.log_variance == -math.inf
    assert r.rows[2].at_k.reliable and not r.rows[2].looks_biased
    assert r.recommend().startswith(("Use unordered_set", "Use own"))


def test_a_cost_that_is_always_zero_has_neither_variance_nor_bias(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gradients, "SMALL_DOMAIN", 1)
    parameter = logits()
    options = {"parameters": [parameter], "k": 2, "repeats": 200, "generator": generator()}
    estimators = {"own": unproven("unordered_set"), "rloo": "rloo", "raj": "raj"}
    dist = Categorical(logits=parameter)
    r = swor.compare(estimators, lambda x: torch.zeros(x.shape).double(), dist, **options)
    assert [row.at_k.log_variance for row in r.rows] == [-math.inf] * 3
    assert r.rows[0].at_k.squared_bias == (0.0, 0.0) and not r.rows[0].looks_biased


def test_nobody_gets_more_samples_or_evaluations_than_were_asked_for() -> None:
    r = confident(["arsm", "reinforce_sampled_baseline", "unordered_set"], mode=1.0)
    arsm, sampled, best = r.rows
    assert arsm.at_k.evaluations == 4 * 191 and arsm.at_evaluations is None
    assert sampled.at_evaluations.k == 2 and best.at_evaluations is best.at_k
    assert r.evaluations == 4
    assert "arsm needs more than 4 evaluations at k = 1" in str(r)
    assert "arsm (more than 4 evaluations even at k = 1)" in r.recommend()


def test_a_variance_below_rounding_is_none_where_costs_are_large() -> None:
    logits = torch.randn(6, generator=generator()).requires_grad_()
    f = lambda x: 1000.0 + COSTS[x]  # noqa: E731
    options = {"parameters": [logits], "repeats": 200, "generator": generator()}
    r = swor.compare(["unordered_set"], f, Categorical(logits=logits), k=6, **options)
    assert r.rows[0].at_k.log_variance == -math.inf
    r = swor.compare(["unordered_set"], f, Categorical(logits=logits), k=5, **options)
    assert math.isfinite(r.rows[0].at_k.log_variance)


def test_ctrl_c_keeps_what_is_measured() -> None:
    calls = 0

    def interrupted(f, dist, k, *, generator=None):
        nonlocal calls
        calls += 1
        if calls > 20:
            raise KeyboardInterrupt
        return swor.ESTIMATORS["rloo"](f, dist, k, generator=generator)

    estimators = {"own": interrupted, "unordered_set": swor.ESTIMATORS["unordered_set"]}
    r = confident(estimators, mode=1.0)
    assert [row.name for row in r.rows] == ["unordered_set"]
    assert "left out: own, which was not measured before the interruption" in str(r)
    calls = 0
    with pytest.raises(KeyboardInterrupt):
        confident({"own": interrupted}, mode=1.0)


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("package", ["rich.progress", "none"])
def test_progress_is_shown_on_a_terminal(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if package == "none":
        monkeypatch.setitem(sys.modules, "rich.progress", None)
    else:
        pytest.importorskip("rich")
    shown = []
    for stream, progress in ((Terminal(), True), (Terminal(), False), (StringIO(), True)):
        monkeypatch.setattr(sys, "stderr", stream)
        confident(["unordered_set", "rloo"], repeats=100, progress=progress)
        shown.append(stream.getvalue())
    assert "rloo" in shown[0]  # the last
    assert shown[1:] == ["", ""]


def test_compare_leaves_out_what_does_not_apply() -> None:
    r = result(("unordered_set", "disarm"))
    assert [row.name for row in r.rows] == ["unordered_set"]
    assert "disarm" in r.left_out
    assert "disarm" in str(r)
    with pytest.raises(ValueError, match="no estimator is left"):
        result(("disarm",))


def test_a_squared_bias_is_that_of_the_whole_vector() -> None:
    true = torch.zeros(5000, dtype=torch.float64)
    true[17] = 0.6
    blocks = bias.Blocks(200, 5000, torch.device("cpu"))
    for chunk in torch.randn(200, 5000, dtype=torch.float64, generator=generator()).split(16):
        blocks.add(chunk)
    none, some = (bias.Reference(exact).squared_bias(blocks.means()) for exact in (0 * true, true))
    assert not none.exceeds(0.0)
    assert abs(none.estimate) < 4.0 * none.error
    assert abs(some.estimate - 0.36) < 4.0 * some.error
    assert some.estimate - none.estimate == pytest.approx(0.36, abs=0.3)
    assert bias.Reference(10 * true).squared_bias(blocks.means()).exceeds(0.0)


def test_without_a_bias_few_are_found() -> None:
    """The estimates have a mean of 0, and their standard errors are not too small."""
    means = torch.randn(2000, 20, 3, dtype=torch.float64, generator=generator())
    found = [bias.squared_norm(x) for x in means]
    estimates = torch.tensor([x.estimate for x in found])
    assert estimates.mean().abs() < 4.0 * estimates.std() / len(means) ** 0.5
    assert torch.tensor([x.error for x in found]).square().mean().sqrt() > 0.9 * estimates.std()
    assert not any(x.exceeds(0.0) for x in found)


def test_the_table_fits_into_100_columns() -> None:
    names = ["deterministic_sum_and_sample_sampled_baseline", "risk", "reinforce_sampled_baseline"]
    r = confident(names, mode=1.0, repeats=100)
    lines = str(r).splitlines()
    large = replace(r, exact=False, left_out={"disarm": "is not defined for this distribution"})
    assert max(map(len, [*lines, *str(large).splitlines()])) <= 100
    assert names[0] in lines


def test_comparison_as_text_frame_and_plot() -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    r = result(repeats=200, evaluations=5)
    assert "reinforce_sampled_baseline" in str(r)
    assert "-inf" in str(r)
    frame = pytest.importorskip("pandas") and r.to_frame()
    assert list(frame["estimator"]) == [row.name for row in r.rows]
    assert frame["log_variance"].dtype.kind == "f"
    ax = r.plot(Figure().subplots())
    assert [t.get_text() for t in ax.get_yticklabels()].count("risk") == 1


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


def test_what_is_printed_as_relax_has_learned() -> None:
    """RELAX by name is trained beforehand, the table says for how long, and its variance is lower."""
    logits = torch.tensor([[0.3, -0.8, 0.5], [1.1, 0.2, -0.4]]).requires_grad_()
    dist = Independent(OneHotCategorical(logits=logits), 1)
    f = lambda x: 3.0 + (x * torch.tensor([1.0, -0.7, 0.4])).sum((-1, -2)).square()  # noqa: E731
    options = {"parameters": [logits], "k": 1, "repeats": 500, "evaluations": 1}
    result = swor.compare(
        ["relax", "reinforce_no_baseline"],
        f,
        dist,
        **options,
        generator=torch.Generator().manual_seed(0),
    )
    relax, plain = result.rows
    assert relax.at_k.moments.warm_up == 500 and plain.at_k.moments.warm_up == 0
    assert "relax was trained for 500 steps" in str(result)
    assert relax.at_k.log_variance < plain.at_k.log_variance - 1.0


def test_a_moving_average_remembers_before_it_is_measured() -> None:
    logits = torch.zeros(4, requires_grad=True)
    dist = Categorical(logits=logits)
    f = lambda x: 10.0 + x / 4  # noqa: E731
    traces = [
        swor.gradient_moments(
            "reinforce_moving_average",
            f,
            dist,
            [logits],
            k=1,
            repeats=200,
            warm_up=steps,
            generator=torch.Generator().manual_seed(0),
        ).trace
        for steps in (0, 50)
    ]
    assert traces[1] < 0.2 * traces[0]  # the first call of an untrained one has no baseline


def distinct(f, dist, k, *, generator=None):
    """The unordered set estimator, written by a user."""
    drawn = swor.sample(dist, k, generator=generator)
    return swor.unordered_set(drawn).loss(f(drawn.value))


RARE = (0.3, 0.25, 0.2, 0.15, 0.0999, 0.0001)
PROVEN = {name: swor.ESTIMATORS[name] for name in ("unordered_set", "rloo", "sum_and_sample")}
FOUR = {"own": distinct, **PROVEN}


@pytest.mark.parametrize(("p", "rare"), [(1e-4, 3000.0), (1e-6, 30_000.0), (1e-4, 5.0)])
def test_a_rare_outcome_of_a_large_cost_is_noticed_without_being_drawn(
    p: float, rare: float
) -> None:
    """The first decides the mean and the variance, the second the variance alone, and the last neither."""
    parameter = logits((*RARE[:4], 0.1 - p, p))
    costs = torch.tensor([1.0, 2.0, 0.0, 3.0, 1.5, rare]).double()
    dist, options = Categorical(logits=parameter), {"parameters": [parameter], "k": 2}
    r = swor.compare(FOUR, lambda x: costs[x], dist, **options, generator=generator(0))
    assert [row.at_k.reliable for row in r.rows] == [rare == 5.0] * 4
    assert not any(row.looks_biased for row in r.rows)
    assert r.recommend().startswith("Use unordered_set" if rare == 5.0 else "No estimator")


@pytest.mark.parametrize("name", ["unordered_set", "rloo", "sum_and_sample", "raj"])
def test_the_variance_of_a_rare_cost_is_the_exact_one_once_it_is_shown(name: str) -> None:
    parameter, costs = logits(RARE), torch.tensor([1.0, 2.0, 0.0, 3.0, 1.5, 3000.0]).double()
    dist, f, entry = Categorical(logits=parameter), lambda x: costs[x], swor.ESTIMATORS[name]
    exact = exact_moments(entry.rule, entry.scheme, f, dist, 2, [parameter]).total_variance
    options = {"parameters": [parameter], "k": 2, "generator": generator(0)}
    shown = [
        swor.compare([name], f, dist, repeats=n, **options).rows[0].at_k for n in (200, 400_000)
    ]
    assert [m.reliable for m in shown] == [False, True]
    assert abs(shown[1].log_variance - math.log(exact)) < 4.0 * shown[1].log_variance_error


def test_what_proven_estimators_missed_is_no_bias_of_others() -> None:
    """The costs are alike, but the gradient of the rare outcome is 3000 times as large."""
    scale = torch.tensor([1.0, 1.0, 1.0, 1.0, 1.0, 3000.0]).double()
    parameter = (logits(RARE).detach() / scale).requires_grad_()
    costs = torch.tensor([1.0, 2.0, 0.0, 3.0, 1.5, 5.0]).double()
    dist, options = Categorical(logits=scale * parameter), {"parameters": [parameter], "k": 2}
    r = swor.compare(FOUR, lambda x: costs[x], dist, **options, generator=generator(0))
    assert not any(row.at_k.reliable or row.looks_biased for row in r.rows)
    assert all(math.isnan(row.at_k.squared_bias.estimate) for row in r.rows)


@pytest.mark.parametrize("name", ["unordered_set", "deterministic_sum_and_sample", "rloo", "raj"])
def test_expected_draws_are_those_of_the_scheme(name: str) -> None:
    """Approximately; estimators that give a rare outcome a large weight count as independent samples."""
    entry, k = swor.ESTIMATORS[name], 3
    dist = Categorical(logits=logits().detach())
    scheme = Scheme.WITH_REPLACEMENT if name == "raj" else entry.scheme
    drawn = draw(scheme, dist.expand((20_000,)), k, generator()).value
    measured = torch.nn.functional.one_hot(drawn, 5).double().sum(-2).mean(0)
    expected = _hits._expected_draws(entry, dist.logits, k)
    torch.testing.assert_close(expected, measured, rtol=0.15, atol=0.0)


def test_expected_hits_are_the_inverse_kurtosis_of_independent_costs() -> None:
    parameter = logits()
    dist, entry = Categorical(logits=parameter), swor.ESTIMATORS["rloo"]
    domain = gradients.enumerated(cost, dist, [parameter])
    p, d = domain.log_p.exp(), domain.cost - swor.exact(cost, dist).detach()
    kurtosis = float((p * d**4).sum() / (p * d**2).sum() ** 2)
    assert _hits.expected_hits(entry, domain, 3) == pytest.approx(3.0 / kurtosis)
    nothing = gradients.enumerated(lambda x: torch.zeros(x.shape).double(), dist, [parameter])
    assert _hits.expected_hits(entry, nothing, 3) == math.inf


def test_a_random_cost_is_compared_with_the_mean_of_the_proven_ones() -> None:
    """One evaluation of the domain has an error of its own, which is no bias of an estimator."""
    parameter, noise = logits(), generator(5)

    def f(index):
        return cost(index) + 2.0 * torch.randn(index.shape, dtype=torch.float64, generator=noise)

    options = {"parameters": [parameter], "k": 3, "repeats": 600, "generator": generator()}
    both = {"own": distinct, "rloo": PROVEN["rloo"]}
    r = swor.compare(both, f, Categorical(logits=parameter), **options)
    own, proven = r.rows
    assert not r.exact and own.at_k.reliable and not own.looks_biased and proven.proven
    assert math.isfinite(own.at_k.squared_bias.estimate)
    assert "mean of the unbiased ones" in str(r)


def test_an_infinite_variance_is_shown_as_such_and_not_recommended() -> None:
    """By the exact moments, that of importance weights, unless the sample is the whole domain."""
    entry = swor.ESTIMATORS["importance_weighted"]
    for k in (1, 2, 3, 4, 5):
        infinite = math.isinf(moments(entry.rule, entry.scheme, k).total_variance)
        assert entry.has_infinite_variance(k, Categorical(logits=logits())) == infinite == (k < 4)
    whole = Categorical(logits=torch.tensor([0.3, 0.1, -torch.inf]))
    assert [entry.has_infinite_variance(k, whole) for k in (1, 2)] == [True, False]
    assert [n for n, e in swor.ESTIMATORS.items() if e.infinite_up_to] == ["importance_weighted"]


def test_a_comparison_with_an_infinite_variance() -> None:
    r = result(["importance_weighted", "rloo"], k=4, evaluations=3, repeats=500)
    row = r.rows[0]
    assert not row.at_k.infinite and row.at_evaluations.log_variance == math.inf
    assert str(r).count("infinite") == 1
    assert r.recommend().startswith("Use rloo")
    assert "importance_weighted (its variance is infinite)" in r.recommend()
    both = result(["importance_weighted", "rloo"], k=3, repeats=500)
    assert str(both).count("infinite") == 2 and "–" not in str(both)


def test_an_infinite_variance_is_plotted_at_the_right_end() -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    ax = result(["importance_weighted", "rloo"], k=3, repeats=500).plot(Figure().subplots())
    right = [line for line in ax.lines if line.get_marker() == ">"]
    finite = [
        line.get_xdata()[0]
        for line in ax.lines
        if line.get_marker() == "o" and len(line.get_xdata())
    ]
    assert len(right) == 2 and min(line.get_xdata()[0] for line in right) > max(finite)
    assert "▸: infinite" in ax.get_xlabel()


MASKED = [
    (["rloo", "unordered_set"], {"k": 3}, {"unordered_set": "needs k from 1 to 2"}),
    (["rloo", "unordered_set", "local_unordered_set"], {"k": 2, "evaluations": 3}, {}),
    (["rloo", "relax"], {"k": 2}, {"relax": "is not defined for this distribution"}),
    (["rloo", "local_unordered_set"], {"k": 3}, {"local_unordered_set": "needs k from 1 to 2"}),
]


@pytest.mark.parametrize(("names", "options", "left_out"), MASKED)
def test_impossible_outcomes_are_no_samples(names, options, left_out) -> None:
    parameter = torch.tensor([[0.3, -0.2, -torch.inf, -torch.inf], [0.1, 0.2, 0.3, 0.4]])
    parameter.requires_grad_()
    r = swor.compare(
        names, lambda x: 1.0 * x, Categorical(logits=parameter), parameters=[parameter],
        repeats=100, generator=generator(), **options,
    )  # fmt: skip
    assert r.left_out == left_out
    assert [row.name for row in r.rows] == [name for name in names if name not in left_out]
    ks = {row.name: row.at_evaluations.k for row in r.rows}
    assert all(ks[name] == 2 for name in ks if "unordered_set" in name)


def test_parameters_that_compare_cannot_use_are_refused() -> None:
    parameter, other = logits(), torch.zeros(3, requires_grad=True)
    dist = Categorical(logits=parameter)

    def refused(message: str, parameters, dist=dist) -> None:
        with pytest.raises((ValueError, TypeError), match=message):
            swor.compare(["rloo"], cost, dist, parameters=parameters, k=2, repeats=50)

    refused("parameters is empty", [])
    refused(r"1 of the 2 parameters do not.*p.requires_grad\]", [parameter, other.detach()])
    refused("depends on none of the parameters", [other])
    refused("do not detach the logits", [parameter], Categorical(logits=parameter.detach()))
    refused(r"contains a torch.Linear; expected tensors.*model.parameters\(\)", nn.Linear(1, 2))


def test_one_tensor_is_differentiated_as_it_is_and_may_be_that_of_f_alone() -> None:
    weight = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    options = {"parameters": weight, "k": 3, "repeats": 200, "generator": generator()}
    dist = Categorical(logits=logits().detach())
    (row,) = swor.compare(["unordered_set"], lambda x: weight * cost(x), dist, **options).rows
    assert math.isfinite(row.at_k.log_variance)


def test_names_rules_and_entries_are_the_same_estimators() -> None:
    parameter = logits()
    dist = Categorical(logits=parameter)

    def names(estimators) -> list[tuple[str, bool]]:
        options = {"parameters": [parameter], "k": 2, "repeats": 5, "generator": generator()}
        rows = swor.compare(estimators, cost, dist, **options).rows
        return [(row.name, row.proven) for row in rows]

    entry = swor.ESTIMATORS["risk"]
    listed = [swor.rloo, entry, "raj", swor.arsm, swor.reinforce_greedy]
    known = ["rloo", "risk", "raj", "arsm", "reinforce_greedy"]
    assert names(listed) == [(name, True) for name in known]
    assert names(swor.rloo) == names("rloo") == [("rloo", True)]
    named = {"a": "rloo", "b": swor.raj, "c": entry, "d": distinct}
    assert names(named) == [("a", True), ("b", True), ("c", True), ("d", False)]
    with pytest.raises(ValueError, match=r"a function that is not in ESTIMATORS.*\{'own': est"):
        names([distinct])
