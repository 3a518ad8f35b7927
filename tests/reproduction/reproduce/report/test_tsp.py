"""The section on Figure 3: comparisons of optimality gaps."""

from __future__ import annotations

import pytest

from reproduction.reproduce.report.tsp import final_gap, gap_traces, on_par, outperforms


def tsp_rows(gaps: dict[str, float]) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    rows = [
        {
            "estimator": name,
            "seed": "0",
            "steps": str(steps),
            "instances": str(64 * steps),
            "gap": str(gap),
            "gap_standard_error": "0.01",
        }
        for name, gap in gaps.items()
        for steps in (0, 10, 20)
    ]
    return rows, [{"estimator": name, "gap": str(gap)} for name, gap in gaps.items()]


def with_others(others: float, risk: float) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    names = ("rloo", "sum_and_sample_shared_sampled_baseline", "reinforce_rollout")
    gaps = dict.fromkeys(names, others) | dict.fromkeys(("risk", "risk_beam_search"), risk)
    return tsp_rows(gaps | {"unordered_set": 1.0})


@pytest.mark.parametrize(("others", "agrees"), [(2.0, True), (0.5, False), (1.0, None)])
def test_estimators_that_should_be_worse_are_compared(others: float, agrees: bool | None) -> None:
    assert outperforms(*with_others(others, 1.1), 10).agrees is agrees


@pytest.mark.parametrize(("risk", "agrees"), [(1.1, True), (0.9, True), (1.6, False)])
def test_risk_should_be_on_par(risk: float, agrees: bool) -> None:
    assert on_par(*with_others(2.0, risk), 10).agrees is agrees


def test_the_untrained_model_is_left_out_of_the_chart() -> None:
    rows, _ = with_others(2.0, 1.1)
    traces = gap_traces(rows)
    assert {len(trace.x) for trace in traces} == {2}
    assert {trace.view for trace in traces} == {"training steps", "training instances"}


def test_the_final_gap_averages_seeds() -> None:
    rows, _ = tsp_rows({"risk": 1.0})
    rows += [row | {"seed": "1", "gap": "3.0"} for row in rows]
    gap, error = final_gap(rows, "risk")
    assert (gap, error) == (2.0, pytest.approx(0.01 / 2**0.5))
