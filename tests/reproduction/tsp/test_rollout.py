"""The rollout baseline: an average at first, then the greedy tours of the best model."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import swor
from reproduction.tsp.model import AttentionModel
from reproduction.tsp.problem import random_instances, tour_length
from reproduction.tsp.rollout import RolloutBaseline
from reproduction.tsp.settings import ModelSettings

SMALL = ModelSettings(width=16, heads=2, layers=1, hidden=16)


def rollout_of(model: AttentionModel) -> RolloutBaseline:
    return RolloutBaseline(model, nodes=5, size=50, seed=0)


def test_the_frozen_model_decodes_greedily_after_the_first_epoch() -> None:
    model = AttentionModel(SMALL).eval()
    rollout = rollout_of(model)
    x = random_instances(4, 5, generator=torch.Generator().manual_seed(1))
    assert rollout(x, torch.full((4, 1), 3.0)).eq(0).all()
    assert rollout(x, torch.full((4, 1), 1.0)).eq(3).all()
    torch.testing.assert_close(rollout(x, torch.ones(4, 1)), torch.full((4, 1), 2.6))
    rollout.end_epoch(model)
    expected = tour_length(x, swor.beam_search(model(x), 1).value).squeeze(1)
    torch.testing.assert_close(rollout(x, torch.ones(4, 1)).squeeze(1), expected)


def test_a_better_model_takes_over_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def lengths(model: AttentionModel, x: Tensor) -> Tensor:
        """The longer the larger the first number of the placeholder is, give or take."""
        seen.append(x)
        noise = torch.randn(len(x), generator=torch.Generator().manual_seed(len(seen)))
        return 3 + model.decoder.placeholder[0, 0].detach() + noise

    monkeypatch.setattr("reproduction.tsp.rollout.greedy_lengths", lengths)
    model = AttentionModel(SMALL)
    rollout = rollout_of(model)
    for change, replaced in [(-1.0, 1), (0.0, 1), (2.0, 1), (-4.0, 2)]:
        with torch.no_grad():
            model.decoder.placeholder[0, 0] += change
        assert rollout.end_epoch(model)["rollout_replaced"] == replaced
    torch.testing.assert_close(rollout.best.state_dict(), model.state_dict())
    assert torch.equal(seen[2], seen[4])  # the same instances until the model is replaced,
    assert not torch.equal(seen[0], seen[2])  # and then others


def test_the_frozen_model_does_not_follow_the_trained_one() -> None:
    model = AttentionModel(SMALL)
    rollout = rollout_of(model)
    with torch.no_grad():
        model.decoder.placeholder.zero_()
    assert rollout.best.decoder.placeholder.abs().sum() > 0
