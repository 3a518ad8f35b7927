"""``swor lm`` and ``swor lm-figures``: short runs, resumed and drawn."""

from __future__ import annotations

from pathlib import Path

import pytest
from run_results import logged

from swor.cli import main

TINY = ["--digits", "2", "--base", "3", "--width", "8", "--heads", "1", "--layers", "1", "--cpu"]
TINY += ["--batch-size", "4", "--validate-every", "3", "--validation-size", "5", "--log-every", "1"]


@pytest.mark.filterwarnings("ignore")
def test_runs_resume_to_the_same_numbers_and_are_drawn(tmp_path: Path) -> None:
    for estimator in ("unordered_set", "reinforce"):
        whole, parts = tmp_path / estimator, tmp_path / f"{estimator}-parts"
        options = ["lm", "--estimator", estimator, *TINY]
        assert main([*options, "--epochs", "2", "--out", str(whole)]) == 0
        assert main([*options, "--epochs", "1", "--out", str(parts)]) == 0
        assert main(["lm", "--resume", str(parts), "--epochs", "2"]) == 0
        assert logged(whole) == logged(parts)
        assert len(logged(whole)) == 9
    runs = [str(tmp_path / e) for e in ("unordered_set", "reinforce")]
    figures = tmp_path / "figures"
    assert main(["lm-figures", *runs, "--out", str(figures)]) == 0
    assert (figures / "curves.png").stat().st_size > 10_000
    assert (figures / "curves.csv").read_text().count("reinforce,0,train,duplicates") == 6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["lm", "--k", "1"], "k is 1; expected at least 2"),
        (["lm", "--base", "1"], "base is 1; expected at least 2"),
        (["lm", "--digits", "0"], "digits is 0; expected more than 0"),
        (["lm", "--heads", "3"], "expected a width that the heads can share"),
        (["lm-figures"], "no runs were given"),
    ],
)
def test_mistakes_are_explained(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 1
    assert message in capsys.readouterr().err
