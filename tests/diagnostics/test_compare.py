"""Comparisons of estimators: bias, variance, recommendation, and how they are shown."""

from __future__ import annotations

import math
from io import StringIO

import pytest
import torch
from five_outcomes import cost, generator, logits, moments
from torch.distributions import Categorical, Independent, OneHotCategorical

import swor
from swor.diagnostics import _bias as bias
from swor.diagnostics._streaming import start, update
from swor.diagnostics.moments import GradientMoments


def result(names=("unordered_set", "rloo", "reinforce_sampled_baseline", "risk"), k=3, **options):
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
    for name in ("unordered_set", "rloo", "reinforce_sampled_baseline"):
        assert by_name[name].at_k.z < 4.0
    assert r.evaluations == 6  # what the fresh samples take
    assert by_name["rloo"].at_evaluations.k == 6
    assert by_name["reinforce_sampled_baseline"].at_evaluations.k == 3
    assert by_name["unordered_set"].at_evaluations.k == 5  # the whole domain
    assert by_name["unordered_set"].at_evaluations.log_variance == -math.inf
    assert r.recommend().startswith("Use unordered_set with k = 5: no sign of bias, no variance")


def test_compare_agrees_with_exact_variances() -> None:
    r = result(("unordered_set", "rloo"), repeats=20_000, evaluations=3)
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
    alone = result(("rloo",))
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
