"""CARMS: its orders, its pair probabilities and its draws."""

from __future__ import annotations

import pytest
import torch
from problems import log_probabilities, seeded
from torch import Tensor
from torch.distributions import Categorical

import swor
from swor.estimators.coupled import edges, orders, pair_probabilities
from swor.samplers.products import Factorized


def table(log_probs: Tensor, k: int) -> Tensor:
    """P_ij of all pairs of categories, (c, c)."""
    c = log_probs.shape[-1]
    i, j = torch.cartesian_prod(torch.arange(c), torch.arange(c)).T.unsqueeze(1)
    lower, upper = edges(Factorized(log_probs.unsqueeze(-2)), k)
    return pair_probabilities(lower, upper, k, i, j).reshape(c, c)


def test_every_pair_is_at_the_ends_of_one_order() -> None:
    for c in range(2, 7):
        found = orders(c, torch.device("cpu"))
        assert torch.equal(found.sort(-1).values, torch.arange(c).expand_as(found))
        ends = {tuple(sorted((int(row[0]), int(row[-1])))) for row in found}
        assert len(ends) == len(found) == c * (c - 1) // 2


@pytest.mark.parametrize("k", [2, 3, 4, 7])
@pytest.mark.parametrize("c", [2, 3, 5])
def test_pair_probabilities_are_those_of_negatively_dependent_outcomes(c: int, k: int) -> None:
    log_probs = log_probabilities(c, seed=c)
    joint, p = table(log_probs, k), log_probs.exp()
    torch.testing.assert_close(joint.sum(-1), p, rtol=0, atol=1e-14)
    torch.testing.assert_close(joint, joint.mT)
    off = ~torch.eye(c, dtype=torch.bool)
    assert (joint[off] > 0).all()
    assert joint[off].sum() > (p.outer(p))[off].sum()  # equal outcomes are rarer


@pytest.mark.parametrize("k", [2, 3, 5])
def test_draws_have_these_probabilities(k: int) -> None:
    log_probs, n = log_probabilities(4, seed=1), 40_000
    drawn: list[Tensor] = []

    def f(x: Tensor) -> Tensor:
        drawn.append(x)
        return x.double()

    swor.carms(f, Categorical(logits=log_probs.expand(n, 4)), k, generator=seeded(0))
    first, last = drawn[0][:, 0], drawn[0][:, -1]
    counts = torch.bincount(4 * first + last, minlength=16).double()
    p = table(log_probs, k).flatten().clamp(min=1e-15)  # an impossible pair may be 0 up to rounding
    z = (counts / n - p) / (p * (1 - p) / n).sqrt()
    assert z.abs().max() < 4.0
