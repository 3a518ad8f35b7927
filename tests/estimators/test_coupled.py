"""ARM, DisARM, ARSM and CARMS: their formulas, their coupled outcomes, and the probabilities of these."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from problems import log_probabilities, seeded
from proofs import Problem, assert_unbiased
from torch import Tensor
from torch.distributions import Categorical

import swor
from swor.estimators import coupled
from swor.estimators.coupled import edges, orders, pair_probabilities
from swor.samplers.products import Factorized


def test_disarm_never_has_more_variance_than_arm() -> None:
    variances = []
    for estimate in (swor.disarm, swor.arm):
        problem = Problem("square", 50_000)
        generator = torch.Generator().manual_seed(0)
        moments = problem.moments(estimate(problem.f, problem.dist, 1, generator=generator))
        variances.append(moments[:, 1:-1].var(0))
    assert (variances[0] < variances[1]).all()


def test_arsm_is_its_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    """Term by term for two variables; swaps that are not centred would be unbiased as well."""
    problem = Problem("categoricals")
    noise = torch.randn(1, 2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    monkeypatch.setattr(coupled, "gumbel_like", lambda x, generator: noise)
    gradient = problem.moments(swor.arsm(problem.f, problem.dist, 1))[1:7].reshape(2, 3)
    pi = torch.softmax(-noise[0], -1)
    table = torch.empty(3, 3, dtype=torch.float64)
    for m, j in product(range(3), repeat=2):
        swapped = pi.clone()
        swapped[:, m], swapped[:, j] = pi[:, j], pi[:, m]
        x = (swapped * torch.exp(-problem.logits.detach())).argmin(-1)
        table[m, j] = problem.f(x.unsqueeze(0)).detach().squeeze()
    for i, m in product(range(2), range(3)):
        terms = [(table[m, j] - table[:, j].mean()) * (1 / 3 - pi[i, j]) for j in range(3)]
        torch.testing.assert_close(gradient[i, m], sum(terms))


def test_the_same_test_sees_a_wrong_scale_of_arsm(monkeypatch: pytest.MonkeyPatch) -> None:
    right = coupled.loss_with_gradient
    wrong = lambda variables, cost, gradient: right(variables, cost, gradient / 3)  # noqa: E731
    monkeypatch.setattr(coupled, "loss_with_gradient", wrong)
    with pytest.raises(AssertionError, match="z-scores"):
        assert_unbiased(swor.arsm, "categoricals", 1)


def pairs_of_carms(log_probs: Tensor, k: int) -> Tensor:
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
    joint, p = pairs_of_carms(log_probs, k), log_probs.exp()
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
    # An impossible pair may be 0 up to rounding.
    p = pairs_of_carms(log_probs, k).flatten().clamp(min=1e-15)
    z = (counts / n - p) / (p * (1 - p) / n).sqrt()
    assert z.abs().max() < 4.0
