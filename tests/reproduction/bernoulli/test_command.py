"""The command ``bernoulli``: its files, their columns, its figures."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import pytest

from reproduction.bernoulli.command import bernoulli
from reproduction.bernoulli.settings import BernoulliSettings
from reproduction.harness.errors import UserError

NAMES = {
    "reinforce_no_baseline",
    "rloo",
    "reinforce_sampled_baseline",
    "sum_and_sample",
    "sum_and_sample_sampled_baseline",
    "deterministic_sum_and_sample",
    "deterministic_sum_and_sample_sampled_baseline",
    "unordered_set",
    "unordered_set_no_baseline",
    "importance_weighted",
}


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_files(tmp_path: Path) -> None:
    out = tmp_path / "figure"
    bernoulli(BernoulliSettings(out=out, repeats=50, runs=3, steps=4))
    header = (out / "variances.csv").read_text().splitlines()[0]
    assert header == "eta,estimator,k,evaluations,variance,log_variance,method"
    rows = read(out / "variances.csv")
    assert {(float(r["eta"]), r["estimator"], int(r["k"])) for r in rows} == {
        (eta, name, k) for eta in (0.0, -4.0) for name in NAMES for k in range(1, 9)
    }
    for r in rows:
        assert int(r["evaluations"]) == int(r["k"]) * (
            2 if "sampled_baseline" in r["estimator"] else 1
        )
        if 0.0 < float(r["variance"]) < math.inf:
            assert float(r["log_variance"]) == pytest.approx(math.log(float(r["variance"])))
    assert len(read(out / "monte_carlo.csv")) == 160
    assert len(read(out / "trajectory.csv")) == 3 * 5
    settings = json.loads((out / "settings.json").read_text())
    assert settings["settings"]["repeats"] == 50
    assert {"python", "swor", "torch"} <= set(settings["versions"])
    for name in ("figure1", "trajectory"):
        assert (out / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (out / f"{name}.svg").read_text()
    assert not [path for path in out.iterdir() if path.name.startswith(".")]
    with pytest.raises(UserError, match="--out"):
        bernoulli(BernoulliSettings(out=out))
