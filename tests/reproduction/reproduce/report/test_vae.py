"""The sections on the VAE: comparisons with Table 1 and Figure 2."""

from __future__ import annotations

import math

import pytest

pytest.importorskip("scipy")

from reproduction.reproduce.report.vae import (
    bars,
    comparison_table,
    elbo_finding,
    epochs,
    lowest_elbo,
    rank_correlation,
    variance_findings,
)
from reproduction.vae.published import NEGATIVE_ELBO, PAPER


def variance_rows(shift: float) -> list[dict[str, str]]:
    """Return the paper's values plus a constant, as the rows of a variance.csv."""
    return [
        {
            "epoch": "100",
            "estimator": name,
            "k": str(entry.k),
            "evaluations": "4",
            "part": part,
            "log_variance": str(entry.log_variance[2] + shift),
            "standard_error": "0.01",
        }
        for name, entry in PAPER.items()
        for part in ("encoder", "decoder", "both")
    ]


def test_table_1_agrees_with_itself() -> None:
    findings = variance_findings(variance_rows(-3.0), "Table 1", 2)
    assert [finding.agrees for finding in findings] == [True, True]
    assert "order is 1.00" in findings[0].ours
    assert "−3.00" in comparison_table(variance_rows(-3.0), 2)


def test_equal_values_share_their_rank() -> None:
    # The paper has the same value for three estimators on the small domain.
    assert comparison_table(variance_rows(0.0), 2).count("<td class='n'>2 → 2</td>") == 3


def test_table_1_in_reverse_differs() -> None:
    rows = variance_rows(0.0)
    for row in rows:
        row["log_variance"] = str(-float(row["log_variance"]))
    findings = variance_findings(rows, "Table 1", 2)
    assert [finding.agrees for finding in findings] == [False, False]


def test_a_variance_of_zero_leaves_a_gap() -> None:
    rows = variance_rows(0.0)
    for row in rows[:3]:  # the encoder, the decoder and both
        row["log_variance"] = "-inf"
    assert epochs(rows, rows[0]["estimator"]).y == [None]
    assert None in bars(rows, "encoder").y
    assert "−inf" in comparison_table(rows, 2)


def test_bars_have_the_largest_k_up_to_4() -> None:
    row = variance_rows(0.0)[0]
    rows = [row | {"k": str(k), "log_variance": str(float(k))} for k in (1, 4, 8, 2)]
    assert bars(rows, "encoder").y == [4.0]


def test_rank_correlation_needs_three_pairs() -> None:
    assert math.isnan(rank_correlation([1.0, 2.0], [1.0, 2.0]))
    assert rank_correlation([1.0, 2.0, 9.0], [3.0, 2.0, 1.0]) == pytest.approx(-1.0)


def test_the_lowest_value_of_each_curve_is_found() -> None:
    rows = [
        {"estimator": "arsm", "k": "1", "split": split, "smoothed": value}
        for split, value in (("train", "9.0"), ("train", "7.5"), ("valid", "8.0"))
    ]
    assert lowest_elbo(rows) == {("arsm", 1): {"train": 7.5, "valid": 8.0}}


@pytest.mark.parametrize(
    ("sign", "comparable", "agrees"), [(1, True, True), (-1, True, False), (1, False, None)]
)
def test_figure_2_is_compared_if_it_can_be(
    sign: int, comparable: bool, agrees: bool | None
) -> None:
    best = {curve: {"train": sign * train} for curve, (train, _) in NEGATIVE_ELBO.items()}
    finding = elbo_finding(best, "Figure 2", comparable)
    assert finding.agrees is agrees
    assert f"{sign:.2f}" in finding.ours
