"""The tables and the figure of the runs beside rl4co, which need no rl4co."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reproduction.cli import main


def test_runs_are_summarised(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    summary = ["rl4co", "--summary", "--out", str(tmp_path)]
    assert main(summary) == 1
    assert "there are no runs" in capsys.readouterr().err
    ways = ("distinct", "sampling", "multistart_sampling", "multistart_greedy")
    for method in ("rloo", "unordered_set"):
        run = {
            "problem": "tsp",
            "method": method,
            "seed": 0,
            "training": [{"solutions": 9, "seconds": 60.0, "cost": 4.0}],
            "best_of_k": {w: {"cost": [5.0, 4.5], "saved": [0, 0], "error": [0, 0]} for w in ways},
        }
        (tmp_path / f"tsp-{method}-0.json").write_text(json.dumps(run))
    assert main(summary) == 0
    assert "| TSP | RLOO | 4.000 | 4.000 | 1.0 |" in capsys.readouterr().out
    assert (tmp_path / "best_of_k.csv").read_text().count("\n") == 2 * 4 * 2 + 1
    assert (tmp_path / "best_of_k.md").read_text().startswith("| problem | decoding | best of 1 |")
    assert (tmp_path / "figure.png").exists()
