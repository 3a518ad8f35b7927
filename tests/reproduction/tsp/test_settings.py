"""Settings of the travelling salesman: the paper's by default, others refused."""

from __future__ import annotations

from typing import get_args

import pytest

import swor
from reproduction.harness.errors import UserError
from reproduction.tsp.measurement_settings import TSPFigures
from reproduction.tsp.settings import SINGLE, ModelSettings, Name, TSPSettings
from reproduction.tsp.task import TOUR_ESTIMATORS


def test_every_estimator_can_be_named() -> None:
    assert get_args(Name) == tuple(TOUR_ESTIMATORS)
    own = {"reinforce_rollout", "risk_beam_search"}
    for name in set(TOUR_ESTIMATORS) - own:  # a name means the same here and in the library
        assert TOUR_ESTIMATORS[name] is swor.ESTIMATORS[name].function
    assert not own & set(swor.ESTIMATORS)


@pytest.mark.parametrize("name", get_args(Name))
def test_defaults_are_the_papers(name: Name) -> None:
    settings = TSPSettings(estimator=name).resolved()
    assert (settings.k, settings.batch_size) == ((1, 512) if name in SINGLE else (4, 128))
    assert (settings.learning_rate, settings.clip, settings.nodes) == (1e-4, 1.0, 20)
    assert (settings.validate_every, settings.epochs) == (2500, 100)


def test_what_is_given_changes_the_other_defaults() -> None:
    assert TSPSettings(k=8).instances == 64
    assert TSPSettings(k=600).instances == 1
    short = TSPSettings(steps=100)
    assert (short.epoch_steps, short.epochs) == (100, 1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 5, "validate_every": 2}, "multiple of 2"),
        ({"steps": 0}, "steps is 0; expected more than 0"),
        ({"estimator": "reinforce_rollout", "k": 2}, "expected k = 1"),
        ({"nodes": 1}, "nodes is 1; expected at least 2"),
        ({"rollout_size": 1}, "rollout_size is 1; expected at least 2"),
        ({"batch_size": 0}, "batch_size is 0; expected more than 0"),
        ({"nodes": 3, "k": 7}, "only 6 tours of 3 nodes.*Lower --k"),
        ({"nodes": 3, "k": 7, "estimator": "risk_beam_search"}, "only 6 tours of 3 nodes"),
        (
            {"learning_rate": float("inf")},
            "learning_rate is inf; expected more than 0, and a finite",
        ),
        ({"seed": 2**70}, "expected an integer of 64 bits"),
        ({"keep_every": -1}, "keep_every is -1; expected at least 0"),
        ({"estimator": "reinforce_batch_mean", "batch_size": 1}, "two instances"),
    ],
)
def test_settings_that_make_no_run(changes: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        TSPSettings(**changes)


def test_as_many_tours_as_there_are_or_more_that_may_repeat() -> None:
    assert TSPSettings(nodes=3, k=6).samples == 6
    assert TSPSettings(nodes=3, k=7, estimator="rloo").samples == 7
    assert TSPSettings(nodes=100, k=10**7).samples == 10**7


def test_figures_need_runs() -> None:
    with pytest.raises(UserError, match="no runs were given"):
        TSPFigures(runs=())


@pytest.mark.parametrize(
    "sizes", [{"width": 10, "heads": 4}, {"layers": 0}, {"hidden": -1}, {"clip": 0.0}]
)
def test_sizes_that_make_no_model(sizes: dict) -> None:
    with pytest.raises(UserError):
        ModelSettings(**sizes)
