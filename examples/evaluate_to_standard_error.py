"""Evaluate a model until its score is known to a given standard error, with as few runs as that takes.

A small network learns to sort digits. Its answers are sampled, as those of a language model are, and we want
the expected share of wrong digits for every question. Independent runs repeat the answers that the model
is sure of; distinct ones do not. Run it with `python examples/evaluate_to_standard_error.py`.
"""

from __future__ import annotations

import argparse

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import swor
from swor.samplers.programs import Choose

DIGITS, BASE = 4, 6
AT_LEAST, EXTRA = 20, 4  # runs before a standard error is trusted, and after it is small enough


class Sorter(nn.Module):
    """The next digit of the answer, from the question and the answer so far."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(2 * DIGITS * (BASE + 1), 128), nn.ReLU(), nn.Linear(128, BASE)
        )

    def forward(self, question: Tensor, answer: Tensor) -> Tensor:
        missing = F.pad(answer, (0, DIGITS - answer.shape[-1]), value=BASE)
        both = F.one_hot(torch.cat([question, missing], dim=-1), BASE + 1)
        return self.layers(both.flatten(-2).float()).log_softmax(-1)


def train(model: Sorter, steps: int) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(steps):
        question = torch.randint(BASE, (256, DIGITS))
        right, t = question.sort(-1).values, step % DIGITS
        loss = F.nll_loss(model(question, right[:, :t]), right[:, t])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def answer(model: Sorter, question: Tensor, choose: Choose) -> float:
    """The share of wrong digits in an answer, every digit of which is a random choice."""
    digits = torch.empty(0, dtype=torch.long)
    for _ in range(DIGITS):
        digits = torch.cat([digits, torch.tensor([choose(model(question, digits))])])
    return (digits != question.sort().values).float().mean().item()


def independent(model: Sorter, question: Tensor, target: float) -> tuple[int, float]:
    """The number of independent runs, and the estimate."""
    costs: list[float] = []
    while len(costs) < AT_LEAST or torch.tensor(costs).std() > target * len(costs) ** 0.5:
        costs.append(answer(model, question, lambda log_p: int(log_p.exp().multinomial(1))))
    return len(costs), sum(costs) / len(costs)


def distinct(model: Sorter, question: Tensor, target: float) -> tuple[int, float]:
    """The number of distinct runs, and the estimate."""
    runs = swor.DistinctRuns(lambda choose: answer(model, question, choose))
    runs.draw_until(standard_error=target, at_least=AT_LEAST, extra=EXTRA)
    weights = swor.sum_and_sample(runs.sample(), m=EXTRA)  # unbiased, whenever we stopped
    return runs.k, weights.mean(runs.costs()).item()


@torch.no_grad()
def evaluate(model: Sorter, questions: Tensor, target: float) -> None:
    exact = torch.zeros(len(questions))
    for i, question in enumerate(questions):
        runs = swor.DistinctRuns(lambda choose, q=question: answer(model, q, choose))
        runs.draw_until(coverage=0.99999)
        exact[i] = swor.unordered_set(runs.sample()).mean(runs.costs())
    print(f"{len(questions)} questions, to a standard error of {target} each:")
    for method in (independent, distinct):
        found = [method(model, question, target) for question in questions]
        error = (torch.tensor([mean for _, mean in found]) - exact).square().mean().sqrt()
        count = sum(k for k, _ in found) / len(questions)
        print(f"{method.__name__:>12}: {count:6.1f} runs per question, true error {error:.4f}")


def main(steps: int = 200, questions: int = 10, target: float = 0.01) -> None:
    torch.manual_seed(0)
    model = Sorter()
    train(model, steps)
    evaluate(model, torch.randint(BASE, (questions, DIGITS)), target)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--questions", type=int, default=10)
    parser.add_argument("--target", type=float, default=0.01)
    main(**vars(parser.parse_args()))
