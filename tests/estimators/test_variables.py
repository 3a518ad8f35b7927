"""Distributions that an estimator is not defined for are refused by name."""

from __future__ import annotations

import pytest
from proofs import Problem

import swor


def test_undefined_distributions_are_refused_by_name() -> None:
    problem = Problem("categorical")
    with pytest.raises(TypeError, match="OneHotCategorical"):
        swor.gumbel_softmax(problem.f, problem.dist, 1)
    with pytest.raises(TypeError, match="use arsm"):
        swor.disarm(problem.f, problem.dist, 1)
    with pytest.raises(ValueError, match="positive"):
        swor.straight_through(problem.f, Problem("one_hot").dist, 1, temperature=0.0)
    with pytest.raises(ValueError, match="evaluations"):
        swor.ESTIMATORS["arsm"].evaluations(1)
    with pytest.raises(ValueError, match="k is 4"):
        swor.local_unordered_set(problem.f, problem.dist, 4)
    with pytest.raises(ValueError, match="Use relax with a ControlVariate"):
        swor.rebar(lambda x: (x[..., 0] > 0.5).double(), Problem("one_hot").dist, 1)
    with pytest.raises(ValueError, match="cost has shape"):
        swor.arsm(lambda x: x.sum(), Problem("bernoullis").dist, 1)
