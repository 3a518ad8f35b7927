"""Steps until a share is solved: read from runs, and tabulated with confidence intervals."""

from __future__ import annotations

import json
from pathlib import Path

from reproduction.harness.folder import create
from reproduction.harness.statistics import minus, over_seeds
from reproduction.lm.figures import Reached, read_reached, steps_table
from reproduction.lm.settings import LMSettings


def run(path: Path, solved: list[float], **changes: object) -> Path:
    """The folder of a run with a validation every 10 steps."""
    folder = create(path)
    folder.write_settings(LMSettings(**changes))
    records: list[dict[str, object]] = [{"split": "train", "step": 1, "epoch": 0, "loss": 0.0}]
    records += [
        {"split": "valid", "step": 10 * i, "epoch": i, "solved": x, "right": x / 2}
        for i, x in enumerate(solved)
    ]
    folder.write_text("metrics.jsonl", "".join(f"{json.dumps(r)}\n" for r in records))
    return path


def test_the_first_validation_above_the_target_counts(tmp_path: Path) -> None:
    path = run(tmp_path / "run", [0.1, 0.9, 0.96, 0.9, 1.0], seed=3, estimator="rloo")
    assert read_reached(path, 0.95) == Reached("rloo", 3, 20, 40)
    assert read_reached(path, 0.95, "right") == Reached("rloo", 3, None, 40)
    assert read_reached(path, 0.5, "right") == Reached("rloo", 3, 40, 40)


def test_the_table_has_medians_intervals_and_differences() -> None:
    reached = [
        *(Reached("unordered_set", s, steps, 100) for s, steps in enumerate((10, 20, 60))),
        *(Reached("rloo", s, steps, 90) for s, steps in enumerate((20, 40, None, 95))),
    ]
    _, low, high = over_seeds([10.0, 20.0, 60.0])
    table = steps_table(reached, 0.95, "greedy").splitlines()
    assert "until 95 % are solved, greedy" in table[0]
    assert "not in 90 steps" in table[0]
    first, second = ([cell.strip() for cell in line.split("|")[2:-1]] for line in table[2:4])
    assert first == ["3", "0", "20", f"30.0 (−{-low:.1f} to {high:.1f})", "10, 20, 60"]
    assert second[:3] == ["4", "2", "65"]
    assert second[3:] == ["≥ 60.0", "20, 40, > 90, > 90"]
    _, low, high = over_seeds([-10.0, -20.0, -30.0])
    assert table[-1].endswith(f"by seed: −20.0 (−{-low:.1f} to {minus(f'{high:+.1f}')}) steps.")


def test_a_median_that_half_of_the_runs_miss_is_a_bound() -> None:
    reached = [Reached("rloo", s, steps, 90) for s, steps in enumerate((20, None, None))]
    assert "| > 90 | ≥ 66.7 | 20, > 90, > 90 |" in steps_table(reached, 0.95, "greedy")


def test_one_run_has_no_interval() -> None:
    table = steps_table([Reached("rloo", 0, 30, 100)], 0.9, "sampled")
    assert "| 30.0 | 30 |" in table
    assert "minus" not in table
