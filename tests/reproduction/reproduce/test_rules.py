"""The exact moments of the rules on a small domain."""

from __future__ import annotations

import pytest

from reproduction.reproduce.rules import K, rule_rows
from swor.estimators.registry import ESTIMATORS, lift
from swor.rules.reinforce import single_sample
from swor.types import Scheme


def test_bias_is_what_the_registry_says() -> None:
    rows = rule_rows()
    assert all(row["bias"] < 1e-12 for row in rows if row["unbiased"])
    biased = {row["rule"] for row in rows if not row["unbiased"] and row["bias"] > 1e-3}
    assert biased == {"risk", "normalized_importance_weighted"}


def test_a_new_rule_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = lift(single_sample, Scheme.WITHOUT_REPLACEMENT, unbiased=True, equation="none")
    monkeypatch.setitem(ESTIMATORS, "one_more_rule", entry)
    rows = rule_rows()
    variances = [row["variance"] for row in rows if row["rule"] == "one_more_rule"]
    assert variances == [row["variance"] for row in rows if row["rule"] == "single_sample"]
    assert len(variances) == len(K)
