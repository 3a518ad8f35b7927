"""The language model experiment: rewards, statistics, a short run, its figures."""

from __future__ import annotations

import json

import pytest
import torch

import swor
from swor.cli import main
from swor.experiments.lm.problem import Sorting
from swor.experiments.lm.task import statistics

TINY = ["--digits", "2", "--base", "3", "--width", "8", "--heads", "1", "--layers", "1", "--cpu"]
TINY += ["--batch-size", "4", "--validate-every", "3", "--validation-size", "5", "--log-every", "1"]


def test_the_reward_is_that_of_sorted_digits_and_the_end():
    problem = Sorting(digits=3, base=5)
    prompts = torch.tensor([[4, 0, 4, problem.separator]])
    value = torch.tensor([[[0, 4, 4, 6], [0, 4, 4, 1], [6, 6, 6, 6], [4, 0, 4, 6]]])
    assert problem.reward(prompts, value).tolist() == [[1.0, 0.75, 0.25, 0.5]]
    assert problem.solved(prompts, value).tolist() == [[True, False, False, False]]


def test_statistics_count_duplicates_and_groups_without_signal():
    value = torch.tensor([[[1, 2], [1, 2], [1, 2], [2, 2]], [[0, 0], [1, 1], [2, 2], [3, 3]]])
    sample = swor.Sample(value, torch.zeros(2, 4), scheme=swor.Scheme.WITH_REPLACEMENT)
    found = statistics(sample, torch.tensor([[0.5, 0.5, 0.5, 0.5], [0.0, 1.0, 0.0, 0.0]]))
    assert found["duplicates"].tolist() == [0.5, 0.0]
    assert found["no_signal"].tolist() == [1.0, 0.0]
    assert torch.allclose(
        found["effective_sample_size"], torch.tensor([1 / (9 / 16 + 1 / 16), 4.0])
    )


@pytest.mark.filterwarnings("ignore")
def test_runs_resume_to_the_same_numbers_and_are_drawn(tmp_path, capsys):
    for estimator in ("unordered_set", "reinforce"):
        whole, parts = tmp_path / estimator, tmp_path / f"{estimator}-parts"
        options = ["lm", "--estimator", estimator, *TINY]
        assert main([*options, "--epochs", "2", "--out", str(whole)]) == 0
        assert main([*options, "--epochs", "1", "--out", str(parts)]) == 0
        assert main(["lm", "--resume", str(parts), "--epochs", "2"]) == 0
        records = [(run / "metrics.jsonl").read_text().splitlines() for run in (whole, parts)]
        plain = [[{**json.loads(x), "seconds": 0} for x in lines] for lines in records]
        assert plain[0] == plain[1] and len(plain[0]) == 9
    runs = [str(tmp_path / e) for e in ("unordered_set", "reinforce")]
    assert main(["lm-figures", *runs, "--out", str(tmp_path / "figures")]) == 0
    assert (tmp_path / "figures" / "curves.png").stat().st_size > 10_000
    assert (tmp_path / "figures" / "curves.csv").read_text().count(
        "reinforce,0,train,duplicates"
    ) == 6


def test_settings_that_make_no_sense(capsys):
    assert main(["lm", "--k", "1"]) == 1
    assert "k is 1; expected at least 2" in capsys.readouterr().err
