"""What a small loss costs: the number of dispatched operations, which is exact, does not grow."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))

from operations import counts

MOST = {  # outcomes, k: sampler, rule, loss, backward
    (100, 4): (25, 37, 16, 18),
    (100, 8): (25, 53, 16, 18),
    (100, 16): (25, 115, 16, 18),
    (1000, 8): (40, 53, 16, 18),
}


@pytest.mark.parametrize("outcomes, k", MOST)
def test_a_loss_takes_few_operations(outcomes: int, k: int) -> None:
    found = counts(outcomes, k)
    parts = ("sampler", "rule", "loss", "backward")
    for part, most in zip(parts, MOST[outcomes, k], strict=True):
        assert found[part] <= most, part


@pytest.mark.parametrize("k, most", [(1, 28), (2, 34), (10, 61), (11, 115), (64, 115)])
def test_the_rule_takes_few_operations_for_any_k(k: int, most: int) -> None:
    assert counts(1000, k)["rule"] <= most
