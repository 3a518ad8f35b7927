"""The command ``best-of-variance``: its table is that of the documentation, and distinct samples are best."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
import torch

from reproduction.best_of import exact
from reproduction.cli import main

COMMITTED = Path(__file__).parents[3] / "results" / "best_of" / "exact" / "variances.csv"


def test_the_committed_table_is_computed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "SIZES", range(3, 5))
    out = tmp_path / "out"
    assert main(["best-of-variance", "--out", str(out)]) == 0
    committed = pd.read_csv(COMMITTED)
    committed = committed[committed["k"] < 5].reset_index(drop=True)
    pd.testing.assert_frame_equal(pd.read_csv(out / "variances.csv"), committed, rtol=1e-9)
    assert (out / "best_of.png").exists()
    successes = pd.read_csv(COMMITTED.parent / "log_success.csv")
    few = successes[successes["k"] < 5].reset_index(drop=True)
    pd.testing.assert_frame_equal(pd.read_csv(out / "log_success.csv"), few, rtol=1e-9)
    page = (COMMITTED.parent / "log_success.md").read_text(encoding="utf-8")
    assert page == exact.success_table(successes)


def test_the_variance_of_a_value_is_that_of_the_best_of_m() -> None:
    """With k = m independent samples, the estimate is the best of them."""
    log_probs, f = (
        torch.tensor([0.2, 0.3, 0.5]).double().log(),
        torch.tensor([1.0, 2.0, 4.0]).double(),
    )
    below = torch.tensor([0.2, 0.5, 1.0]).double() ** 3
    chance = below.diff(prepend=below.new_zeros(1))
    value, _ = exact.moments("none", log_probs, f, 3)
    assert value == pytest.approx(float(chance @ f**2 - (chance @ f) ** 2))


@pytest.mark.parametrize("column", ["value_variance", "gradient_variance"])
@pytest.mark.parametrize("name", ["variances.csv", "log_success.csv"])
def test_distinct_samples_have_the_lowest_variance(name: str, column: str) -> None:
    table = pd.read_csv(COMMITTED.parent / name).pivot(
        index=["entropy", "k"], columns="estimator", values=column
    )
    assert (table.drop(columns="distinct").min(axis=1) > table["distinct"]).all()
