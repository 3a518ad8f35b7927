"""A model that is spread over ranks gives the completions and gradients of the whole model."""

from __future__ import annotations

import copy

import pytest
import torch
from sharded_models import DRAWS, KINDS, NAMES, RANKS, K, found, run
from tiny_models import tiny

CASES = [f"{kind} {name}" for kind in KINDS for name in NAMES]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    return run(tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("case", CASES)
def test_completions_end_at_different_steps_on_different_ranks(case, ranks):
    name = case.split()[-1]
    for rank in range(RANKS):
        alone = found(copy.deepcopy(tiny(name)), name, rank)
        for key in [draw.__name__ for draw in DRAWS] + ["with gradient"]:
            value, log_p = ranks[rank][case][key]
            assert torch.equal(value, alone[key][0]) and value.shape[-2] == K
            assert torch.allclose(log_p, alone[key][1], rtol=0, atol=1e-12)
    early, late = (x[case]["sample_completions"][0] == 0 for x in ranks)
    assert early[..., :3].any(-1).all() and not late[..., :4].any()


@pytest.mark.parametrize("case", [c for c in CASES if "zero3" not in c])
def test_gradients_are_means_over_the_ranks(case, ranks):
    name = case.split()[-1]
    alone = [found(copy.deepcopy(tiny(name)), name, rank)["gradient"] for rank in range(RANKS)]
    for parameter, expected in alone[0].items():
        mean = (expected + alone[1][parameter]) / RANKS
        for rank in range(RANKS):
            gradient = ranks[rank][case]["gradient"][parameter]
            assert torch.allclose(gradient, mean, rtol=1e-5, atol=1e-5), parameter
