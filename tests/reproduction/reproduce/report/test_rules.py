"""The exact moments of the rules: what is computed, and how the report shows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from reproduction.harness.folder import RunFolder
from reproduction.reproduce.report.rules import K, rule_rows, theorems, unbiasedness
from swor.estimators.registry import ESTIMATORS, lift
from swor.rules.reinforce import single_sample
from swor.types import Scheme


def test_bias_is_what_the_registry_says() -> None:
    rows = rule_rows()
    assert all(row["bias"] < 1e-12 for row in rows if row["unbiased"])
    biased = {row["rule"] for row in rows if not row["unbiased"] and row["bias"] > 1e-3}
    assert biased == {"risk", "normalized_importance_weighted"}


def test_a_new_rule_is_measured_and_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = lift(single_sample, Scheme.WITHOUT_REPLACEMENT, unbiased=True, equation="none")
    monkeypatch.setitem(ESTIMATORS, "one_more_rule", entry)
    rows = rule_rows()
    variances = [row["variance"] for row in rows if row["rule"] == "one_more_rule"]
    assert variances == [row["variance"] for row in rows if row["rule"] == "single_sample"]
    assert len(variances) == len(K)
    RunFolder(tmp_path).write_csv("rules.csv", rows)
    content, findings = theorems(tmp_path)
    assert "<td>one_more_rule</td>" in content
    assert [finding.agrees for finding in findings] == [True]


def test_a_biased_rule_that_claims_to_be_unbiased_is_found() -> None:
    rows = [{"rule": "risk", "unbiased": "True", "k": "2", "bias": "0.1", "variance": "1.0"}]
    assert unbiasedness(rows).agrees is False
