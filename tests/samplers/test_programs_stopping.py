"""What docs/programs.md says of stopping rules, by enumeration over all orders of small problems."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import torch
from problems import log_probabilities, seeded

import swor

OUTCOMES, PROBLEMS, COVERAGE = 6, 40, 0.8
ORDERS = torch.tensor(list(permutations(range(OUTCOMES))))
PAGE = Path(__file__).parents[2] / "docs" / "programs.md"


def prefix(log_p, rows, k):
    """The first k outcomes of some of all orders."""
    rest = log_p[ORDERS[rows, k:]].logsumexp(-1)
    return swor.Sample(
        ORDERS[rows, :k], log_p[ORDERS[rows, :k]], rest, scheme="without_replacement"
    )


def moments(seed, extra):
    """The mean number of runs, the bias and the root mean squared error."""
    log_p = log_probabilities(OUTCOMES, seed=seed, scale=1.5)
    f = torch.randn(OUTCOMES, generator=seeded(1000 + seed), dtype=torch.float64)
    nothing = torch.full((len(ORDERS),), -torch.inf, dtype=torch.float64)
    probability = swor.log_prob_ordered(log_p[ORDERS], nothing).exp()
    covered = log_p[ORDERS].exp().cumsum(-1) >= COVERAGE
    stop = (OUTCOMES - covered.sum(-1) + 1 + extra).clamp(max=OUTCOMES)
    estimate = torch.zeros_like(probability)
    for k in stop.unique().tolist():
        rows = torch.nonzero(stop == k).squeeze(-1)
        sample = prefix(log_p, rows, k)
        rule = swor.sum_and_sample(sample, m=extra) if extra else swor.unordered_set(sample)
        estimate[rows] = rule.mean(f[sample.value])
    error = estimate - (log_p.exp() * f).sum()
    runs, bias = (probability * stop).sum(), (probability * error).sum()
    return torch.stack([runs, bias, (probability * error.square()).sum().sqrt()])


def summary(extra):
    runs, bias, error = torch.stack([moments(seed, extra) for seed in range(PROBLEMS)]).unbind(-1)
    return runs.mean(), bias.square().mean().sqrt(), error.square().mean().sqrt()


def test_the_page_says_what_enumeration_finds():
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    runs, bias, error = summary(extra=0)
    assert f"takes {runs:.1f} runs and has a bias of {bias:.3f} (root mean square)" in text
    assert f"part of a total error of {error:.3f}" in text
    runs, bias, error = summary(extra=1)
    assert bias <= 1e-12
    assert f"`extra=1` takes {runs:.1f} runs, has no bias, and an error of {error:.3f}" in text
