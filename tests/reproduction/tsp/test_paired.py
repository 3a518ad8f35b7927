"""The command ``tsp-paired``: differences of runs on the same instances."""

from __future__ import annotations

import math
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from reproduction.cli import main
from reproduction.tsp.model import load_attention_model
from reproduction.tsp.optimal import optimal_lengths
from reproduction.tsp.paired import OURS, paired_rows, paired_table
from reproduction.tsp.problem import validation_instances
from reproduction.tsp.rollout import greedy_lengths

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
    arrays, instances = np.load(out / "final_gaps.npz"), validation_instances(8, 5)
    for name, folder in (("rloo", runs[1]), ("start", str(start.parent))):
        model = load_attention_model(Path(folder) / "model.safetensors")
        ratios = greedy_lengths(model, instances).double() / optimal_lengths(instances)
        key = "start" if name == "start" else f"{name}-0"
        assert arrays[key] == pytest.approx((100 * (ratios - 1)).numpy(), abs=1e-4)
    assert table.loc["rloo", "gap"] == pytest.approx(arrays["rloo-0"].mean())
    apart = arrays["rloo-0"] - arrays["unordered_set-0"]
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


def test_an_earlier_comparison_stands_for_its_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    start = Path(train(tmp_path / "start", "rloo", 9)) / "model.safetensors"
    begin = ("--start-from", str(start))
    names = ("unordered_set", "rloo", "risk")
    runs = [train(tmp_path / name, name, 0, *begin) for name in names]
    paired = partial(compare, tmp_path)
    assert paired(*runs, out="whole") == 0
    assert paired(*runs[:2], out="earlier") == 0
    earlier = str(tmp_path / "earlier")
    for path in (Path(runs[0]), Path(runs[1]), start):  # of which nothing is needed any more
        path.unlink() if path.is_file() else shutil.rmtree(path)
    assert paired(earlier, runs[2], out="both") == 0
    whole, both = (pd.read_csv(tmp_path / name / "paired.csv") for name in ("whole", "both"))
    pd.testing.assert_frame_equal(whole, both)
    assert both["minus_start"].notna().all()

    def refused(*given: str, instances: int = 8) -> str:
        capsys.readouterr()
        assert paired(*given, out="no", instances=instances) == 1
        assert not (tmp_path / "no").exists()
        return capsys.readouterr().err

    assert "Give --instances of that comparison" in refused(earlier, instances=6)
    assert "two of the folders have a run of unordered_set" in refused(
        earlier, str(tmp_path / "both")
    )
    assert "different start_sha256" in refused(earlier, train(tmp_path / "other", "risk", 0))
    (tmp_path / "earlier" / "final_gaps.npz").write_bytes(b"PK damaged")
    assert "cannot be read" in refused(earlier)


def compare(folder: Path, *runs: str, out: str, instances: int = 8) -> int:
    """Run the command on folders, and return its exit code."""
    options = ["--instances", str(instances), "--out", str(folder / out)]
    return main(["tsp-paired", *runs, *options])
