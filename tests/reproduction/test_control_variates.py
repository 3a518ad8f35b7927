"""The command ``control-variates``: exact variances in the order that the theory says."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import torch
from torch.distributions import Independent, OneHotCategorical

from reproduction import control_variates
from reproduction.cli import main


def test_logits_have_the_entropy_that_is_asked_for() -> None:
    direction = torch.randn(3, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    dist = OneHotCategorical(logits=control_variates.with_entropy(direction, 1.5))
    assert abs(float(dist.entropy().sum()) - 1.5) < 1e-9


def test_nothing_is_left_of_an_additive_cost() -> None:
    table = torch.randn(3, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    dist = Independent(OneHotCategorical(logits=torch.zeros(3, 3, dtype=torch.float64)), 1)
    left = control_variates.without_additive(lambda x: (x * table).sum((-1, -2)), dist)
    assert left(dist.sample((20,))).abs().max() < 1e-12


def test_the_command_writes_a_table_and_a_figure(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main(["control-variates", "--problems", "1", "--out", str(out)]) == 0
    rows = pd.read_csv(out / "variances.csv").pivot(
        index="entropy", columns="estimator", values="variance"
    )
    assert (rows["unordered_set"] < rows["rloo"]).all()
    assert (rows["unordered_set_additive"] < rows["rloo_additive"]).all()
    assert (rows["rloo_additive"] < rows["rloo"]).all()
    assert (out / "control_variates.png").exists()
    assert main(["control-variates", "--problems", "0"]) == 1
