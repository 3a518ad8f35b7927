"""Small problems that several tests share."""

from __future__ import annotations

from collections import Counter

import torch
from scipy.stats import chisquare


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def log_probabilities(*shape, seed=0, scale=1.0, dtype=torch.float64):
    return (scale * torch.randn(*shape, generator=seeded(seed), dtype=dtype)).log_softmax(-1)


def chi_square(observed: Counter, expected: dict, draws: int) -> float:
    """The p-value of counts against probabilities; everything observed must be expected."""
    assert set(observed) <= set(expected), set(observed) - set(expected)
    keys = [key for key, p in expected.items() if p * draws >= 5]
    rest = draws - sum(observed[key] for key in keys)
    rest_expected = draws - sum(expected[key] * draws for key in keys)
    counts = [observed[key] for key in keys]
    means = [expected[key] * draws for key in keys]
    if rest_expected > 5:
        counts, means = [*counts, rest], [*means, rest_expected]
    scale = sum(counts) / sum(means)
    return chisquare(counts, [m * scale for m in means]).pvalue
