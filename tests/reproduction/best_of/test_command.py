"""The command ``best-of-figures``: runs for the mean and for the best of m are told apart and compared."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from run_results import logged

from reproduction.cli import main

TINY = ["lm", "--digits", "2", "--base", "3", "--width", "8", "--heads", "1", "--layers", "1"]
TINY += ["--batch-size", "4", "--validate-every", "3", "--validation-size", "5", "--epochs", "2"]
TINY += ["--cpu", "--k", "3"]


@pytest.mark.filterwarnings("ignore")
def test_the_table_has_the_last_validations_of_every_objective(tmp_path: Path) -> None:
    options = {
        "mean": ["--validate-best-of", "2"],
        "independent": ["--best-of", "2", "--estimator", "rloo"],
        "distinct": ["--best-of", "2"],
    }
    for name, given in options.items():
        assert main([*TINY, *given, "--out", str(tmp_path / name)]) == 0
    runs, out = [str(tmp_path / name) for name in options], tmp_path / "figures"
    assert main(["best-of-figures", *runs, "--out", str(out)]) == 0
    with (out / "table.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["objective"] for row in rows] == list(options)
    for row in rows:
        last = [x for x in logged(tmp_path / row["objective"]) if x["split"] == "valid"][-1]
        assert float(row["best_of_solved"]) == pytest.approx(last["best_of_solved"], abs=1e-4)
        assert float(row["sampled_solved"]) == pytest.approx(last["sampled_solved"], abs=1e-4)
    lines = (out / "table.md").read_text().splitlines()
    assert lines[0] == "| trained for | one sample | best of 2 | best of 2, each seed |"
    best = float(rows[2]["best_of_solved"])
    assert lines[-1].startswith("| the best of 2, distinct samples |")
    assert lines[-1].endswith(f"| {best:.2f} | {best:.2f} |")
    assert (out / "curves.png").stat().st_size > 10_000


@pytest.mark.filterwarnings("ignore")
def test_mistakes_are_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain, two, three = (tmp_path / name for name in ("plain", "two", "three"))
    assert main([*TINY, "--out", str(plain)]) == 0
    assert main([*TINY, "--best-of", "2", "--out", str(two)]) == 0
    assert main([*TINY, "--best-of", "3", "--out", str(three)]) == 0
    for runs, message in (
        ([], "no runs were given"),
        ([tmp_path / "nowhere"], "there is no"),
        ([plain], "was not validated with the best of m"),
        ([two, three], "of different m"),
    ):
        assert main(["best-of-figures", *map(str, runs), "--out", str(tmp_path / "out")]) == 1
        assert message in capsys.readouterr().err.replace("\n", " ")
