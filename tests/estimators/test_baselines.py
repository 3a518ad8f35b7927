"""Baselines: what they are, without gradient, saved with the model."""

from __future__ import annotations

import io

import pytest
import torch
from proofs import Problem, expected
from torch import Tensor

import swor
from swor.diagnostics.enumeration import exact_moments
from swor.estimators.baselines import BatchMean, BuiltIn, Greedy, NoBaseline, Sampled


@pytest.mark.parametrize("batch", [(), (1,), (4,), (2, 3)])
def test_batch_mean_is_the_mean_of_the_others(batch: tuple[int, ...]) -> None:
    cost = torch.randn(*batch, 5, generator=torch.Generator().manual_seed(0))
    baseline = swor.batch_mean(cost)
    assert baseline.shape == (*batch, 1)
    rows = cost.reshape(-1, 5)
    for i, b in enumerate(baseline.flatten()):
        others = torch.cat([rows[:i], rows[i + 1 :]])
        torch.testing.assert_close(b, others.mean() if len(others) else torch.zeros(()))


def test_greedy_evaluates_the_mode_in_the_encoding_of_the_distribution() -> None:
    for name in ("categorical", "one_hot", "bernoulli", "categoricals", "one_hots", "square"):
        problem = Problem(name, 2, 3)
        seen: list[Tensor] = []

        def f(x: Tensor, seen: list[Tensor] = seen, problem: Problem = problem) -> Tensor:
            seen.append(x)
            return problem.f(x)

        assert swor.greedy(f, problem.dist).shape == (2, 3, 1)
        assert torch.equal(seen[0].squeeze(2).double(), problem.dist.mode.double())


def test_no_baseline_carries_gradient() -> None:
    problem = Problem("categorical", 4)
    cost = problem.f(torch.zeros(4, 2, dtype=torch.long))
    baselines = [
        swor.batch_mean(cost),
        swor.sampled_baseline(problem.f, problem.dist, 2),
        swor.greedy(problem.f, problem.dist),
        swor.MovingAverage()(cost),
    ]
    assert not any(b.requires_grad for b in baselines)


def test_moving_average_subtracts_what_came_before() -> None:
    average = swor.MovingAverage(decay=0.8)
    problem = Problem("categorical", 3)
    assert average(problem.f(torch.zeros(3, 1, dtype=torch.long)) * 0 + 2.0) == 0.0
    before = average.average.clone()
    shifted = lambda x: problem.f(x) + 2.0  # noqa: E731
    options = {"average": average, "generator": torch.Generator().manual_seed(0)}
    moments = problem.moments(swor.reinforce_moving_average(shifted, problem.dist, 2, **options))
    drawn = swor.sample(
        problem.dist, 2, replacement=True, generator=torch.Generator().manual_seed(0)
    )
    expected_loss = swor.rloo(drawn).loss(shifted(drawn.value), baseline=float(before))
    torch.testing.assert_close(moments, problem.moments(expected_loss))
    mean = shifted(drawn.value).mean().detach().float()
    torch.testing.assert_close(average.average, 0.8 * before + 0.2 * mean)


def test_moving_average_is_saved() -> None:
    average, other = swor.MovingAverage(), swor.MovingAverage()
    average(torch.full((3,), 7.0))
    file = io.BytesIO()
    torch.save(average.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file))
    assert other(torch.zeros(3)) == 7.0
    with pytest.raises(ValueError, match="decay is"):
        swor.MovingAverage(decay=1.0)


def test_a_fresh_sample_for_every_term_differs_from_a_shared_one() -> None:
    problem = Problem("categorical", 200)
    assert swor.sampled_baseline(problem.f, problem.dist, 3).std(-1).max() > 0
    assert swor.sampled_baseline(problem.f, problem.dist, 1).shape == (200, 1)


def test_a_baseline_knows_its_mean_and_its_evaluations() -> None:
    """The mean over additional samples, without a batch, as the exact moments use it."""
    mean_cost, greedy = torch.tensor(2.0), torch.tensor([5.0])
    known = {
        NoBaseline(): (0.0, 0),
        BatchMean(): (torch.zeros(1), 0),  # there are no other elements
        Greedy(): (greedy, 1),
        Sampled(): (torch.full((3,), 2.0), 3),
        Sampled(shared=True): (torch.tensor([2.0]), 1),
    }
    assert BuiltIn().mean(3, mean_cost, lambda: greedy) == "built-in"
    for baseline, (mean, evaluations) in known.items():
        torch.testing.assert_close(baseline.mean(3, mean_cost, lambda: greedy), mean)
        assert baseline.evaluations(3) == evaluations


@pytest.mark.parametrize("name", ["reinforce_greedy", "reinforce_sampled_baseline"])
def test_exact_moments_are_the_mean_over_all_draws(name: str) -> None:
    entry, problem = swor.ESTIMATORS[name], Problem("categorical")
    moments = exact_moments(
        entry.rule, entry.scheme, problem.f, problem.dist, 2, [problem.logits, problem.psi],
        baseline=entry.baseline,
    )  # fmt: skip
    torch.testing.assert_close(expected(entry, "categorical", 2)[1:], moments.gradient)
