"""ARM and DisARM."""

from __future__ import annotations

import torch
from proofs import Problem

import swor


def test_disarm_never_has_more_variance_than_arm() -> None:
    variances = []
    for estimate in (swor.disarm, swor.arm):
        problem = Problem("square", 50_000)
        generator = torch.Generator().manual_seed(0)
        moments = problem.moments(estimate(problem.f, problem.dist, 1, generator=generator))
        variances.append(moments[:, 1:-1].var(0))
    assert (variances[0] < variances[1]).all()
