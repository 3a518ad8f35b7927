"""Settings of the Bernoulli experiment that are refused."""

from __future__ import annotations

import math

import pytest

from reproduction.bernoulli.settings import BernoulliSettings
from reproduction.harness.errors import UserError


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"eta": ()}, "eta is"),
        ({"eta": (math.nan,)}, "eta is"),
        ({"eta": (1.0, 1.0)}, "each number once"),
        ({"repeats": 1}, "repeats is 1"),
        ({"runs": 1}, "runs is 1; expected at least 2"),
        ({"k": 9}, "8 outcomes"),
        ({"steps": 0}, "steps is 0; expected at least 1"),
        ({"learning_rate": 0.0}, "more than 0"),
        ({"start": math.inf}, "finite numbers"),
    ],
)
def test_bad_settings_are_refused(settings: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        BernoulliSettings(**settings)
