"""The command ``tsp-figures`` reads runs, and folders that it wrote before, which stand for their runs."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from reproduction.cli import main
from reproduction.harness.errors import UserError
from reproduction.harness.folder import RunFolder
from reproduction.tsp.ranking import Sampled, read_gaps, read_sampled, sampled_table
from reproduction.tsp.settings import TSPSettings

SETTINGS = TSPSettings(nodes=5, steps=400, validate_every=100)


def write_run(folder: Path, *, scale: float = 1.0, **changes) -> Path:
    """Write the settings and metrics of a run whose gap falls, with log p = -length * scale."""
    settings = replace(SETTINGS, **changes)
    RunFolder(folder).write_json("settings.json", {"settings": asdict(settings)})
    lines = []
    for step in range(0, settings.steps + 1, 100):
        valid = {"split": "valid", "step": step, "epoch": step // 100, "length": 3.0}
        lines.append(valid | {"gap": scale * (9.0 - step / 100), "gap_standard_error": 0.1})
        for train in (step - 50, step) if step else ():
            at = train / 100
            lines.append({"split": "train", "step": train, "length": at, "log_p": -scale * at})
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "metrics.jsonl").write_text(text)
    return folder


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    return [
        write_run(tmp_path / "a", estimator="rloo", seed=0, scale=2.0),
        write_run(tmp_path / "b", estimator="rloo", seed=1, scale=4.0),
        write_run(tmp_path / "c", estimator="risk", seed=0, steps=500, scale=9.0),
        write_run(tmp_path / "d", estimator="rloo", seed=2, scale=6.0),
    ]


def draw(out: Path, *folders: Path) -> dict[str, str]:
    """Call the command, and return the tables that it writes."""
    assert main(["tsp-figures", *map(str, folders), "--out", str(out)]) == 0
    return {p.name: p.read_text() for p in out.iterdir() if p.suffix in (".csv", ".md")}


def test_sampled_tours_are_means_over_runs_of_the_last_quarter(runs: list[Path]) -> None:
    rloo, risk = read_sampled(runs, 400)  # of the steps 350 and 400
    assert rloo == Sampled("rloo", 400, 3, -15.0, 3.75)
    assert risk == Sampled("risk", 400, 1, -33.75, 3.75)
    assert read_sampled(runs, 40) == []
    lines = sampled_table([rloo, risk]).splitlines()
    assert lines[0] == "| estimator | runs | mean log p of the tours | mean length |"
    assert lines[2] == "| RLOO | 3 | −15.00 | 3.750 |"


def test_runs_can_be_added_to_a_comparison_whose_runs_are_gone(
    runs: list[Path], tmp_path: Path
) -> None:
    whole = draw(tmp_path / "whole", *runs)
    draw(tmp_path / "part", *runs[:3])
    for run in runs[:3]:
        (run / "metrics.jsonl").unlink()
    assert draw(tmp_path / "both", tmp_path / "part", runs[3]) == whole
    gaps = read_gaps([tmp_path / "part"])
    assert list(gaps[gaps["steps"] == 0]["trained"]) == [False] * 3
    assert {"gaps.csv", "ranking.csv", "ranking.md", "sampled.csv", "sampled.md"} == set(whole)


def test_sampled_tours_are_in_the_order_of_the_ranking(runs: list[Path], tmp_path: Path) -> None:
    tables = draw(tmp_path / "out", runs[2], runs[0])  # the worse one first
    for name in ("ranking.csv", "sampled.csv"):
        rows = [line.split(",")[0] for line in tables[name].splitlines()]
        assert rows == ["estimator", "rloo", "risk"]


def test_sampled_tours_of_another_number_of_steps_are_left_out(
    runs: list[Path], tmp_path: Path
) -> None:
    draw(tmp_path / "part", *runs[:2])
    short = write_run(tmp_path / "short", estimator="risk", steps=200)
    tables = draw(tmp_path / "both", tmp_path / "part", short)
    assert [line.split(",")[:3] for line in tables["sampled.csv"].splitlines()[1:]] == [
        ["risk", "200", "1"]
    ]


def test_a_run_in_two_folders_is_refused(runs: list[Path], tmp_path: Path) -> None:
    draw(tmp_path / "part", *runs[:2])
    with pytest.raises(UserError, match="two of the folders have a run of rloo with seed 1"):
        read_gaps([tmp_path / "part", runs[1]])
    with pytest.raises(UserError, match="one run for each of them and each seed"):
        read_gaps([runs[0], runs[0]])


def test_runs_without_a_validation_are_refused(runs: list[Path]) -> None:
    (runs[0] / "metrics.jsonl").write_text("")
    with pytest.raises(UserError, match=r"no run in .*a has been validated"):
        read_gaps(runs[:1])


@pytest.mark.parametrize(
    ("before", "after"), [("False", "no"), ("gap_standard_error", "error"), (",2,", ",two,")]
)
def test_a_damaged_comparison_is_refused(
    before: str, after: str, runs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    draw(tmp_path / "part", *runs)
    path = tmp_path / "part" / "gaps.csv"
    assert before in path.read_text()
    path.write_text(path.read_text().replace(before, after, 1))
    assert main(["tsp-figures", str(path.parent), "--out", str(tmp_path / "no")]) == 1
    error = capsys.readouterr().err
    assert "gaps.csv cannot be read" in error
    assert "expected the table that python -m reproduction tsp-figures wrote" in error
    assert not (tmp_path / "no").exists()
