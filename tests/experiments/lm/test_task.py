"""The language model experiment: rewards, statistics, a short run, its figures."""

from __future__ import annotations

import json

import pytest
import torch

import swor
from swor.cli import main
from swor.experiments.lm.problem import Sorting
from swor.experiments.lm.settings import LanguageModel
from swor.experiments.lm.task import SortingTask, statistics
from swor.experiments.runs.task import seeded
from swor.integrations.transformers import completion_log_probs

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


@pytest.mark.parametrize("estimator", ["unordered_set", "reinforce"])
def test_the_loss_estimates_the_negative_reward_and_its_gradient(estimator):
    """Against the sum over all completions of one prompt: (2 + 2)^2 of them, ended ones filled up."""
    settings = LanguageModel(estimator=estimator, digits=1, base=2, width=8, heads=1, layers=1, k=3)
    task = SortingTask(settings)
    prompt = torch.tensor([[1, task.problem.separator]])
    symbols = torch.cartesian_prod(torch.arange(4), torch.arange(4))
    value = torch.unique(symbols.masked_fill(symbols[:, :1] == task.problem.end, 3), dim=0)[None]
    log_p = completion_log_probs(task.model, prompt, value)
    exact = -(log_p.exp() * task.problem.reward(prompt, value)).sum()
    weights = list(task.model.parameters())
    truth = torch.cat([g.flatten() for g in torch.autograd.grad(exact, weights)])
    loss, metrics = task.loss(prompt.expand(4000, -1), seeded("noise"))
    assert float(loss.detach()) == pytest.approx(-float(metrics["reward"]), abs=1e-5)
    assert float(loss.detach()) == pytest.approx(float(exact.detach()), abs=0.02)
    assert (float(metrics["duplicates"]) == 0.0) == (estimator == "unordered_set")
    found = torch.cat([g.flatten() for g in torch.autograd.grad(loss, weights)])
    assert float((found - truth).norm() / truth.norm()) < 0.15


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
