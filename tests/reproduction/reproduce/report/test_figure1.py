"""The section on Figure 1: its chart, and its findings."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from reproduction.reproduce.report.figure1 import (
    LABELS,
    figure1,
    lowest_variance,
    monte_carlo,
    trajectory,
    variance_trace,
)

Table = list[dict[str, str]]


def variances(unordered_set: float = 1.0) -> Table:
    """Return variances of 1 for all estimators but the unordered set."""
    return [
        {
            "eta": eta,
            "estimator": name,
            "k": str(k),
            "evaluations": str(2 * k if name.endswith("sampled_baseline") else k),
            "variance": str(unordered_set if name == "unordered_set" else 1.0),
        }
        for eta in ("0.0", "-4.0")
        for name in LABELS
        for k in range(1, 9)
    ]


def checks(z: float) -> Table:
    return [{"eta": "0.0", "estimator": "rloo", "z": str(sign * z)} for sign in (1, -1)]


def losses(unordered_set: float) -> Table:
    values = {"exact": 1.0, "unordered_set": unordered_set, "rloo": 1.1}
    return [
        {"estimator": name, "step": str(step), "loss_mean": str(value)}
        for name, value in values.items()
        for step in range(20)
    ]


@pytest.mark.parametrize(("variance", "agrees"), [(0.5, True), (9.0, True), (11.0, False)])
def test_the_lowest_variance_is_found_for_each_eta(variance: float, agrees: bool) -> None:
    findings = lowest_variance(variances(variance))
    assert [finding.where for finding in findings] == ["Figure 1, η = 0", "Figure 1, η = −4"]
    assert [finding.agrees for finding in findings] == [agrees, agrees]
    assert (f"at most {variance:.1f} times" in findings[0].ours) is (variance > 1.0)


@pytest.mark.parametrize(("z", "agrees"), [(2.0, True), (4.0, False)])
def test_the_monte_carlo_check_counts_deviations(z: float, agrees: bool) -> None:
    finding = monte_carlo(checks(z))
    assert finding.agrees is agrees
    assert f"{z:.1f} standard errors" in finding.ours


@pytest.mark.parametrize(("loss", "agrees"), [(1.05, True), (0.8, False)])
def test_the_trajectory_is_compared_with_reinforce(loss: float, agrees: bool) -> None:
    assert trajectory(losses(loss)).agrees is agrees


def test_variances_that_a_log_axis_cannot_show_are_gaps() -> None:
    rows = variances()
    rows[0]["variance"], rows[1]["variance"] = "0.0", "inf"
    trace = variance_trace(rows, "0.0", next(iter(LABELS)))
    assert trace.y == [None, None, *[1.0] * 6]
    assert trace.view == "η = 0"


def test_the_section_shows_every_estimator(tmp_path: Path) -> None:
    tables = {"variances": variances(), "monte_carlo": checks(1.0), "trajectory": losses(1.0)}
    for name, rows in tables.items():
        with (tmp_path / f"{name}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    content, findings = figure1(tmp_path)
    assert all(f"<td>{label}</td>" in content for label in LABELS.values())
    assert [finding.agrees for finding in findings] == [True] * 4
