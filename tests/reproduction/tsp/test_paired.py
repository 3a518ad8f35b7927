"""The command ``tsp-paired``: differences of runs on the same instances."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from reproduction.cli import main
from reproduction.tsp.paired import OURS, paired_rows, paired_table

SIZES = "--nodes 5 --steps 2 --validate-every 2 --validation-size 4 --rollout-size 4 --cpu"
SIZES += " --batch-size 4 --width 8 --heads 2 --layers 1 --hidden 8 --learning-rate 0.05"


def train(out: Path, estimator: str, seed: int, *more: str) -> str:
    options = [*SIZES.split(), "--estimator", estimator, "--seed", str(seed), *more]
    assert main(["tsp", *options, "--out", str(out)]) == 0
    return str(out)


def test_a_difference_is_better_known_than_the_gaps() -> None:
    generator = torch.Generator().manual_seed(0)
    hard = torch.rand(400, generator=generator, dtype=torch.float64)  # shared by all runs
    noise = 0.01 * torch.randn(4, 400, generator=generator, dtype=torch.float64)
    runs = {(OURS, 0): hard + noise[0], (OURS, 1): hard + noise[1]}
    runs |= {("rloo", 0): hard + 0.1 + noise[2], ("rloo", 1): hard + 0.3 + noise[3]}
    rows = {(row.estimator, row.seed): row for row in paired_rows(runs, hard)}
    row = rows["rloo", 0]
    apart = runs["rloo", 0] - runs[OURS, 0]
    assert row.minus_unordered_set == pytest.approx(float(apart.mean()))
    assert row.minus_unordered_set_error == pytest.approx(float(apart.std()) / 20)
    assert row.minus_unordered_set_error < row.gap_error / 10
    assert row.minus_start == pytest.approx(0.1, abs=0.005)
    assert math.isnan(rows[OURS, 0].minus_unordered_set)
    mean = (runs["rloo", 0] + runs["rloo", 1] - runs[OURS, 0] - runs[OURS, 1]) / 2
    table = paired_table(runs, hard)
    error = float(mean.std()) / 20
    assert f"| {float(mean.mean()):+.4f} ± {error:.4f} |" in table
    assert "(−1.0" in table  # two seeds that are 0.2 apart say little about others
    assert paired_table({("risk", 3): hard}, None).endswith("| – | – | – |\n")


def test_runs_from_one_start_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    start = Path(train(tmp_path / "start", "rloo", 9)) / "model.safetensors"
    begin = ("--start-from", str(start))
    runs = [train(tmp_path / n, n, 0, *begin) for n in ("unordered_set", "rloo")]
    out = tmp_path / "paired"
    assert main(["tsp-paired", *runs, "--instances", "8", "--out", str(out)]) == 0
    table = pd.read_csv(out / "paired.csv").set_index("estimator")
    arrays = np.load(out / "lengths.npz")
    gaps = {n: 100 * (arrays[f"{n}-0"] / arrays["optimal"] - 1) for n in table.index}
    assert table.loc["rloo", "gap"] == pytest.approx(gaps["rloo"].mean())
    apart = gaps["rloo"] - gaps["unordered_set"]
    assert table.loc["rloo", "minus_unordered_set"] == pytest.approx(apart.mean(), abs=1e-6)
    assert "minus the start" in (out / "paired.md").read_text()
    other = train(tmp_path / "other", "risk", 0)
    (Path(runs[1]) / "model.safetensors").rename(tmp_path / "away")
    for given, said in (
        ([runs[0], other], "different start_sha256"),
        (runs, "expected a finished run. Continue it with: python -m reproduction tsp --resume"),
        ([runs[0]] * 2, "twice"),
    ):
        capsys.readouterr()
        assert main(["tsp-paired", *given, "--out", str(tmp_path / "no")]) == 1
        assert said in capsys.readouterr().err
    start.write_bytes((tmp_path / "other" / "model.safetensors").read_bytes())
    assert main(["tsp-paired", runs[0], "--instances", "8", "--out", str(tmp_path / "no")]) == 1
    assert "has changed since the run was started" in capsys.readouterr().err
    assert not (tmp_path / "no").exists()
