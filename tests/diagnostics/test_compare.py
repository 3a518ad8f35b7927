"""Comparisons of estimators: bias, variance, recommendation, and how they are shown."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from io import StringIO

import pytest
import torch
from five_outcomes import cost, generator, logits, moments
from torch.distributions import Categorical, Independent, OneHotCategorical

import swor
from swor.diagnostics import _bias as bias
from swor.diagnostics.enumeration import exact_moments
from swor.estimators.estimator import Estimator


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


def unproven(name: str, scale: float = 1.0) -> Estimator:
    """An entry that a user made: what it declares is not proven, so it is measured."""
    entry = swor.ESTIMATORS[name]

    def scaled(f, dist, k, *, generator=None):
        return scale * entry(f, dist, k, generator=generator)

    return replace(entry, function=entry.function if scale == 1.0 else scaled)


def test_compare_without_enumeration(monkeypatch: pytest.MonkeyPatch) -> None:
    """A domain that is too large: against the mean of those that are proven to be unbiased."""
    monkeypatch.setattr(bias, "SMALL_DOMAIN", 1)
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
    monkeypatch.setattr(bias, "SMALL_DOMAIN", 1)
    entries = {name: swor.ESTIMATORS[name] for name in ("rloo", "unordered_set")}
    r = confident({**entries, "own": unproven("unordered_set")}, mode=16.0)
    assert not r.rows[0].at_k.reliable and r.rows[0].at_k.log_variance == -math.inf
    assert r.rows[2].at_k.reliable and not r.rows[2].looks_biased
    assert r.recommend().startswith(("Use unordered_set", "Use own"))


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


def test_comparison_as_text_table_frame_and_plot() -> None:
    pytest.importorskip("rich")
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure
    from rich.console import Console

    r = result(repeats=200, evaluations=5)
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
