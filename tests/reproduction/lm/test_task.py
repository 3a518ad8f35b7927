"""What the language model is trained by: an unbiased loss, and statistics of its groups."""

import pytest
import torch

import swor
from reproduction.harness.task import seeded
from reproduction.lm.settings import LMSettings
from reproduction.lm.task import SortingTask, statistics
from swor.integrations.transformers import completion_log_probs


def test_statistics_count_duplicates_and_groups_without_signal():
    value = torch.tensor([[[1, 2], [1, 2], [1, 2], [2, 2]], [[0, 0], [1, 1], [2, 2], [3, 3]]])
    sample = swor.Sample(value, torch.zeros(2, 4), scheme=swor.Scheme.WITH_REPLACEMENT)
    found = statistics(sample, torch.tensor([[0.5, 0.5, 0.5, 0.5], [0.0, 1.0, 0.0, 0.0]]))
    assert found["duplicates"].tolist() == [0.5, 0.0]
    assert found["no_signal"].tolist() == [1.0, 0.0]
    assert torch.allclose(
        found["effective_sample_size"], torch.tensor([1 / (9 / 16 + 1 / 16), 4.0])
    )


@pytest.mark.parametrize("estimator", ["unordered_set", "rloo"])
def test_the_loss_estimates_the_log_of_success_up_to_its_order(estimator):
    """Against log P up to the order 2, where one completion of 10 or so is right."""
    sizes = {"digits": 1, "base": 2, "width": 8, "heads": 1, "layers": 1}
    task = SortingTask(LMSettings(estimator=estimator, k=3, reward="exact", log_success=2, **sizes))
    prompt = torch.tensor([[1, task.problem.separator]])
    failure = 1.0 - completion_log_probs(task.model, prompt, task.problem.answers(prompt)).exp()
    exact, weights = (failure + failure**2 / 2).sum(), list(task.model.parameters())
    truth = torch.cat([g.flatten() for g in torch.autograd.grad(exact, weights)])
    loss, _ = task.loss(prompt.expand(4000, -1), seeded("noise"))
    assert float(loss.detach()) == pytest.approx(float(exact.detach()), abs=0.04)
    found = torch.cat([g.flatten() for g in torch.autograd.grad(loss, weights)])
    assert float((found - truth).norm() / truth.norm()) < 0.2


@pytest.mark.parametrize("estimator", ["unordered_set", "rloo"])
def test_the_loss_estimates_the_negative_reward_and_its_gradient(estimator):
    """Against the sum over all completions of one prompt: (2 + 2)^2 of them, ended ones filled up."""
    settings = LMSettings(estimator=estimator, digits=1, base=2, width=8, heads=1, layers=1, k=3)
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
